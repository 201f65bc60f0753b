"""How much of something may go by, and for how long it is to rest.

Owns: ``TokenBucket``, of which what goes by takes, and which fills at the quota's rate; ``Window``, from which a bucket
has its size.  Owns no clock and no bound.

Invariants:
- Time only goes on.
- A bucket holds no more than its window lets through at once.
- No rest is longer than a reply can tell, which is an int32 of ms, or 24 days.

Kafka has buckets for ``controller_mutation_rate`` alone (KIP-599), and for all else the sum of what went by in a window
that slides by samples. A client that such a window holds gets nothing while a burst is in it, and the same burst at
once when it has left. A bucket lets the same burst through, and tells the same rest for what is more. From then on it
lets through what the quota says, as it comes.

Kafka counterparts: TokenBucket, QuotaUtils.throttleTime; Rate with WindowedSum.
"""

from __future__ import annotations

from math import floor, inf
from typing import NamedTuple

from pybroker.config.schema import INT_MAX


class Window(NamedTuple):
    """So many samples of so many ms: ``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int
    sample_ms: int

    @property
    def burst_ms(self) -> int:
        """How long a client is as if it had been quiet when it comes: what it may have at once is of that time."""
        return max(self.samples - 1, 1) * self.sample_ms

    def rate(self) -> TokenBucket:
        """A bucket for a rate, which begins where Kafka's does and, as that does, forgets in a window without use."""
        return TokenBucket(self.burst_ms, self.samples * self.sample_ms)

    def mutations(self) -> TokenBucket:
        """Kafka's bucket: it forgets nothing."""
        return TokenBucket(self.samples * self.sample_ms)


class TokenBucket:
    """It is full at first; all times are ms of one clock that never goes back.

    It holds what its bound lets through in ``burst_ms``, and is full again when ``forgets_ms`` have gone by since
    anything was taken, whatever was.
    """

    __slots__ = ("_burst_s", "_filled_ms", "_forgets_ms", "_taken_ms", "_tokens")

    def __init__(self, burst_ms: int, forgets_ms: float = inf) -> None:
        self._burst_s = burst_ms / 1000
        self._forgets_ms = forgets_ms
        self._tokens = inf
        self._filled_ms = 0
        self._taken_ms = 0

    def tokens(self, bound: float, now_ms: int) -> float:
        """What is left, if ``bound`` come back per second; below zero it is exhausted."""
        full = self._burst_s * bound
        if self.is_idle(now_ms):
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + bound * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Take so many, also more than there are; a negative count gives back what was taken."""
        self._tokens = self.tokens(bound, now_ms) - count
        self._taken_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long until it is no longer exhausted; 0 if it is not."""
        tokens = self.tokens(bound, now_ms)
        return _rest_ms(-tokens / bound * 1000) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as if nothing had ever been taken."""
        return now_ms - self._taken_ms >= self._forgets_ms


def _rest_ms(exact_ms: float) -> int:
    return floor(min(exact_ms, INT_MAX) + 0.5)
