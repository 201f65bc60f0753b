"""Datagrams of syslog (RFC 3164, RFC 5424) and StatsD as values.  Pure; nothing that comes is too strange to be kept.

What has no form that is known is a value with ``message`` alone, or none at all of StatsD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_PRIORITY = re.compile(r"<(\d{1,3})>")
_STRUCTURED = re.compile(
    r"1 (?P<timestamp>\S+) (?P<host>\S+) (?P<app>\S+) (?P<pid>\S+) (?P<id>\S+) "
    r"(?P<data>-|(?:\[(?:[^\]\\\"]|\"(?:[^\"\\]|\\.)*\"|\\.)*\])+)(?: (?P<message>.*))?",
    re.DOTALL,
)
_FORMER = re.compile(
    r"(?P<timestamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\S+) "
    r"(?:(?P<app>[^\s:\[]+)(?:\[(?P<pid>[^\]]*)\])?: ?)?(?P<message>.*)",
    re.DOTALL,
)
_PRIORITY_MAX: Final = 191
_STATSD = re.compile(
    r"(?P<name>[^:|@]+):(?P<value>[^|]+)\|(?P<type>ms|[a-z])(?:\|@(?P<rate>[\d.]+))?(?:\|#(?P<tags>.*))?"
)


def syslog(raw: bytes) -> dict[str, Any]:
    """A datagram of syslog."""
    text = raw.decode(errors="replace").rstrip("\n\0")
    found: dict[str, Any] = {}
    matched = _PRIORITY.match(text)
    if matched is not None and int(matched[1]) <= _PRIORITY_MAX:
        found = {"facility": int(matched[1]) // 8, "severity": int(matched[1]) % 8}
        text = text[matched.end() :]
    parts = _STRUCTURED.fullmatch(text) or _FORMER.fullmatch(text)
    if parts is None:
        return {**found, "message": text}
    said = {name: value for name, value in parts.groupdict().items() if value not in (None, "-")}
    return {**found, **said, "message": said.get("message", "").removeprefix("\ufeff")}


def statsd(raw: bytes) -> Iterator[dict[str, Any]]:
    """The metrics of a datagram of StatsD, one a line; what is none is passed over."""
    for line in raw.decode(errors="replace").splitlines():
        matched = _STATSD.fullmatch(line.strip())
        if matched is None:
            continue
        try:
            value: float | str = matched["value"] if matched["type"] == "s" else float(matched["value"])
            rate = float(matched["rate"]) if matched["rate"] else 1.0
        except ValueError:
            continue
        found: dict[str, Any] = {"name": matched["name"], "value": value, "type": matched["type"], "rate": rate}
        if matched["type"] == "g" and matched["value"][0] in "+-":
            found["is_change"] = True
        if matched["tags"]:
            found["tags"] = matched["tags"].split(",")
        yield found
