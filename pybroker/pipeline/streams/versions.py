"""The versions of one key of a table, by the times from which they hold; pure.

Owns how long a version is kept: until a newer one holds for longer than the history, by the times of the key's own
changes.  A deletion is a version as well, and stays, for an older change may come behind it.

Counterpart: Kafka Streams' VersionedKeyValueStore (KIP-889), whose time is that of all keys of its partition.
"""

import json
from bisect import bisect_left, bisect_right


class Versions:
    """Texts by the times from which they hold, µs since 1970; ``None`` where the key is deleted."""

    def __init__(self, history_us: int, kept: str | None = None) -> None:
        self._history_us = history_us
        found = json.loads(kept) if kept else []
        self._times: list[int] = [at for at, _ in found]
        self._texts: list[str | None] = [text for _, text in found]

    def __len__(self) -> int:
        return len(self._times)

    def put(self, at: int, text: str | None) -> None:
        """A change; one that is older than the history is left out, and one of a time that is known replaces it."""
        if self._times and at < self._oldest_us:
            return
        position = bisect_left(self._times, at)
        is_known = position < len(self._times) and self._times[position] == at
        self._times[position : position + is_known] = [at]
        self._texts[position : position + is_known] = [text]
        # One version before the history holds at its beginning.
        outdated = max(bisect_right(self._times, self._oldest_us) - 1, 0)
        del self._times[:outdated], self._texts[:outdated]

    def at(self, at: int) -> str | None:
        """What held at a time; ``None`` where nothing did, and for times before the history."""
        position = bisect_right(self._times, at)
        return self._texts[position - 1] if position and at >= self._oldest_us else None

    def kept(self) -> str:
        """What another object is made of."""
        return json.dumps(list(zip(self._times, self._texts, strict=True)), separators=(",", ":"))

    @property
    def _oldest_us(self) -> int:
        return self._times[-1] - self._history_us
