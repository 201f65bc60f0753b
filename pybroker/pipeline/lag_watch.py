"""When a query falls behind its topics, and when it has caught up: each said once.

Owns the judgement alone.  What a micro-batch has read, the next one may leave behind again: that much is no lag, and
neither is a lag that stays as it is.
"""

from __future__ import annotations

GROWING_S = 30.0


class LagWatch:
    """Of one query, whose ``name`` people know; times are in seconds of any clock."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since_s: float | None = None  # it has been behind since
        self._first = self._most = 0  # records: how far at first, and at most
        self._is_said = False

    def observe(self, lag: int, taken: int, now_s: float) -> str | None:
        """What is to be said after a micro-batch that has ``taken`` so many records and left ``lag``; None mostly."""
        if lag <= taken:
            was_said, self._is_said, self._since_s = self._is_said, False, None
            return f"{self._name} has caught up" if was_said else None
        if self._since_s is None:
            self._since_s, self._first, self._most = now_s, lag, lag
        self._most = max(self._most, lag)
        grown_s = now_s - self._since_s
        if self._is_said or grown_s < GROWING_S or not self._first < lag == self._most:
            return None
        self._is_said = True
        return f"{self._name} is {lag:,} records behind, growing for {grown_s:.0f} s"
