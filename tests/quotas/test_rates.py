"""The arithmetic of quotas: Kafka's Rate, its throttle time, and its token bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.quotas.rates import Rate, TokenBucket, Window

WINDOW = Window(11, 1000)


class NaiveRate:
    """Kafka's ``Rate`` and ``SampledStat`` step by step: a ring of samples, of which old ones are reset in place."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.samples: list[list[float]] = []  # value, start, last
        self.current = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([0, now, now])
        sample = self.samples[self.current]
        if now - sample[1] >= self.window.sample_ms:
            self.current = (self.current + 1) % (self.window.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append([0, now, now])
            sample = self.samples[self.current]
            sample[:] = [0, now, now]
        sample[0] += value
        sample[2] = now

    def window_ms(self, now: int) -> int:
        count, length = self.window
        for sample in self.samples:
            if now - sample[2] >= count * length:
                sample[:] = [0, now, now]
        if not self.samples:
            self.samples.append([0, now, now])
        elapsed = now - int(min(sample[1] for sample in self.samples))
        full = elapsed // length
        if full < count - 1:
            elapsed += (count - 1 - full) * length
        return max(elapsed, 1)

    def per_second(self, now: int) -> float:
        elapsed = self.window_ms(now)
        return sum(sample[0] for sample in self.samples) * 1000 / elapsed


EVENTS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 5_000)), max_size=60)


@given(EVENTS, st.builds(Window, st.integers(1, 12), st.integers(1, 3).map(lambda s: 1000 * s)), st.integers(1, 2_000))
def test_rate_and_throttle_time_are_those_of_kafka(events: list[tuple[int, int]], window: Window, bound: int) -> None:
    rate, naive, now = Rate(window), NaiveRate(window), 17
    for value, pause in events:
        now += pause
        rate.record(value, now)
        naive.record(value, now)
        expected = naive.per_second(now)
        assert rate.per_second(now) == pytest.approx(expected)
        throttle_ms = (expected - bound) / bound * naive.window_ms(now)
        assert rate.throttle_ms(bound, now) == pytest.approx(max(throttle_ms, 0), abs=1)


def test_new_window_counts_as_if_it_were_whole() -> None:
    rate = Rate(WINDOW)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(500, 0)
    assert rate.throttle_ms(1000, 0) == 500


def test_what_would_come_is_looked_at_and_not_counted() -> None:
    rate = Rate(WINDOW)
    assert rate.per_second(0, 10_000) == 1000
    assert rate.per_second(0) == 0


def test_what_was_taken_back_does_not_count() -> None:
    rate = Rate(WINDOW)
    rate.record(50_000, 0)
    rate.record(-50_000, 3)
    assert rate.throttle_ms(1, 3) == 0


def throttled(bound: int, request: int, seconds: int) -> Iterator[tuple[int, int]]:
    """(time, size) of the requests of a client that sends one as soon as it may."""
    rate, now = Rate(WINDOW), 0
    while now < seconds * 1000:
        yield now, request
        rate.record(request, now)
        now += max(rate.throttle_ms(bound, now), 1)


@pytest.mark.parametrize("request_size", [1_000, 16_384, 250_000])
def test_client_that_rests_as_it_is_told_gets_its_quota_in_the_long_run(request_size: int) -> None:
    bound = 100_000
    sent = [(now, size) for now, size in throttled(bound, request_size, 200) if 60_000 <= now < 180_000]
    assert sum(size for _, size in sent) == pytest.approx(bound * 120, rel=0.1)


def test_bucket_is_full_at_first_and_refills_to_no_more() -> None:
    bucket = TokenBucket(WINDOW)
    assert bucket.tokens(5, 0) == 55
    bucket.take(115, 5, 0)
    assert bucket.throttle_ms(5, 0) == 12_000
    assert bucket.throttle_ms(5, 11_000) == 1_000
    assert bucket.throttle_ms(5, 12_000) == 0
    assert bucket.tokens(5, 1_000_000) == 55


def test_bucket_follows_a_bound_that_changes() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.take(66, 5, 0)
    assert bucket.throttle_ms(5, 0) == 2_200
    assert bucket.throttle_ms(11, 0) == 1_000


@pytest.mark.parametrize("bound", [1e-7, 1e-320, 5e-324])
def test_no_rest_is_longer_than_a_reply_can_tell(bound: float) -> None:
    rate, bucket = Rate(WINDOW), TokenBucket(WINDOW)
    rate.record(1e9, 0)
    bucket.take(1e9, bound, 0)
    assert rate.throttle_ms(bound, 0) == bucket.throttle_ms(bound, 0) == 2**31 - 1
