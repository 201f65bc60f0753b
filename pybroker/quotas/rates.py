"""How fast something is, measured as Kafka does, and for how long it is to rest.

Owns: ``Rate``, what went by per second over a sliding window, and ``TokenBucket``, which a burst may empty.  Owns no
clock and no bound.

Invariants: time only goes on; a rate keeps one sample more than the window has, and a bucket holds no more than what
its bound lets through in a window; no rest is longer than a reply can tell, which is an int32 of ms, or 24 days.

A rate counts the window as if it had always been there: what comes first may take most of a window's worth at once, and
then rests.  That is Kafka's, too.

Kafka counterparts: Rate with WindowedSum, TokenBucket, QuotaUtils.throttleTime.
"""

from __future__ import annotations

from collections import deque
from math import floor
from typing import NamedTuple

from pybroker.config.schema import INT_MAX


class Window(NamedTuple):
    """So many samples of so many ms: ``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int
    sample_ms: int


class _Sample:
    """What went by in one stretch of time."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.value = 0.0


class Rate:
    """See the module's docstring.  All times are ms of one clock that never goes back."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        # One more than the window has: the oldest overlaps its begin.
        self._samples: deque[_Sample] = deque(maxlen=window.samples + 1)

    def record(self, value: float, now_ms: int) -> None:
        """So much has gone by; a negative value takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.sample_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def per_second(self, now_ms: int, more: float = 0.0) -> float:
        """The rate, as if ``more`` had just gone by, too."""
        elapsed_ms = self._elapsed_ms(now_ms)  # which forgets what is too old
        return (sum(sample.value for sample in self._samples) + more) * 1000 / elapsed_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as if nothing had ever gone by."""
        self._elapsed_ms(now_ms)
        return not self._samples

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long nothing may go by, so that the rate is ``bound`` per second; 0 while it is not above."""
        rate = self.per_second(now_ms)
        if not rate > bound:
            return 0
        return _rest_ms((rate - bound) / bound * self._elapsed_ms(now_ms))

    def _elapsed_ms(self, now_ms: int) -> int:
        """How long the window is now: whole samples but one at least, and what there is of the present one."""
        samples, (count, sample_ms) = self._samples, self._window
        expire_ms = count * sample_ms
        while samples and now_ms - samples[0].last_ms >= expire_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = count - 1 - elapsed_ms // sample_ms
        if missing > 0:
            elapsed_ms += missing * sample_ms
        return max(elapsed_ms, 1)


class TokenBucket:
    """See the module's docstring.  It is full at first."""

    __slots__ = ("_filled_ms", "_tokens", "_window_s")

    def __init__(self, window: Window) -> None:
        self._window_s = window.samples * window.sample_ms / 1000
        self._tokens: float | None = None
        self._filled_ms = 0

    def tokens(self, bound: float, now_ms: int) -> float:
        """What is left, if ``bound`` come back per second; below zero it is exhausted."""
        full = self._window_s * bound
        if self._tokens is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + bound * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Take so many, also more than there are."""
        self._tokens = self.tokens(bound, now_ms) - count

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long until it is no longer exhausted; 0 if it is not."""
        tokens = self.tokens(bound, now_ms)
        return _rest_ms(-tokens / bound * 1000) if tokens < 0 else 0


def _rest_ms(exact_ms: float) -> int:
    return floor(min(exact_ms, INT_MAX) + 0.5)
