"""Datagrams of syslog (RFC 3164, RFC 5424) and StatsD as values.  Pure; nothing that comes is too strange to be read.

What has no form that is known is a value with ``message`` alone of syslog.  Of StatsD it is none, and is counted.
Each value is one of JSON, which has neither NaN nor Infinity.
"""

from __future__ import annotations

import re
from math import isfinite
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
# Of a line with many values: each one repeats the name and the tags.
_REPEATED_MAX: Final = 4 * 1024 * 1024
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STATSD = re.compile(
    r"(?P<name>[^:|@]+):(?P<value>[^|]+)\|(?P<type>ms|[a-z])(?:\|@(?P<rate>[^|]+))?(?:\|#(?P<tags>.*))?"
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


def statsd(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """The metrics of a datagram of StatsD, and how many of its lines are none.

    A line may have several values of one metric with colons between, as DogStatsD packs them, but for those of a set.
    """
    found: list[dict[str, Any]] = []
    no_metrics = 0
    for line in raw.decode(errors="replace").splitlines():
        if not line.strip():
            continue
        matched = _STATSD.fullmatch(line.strip())
        metrics = [] if matched is None else _metrics(matched)
        found += metrics
        no_metrics += not metrics
    return found, no_metrics


def _metrics(line: re.Match[str]) -> list[dict[str, Any]]:
    """Those of a line; none where a number is none."""
    kind = line["type"]
    texts = [line["value"]] if kind == "s" else line["value"].split(":")
    values = texts if kind == "s" else [_number(text) for text in texts]
    rate = 1.0 if line["rate"] is None else _number(line["rate"])
    repeated = len(line["name"]) + len(line["tags"] or "")
    if None in values or not rate or rate < 0 or len(values) * repeated > _REPEATED_MAX:
        return []
    found: list[dict[str, Any]] = []
    for text, value in zip(texts, values, strict=True):
        metric: dict[str, Any] = {"name": line["name"], "value": value, "type": kind, "rate": rate}
        if kind == "g" and text[0] in "+-":
            metric["is_change"] = True
        if line["tags"]:
            metric["tags"] = line["tags"].split(",")
        found.append(metric)
    return found


def _number(text: str) -> float | None:
    """What Python takes for a number may have underscores, be ``nan``, or be too large for a float."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if isfinite(number) else None
