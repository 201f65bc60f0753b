"""When a connector that failed is started again: at once where it is asked for, else after pauses that grow.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAUSE_MAX_S: Final = 300.0
# What ran so long had not failed in a row.
RAN_WELL_S: Final = 60.0


@dataclass(slots=True)
class Restarts:
    """The failures of one connector in a row, and the times that follow.  Times are seconds of one clock."""

    backoff_s: float
    failures_max: int
    failures: int = 0
    _started_s: float = 0.0
    _due_s: float | None = None

    def started(self, now_s: float) -> None:
        """The connector was started."""
        self._started_s, self._due_s = now_s, None

    def failed(self, now_s: float) -> None:
        """It has failed, or could not be started."""
        if self.failures and now_s - self._started_s >= RAN_WELL_S:
            self.failures = 0
        self.failures += 1
        gives_up = 0 <= self.failures_max < self.failures
        self._due_s = None if gives_up else now_s + self.pause_s

    @property
    def pause_s(self) -> float:
        """The pause behind the last failure."""
        doublings = min(max(self.failures - 1, 0), 30)
        return float(min(self.backoff_s * 2**doublings, PAUSE_MAX_S))

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be started again now."""
        return self._due_s is not None and now_s >= self._due_s

    @property
    def has_given_up(self) -> bool:
        """Whether it failed more often than it may."""
        return self.failures > 0 and self._due_s is None
