"""Records as tests, feeds and people at a prompt write and read them.

Owns how keys, values and timestamps may be given, and how they are read back.  Rows on their way from Spark to a topic
are other things (``topics/rows``): there every microsecond counts.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Timestamp = datetime | str | int


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic, given or written.

    ``key`` and ``value``: bytes, a string, ``None``, or anything that JSON has.  ``timestamp``: a datetime, ISO 8601
    text, both UTC unless they say otherwise, or ms since 1970; ``None`` is the test driver's time.  A record that a job
    has written has bytes, ms, and no timestamp or partition where the job leaves that to the producer.
    """

    key: Any = None
    value: Any = None
    timestamp: Timestamp | None = None
    headers: Iterable[tuple[str, bytes | None]] = ()
    partition: int | None = None

    @property
    def timestamp_ms(self) -> int:
        """The timestamp, ms since 1970; raises ValueError where there is none."""
        if self.timestamp is None:
            raise ValueError("the record has no timestamp")
        return as_ms(self.timestamp)

    @property
    def text(self) -> str | None:
        """The value as text."""
        return as_text(self.value)

    @property
    def json(self) -> Any:
        """The value as what its JSON says."""
        return None if self.value is None else json.loads(self.value)


def as_bytes(given: object) -> bytes | None:
    """The bytes of a key or a value."""
    if given is None or isinstance(given, bytes):
        return given
    text = given if isinstance(given, str) else json.dumps(given, separators=(",", ":"))
    return text.encode()


def as_text(found: bytes | None) -> str | None:
    """Bytes of UTF-8 as text."""
    return None if found is None else found.decode()


def as_ms(given: Timestamp) -> int:
    """A time as ms since 1970."""
    if isinstance(given, int):
        return given
    at = datetime.fromisoformat(given) if isinstance(given, str) else given
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1_000)
