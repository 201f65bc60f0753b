"""Where to start and stop reading: kcat's and rpk's spellings of offsets and times, parsed.  Pure.

Spellings of ``--offset``: ``beginning`` (``earliest``, ``start``), ``end`` (``latest``), ``stored``, ``N`` (absolute),
``-N`` (N before the end), ``@TIME`` or ``s@TIME`` (from that time on), ``e@TIME`` (up to that time).
``TIME`` is epoch milliseconds, an ISO 8601 date or time (UTC unless it says otherwise), or ``-90s``, ``-15m``,
``-24h``, ``-7d`` before now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Kafka's offsets and times are of 64 bits.
INT64_MAX = 2**63 - 1
_RELATIVE = re.compile(r"-(\d+)(ms|s|m|h|d)")
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)?")


class Origin(Enum):
    """What a start offset is counted from."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    ABSOLUTE = "absolute"
    BEFORE_END = "before end"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Start:
    """A start position; ``value`` is an offset, a number of records, or epoch milliseconds, as ``origin`` says."""

    origin: Origin
    value: int = 0


@dataclass(frozen=True, slots=True)
class ReadRange:
    """From where to read, and the time (epoch ms) at which to stop, if any."""

    start: Start | None
    end_timestamp_ms: int | None = None


WORDS = {
    "beginning": Start(Origin.BEGINNING),
    "earliest": Start(Origin.BEGINNING),
    "start": Start(Origin.BEGINNING),
    "end": Start(Origin.END),
    "latest": Start(Origin.END),
    "stored": Start(Origin.STORED),
}


def parse_timestamp_ms(text: str, now_ms: int) -> int:
    """``text`` as epoch milliseconds; raises ``ValueError`` with a sentence.

    Never negative: the protocol means something else by such a time.
    """
    if text.isdigit():
        return _int64(text)
    if relative := _RELATIVE.fullmatch(text):
        return max(0, now_ms - _int64(relative[1]) * UNIT_MS[relative[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: give epoch milliseconds, an ISO 8601 time, or -15m") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, int(moment.timestamp() * 1000))
    except OverflowError:
        raise ValueError(f"{text!r} lies beyond the times that Kafka knows") from None


def _int64(digits: str) -> int:
    # The length first: Python refuses to convert thousands of digits, in words that mean nothing here.
    if len(digits) > len(str(INT64_MAX)) or (number := int(digits)) > INT64_MAX:
        raise ValueError(f"{digits[:20]}{'…' * (len(digits) > 20)} is more than 64 bits hold")
    return number


def parse_duration_ms(text: str, bare_unit: str | None) -> int:
    """``text`` (``90s``, ``15m``, or a number of ``bare_unit``) in milliseconds; ``ValueError`` with a sentence.

    With no ``bare_unit`` a number without a unit is refused: 12 that is meant as hours would be milliseconds.
    """
    duration = _DURATION.fullmatch(text)
    if duration is None:
        raise ValueError(f"{text!r} is no duration: give 500ms, 90s, 15m, 2h or 7d")
    unit = duration[2] or bare_unit
    if unit is None:
        raise ValueError(f"{text!r} has no unit: give 90s, 15m, 12h or 7d")
    return int(duration[1]) * UNIT_MS[unit]


def parse_start(text: str, now_ms: int) -> Start:
    """One spelling of a start position; raises ``ValueError`` with a sentence."""
    if text in WORDS:
        return WORDS[text]
    if text.startswith(("@", "s@")):
        return Start(Origin.TIMESTAMP, parse_timestamp_ms(text.partition("@")[2], now_ms))
    if text.isdigit():
        return Start(Origin.ABSOLUTE, _int64(text))
    if text.startswith("-") and text[1:].isdigit():
        return Start(Origin.BEFORE_END, _int64(text[1:]))
    raise ValueError(f"{text!r} is no offset: give beginning, end, stored, N, -N, @TIME or e@TIME")


def parse_range(texts: list[str], now_ms: int) -> ReadRange:
    """All ``--offset`` options of one command: at most one start and at most one end."""
    start: Start | None = None
    end_timestamp_ms: int | None = None
    for text in texts:
        if text.startswith("e@"):
            end_timestamp_ms = parse_timestamp_ms(text[2:], now_ms)
        elif start is None:
            start = parse_start(text, now_ms)
        else:
            raise ValueError("more than one start offset was given")
    return ReadRange(start, end_timestamp_ms)


def parse_partitions(texts: list[str]) -> list[int]:
    """``["0,2", "5-7"]`` as ``[0, 2, 5, 6, 7]``; raises ``ValueError`` with a sentence."""
    partitions: set[int] = set()
    for part in ",".join(texts).split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part!r} is no partition: give N, N,M or N-M")
        # A topic has at most some thousands of partitions; a typing error must not build a list of billions.
        if dash and int(last) - int(first) > 100_000:
            raise ValueError(f"{part!r} is too many partitions")
        partitions.update(range(int(first), int(last if dash else first) + 1))
    return sorted(partitions)
