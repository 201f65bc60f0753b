"""The arithmetic of quotas: what may go by, and how long it is to rest, beside Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.quotas.rates import Window

WINDOW = Window(11, 1000)
WINDOWS = st.builds(Window, st.integers(2, 12), st.integers(1, 3).map(lambda s: 1000 * s))
BOUND = 100_000
MINUTE_MS = 60_000


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

    def throttle_ms(self, bound: int, now: int) -> float:
        return max((self.per_second(now) - bound) / bound * self.window_ms(now), 0)


@given(st.lists(st.tuples(st.integers(0, 8_000), st.integers(0, 300)), max_size=60), WINDOWS, st.integers(1, 2_000))
def test_rest_in_the_sample_of_a_first_burst_is_that_of_kafka(
    events: list[tuple[int, int]], window: Window, bound: int
) -> None:
    bucket, kafka, now = window.rate(), NaiveRate(window), 17
    for value, pause in [(window.burst_ms * bound // 1000, 0), *events]:
        now += pause
        if now >= 17 + window.sample_ms:
            break
        bucket.take(value, bound, now)
        kafka.record(value, now)
        assert bucket.throttle_ms(bound, now) == pytest.approx(kafka.throttle_ms(bound, now), abs=1)


def test_a_window_s_worth_may_come_at_once() -> None:
    bucket = WINDOW.rate()
    bucket.take(10_000, 1000, 0)
    assert bucket.throttle_ms(1000, 0) == 0
    bucket.take(500, 1000, 0)
    assert bucket.throttle_ms(1000, 0) == 500


def test_window_of_one_sample_lets_that_of_a_sample_come_at_once() -> None:
    bucket = Window(1, 1000).rate()
    bucket.take(1000, 1000, 0)
    assert bucket.throttle_ms(1000, 0) == 0


def test_what_was_taken_back_does_not_count() -> None:
    bucket = WINDOW.rate()
    bucket.take(50_000, 1, 0)
    bucket.take(-50_000, 1, 3)
    assert bucket.throttle_ms(1, 3) == 0
    assert bucket.tokens(1, 3) == 10, "and no more than was there"


def test_rate_is_forgotten_in_a_window_without_use_and_mutations_are_not() -> None:
    rate, mutations = WINDOW.rate(), WINDOW.mutations()
    rate.take(1_000_000, 1, 0)
    mutations.take(1_000_000, 1, 0)
    assert rate.throttle_ms(1, 10_999) > 900_000
    assert not rate.is_idle(10_999)
    assert rate.throttle_ms(1, 11_000) == 0
    assert rate.is_idle(11_000)
    assert mutations.throttle_ms(1, 11_000) > 900_000


def sent(request_size: int, seconds: int) -> Iterator[tuple[int, int]]:
    """(time, size) of the requests of a client that sends one as soon as it may."""
    bucket, now = WINDOW.rate(), 0
    while now < seconds * 1000:
        yield now, request_size
        bucket.take(request_size, BOUND, now)
        now += max(bucket.throttle_ms(BOUND, now), 1)


@pytest.mark.parametrize("request_size", [1_000, 16_384, 250_000])
def test_client_that_rests_as_it_is_told_gets_its_quota_in_every_minute_after_its_first_burst(
    request_size: int,
) -> None:
    """With Kafka's sliding window it is 0.92 to 1.12 of that."""
    requests = list(sent(request_size, 200))
    for begins_ms in range(20_000, 120_000, 700):
        within = sum(size for now, size in requests if begins_ms <= now < begins_ms + MINUTE_MS)
        assert within == pytest.approx(BOUND * 60, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 8_000), st.integers(0, 5_000)), min_size=1, max_size=60), WINDOWS)
def test_never_more_goes_by_than_a_burst_and_what_the_quota_says_of_the_time(
    events: list[tuple[int, int]], window: Window
) -> None:
    """Of what waits for room, since a window without use: a burst, and one request more, behind which a rest is."""
    bucket, now, bound = window.rate(), 0, 1_000
    passed: list[tuple[int, int]] = []
    for value, pause in events:
        now += pause
        now += bucket.throttle_ms(bound, now)
        if bucket.is_idle(now):
            passed.clear()  # as Kafka's window it has forgotten: a client that rested for a whole window begins anew
        bucket.take(value, bound, now)
        passed.append((now, value))
        for begin, (since, _) in enumerate(passed):
            taken = sum(size for _, size in passed[begin:-1])
            assert taken <= bound * (window.burst_ms + now - since) / 1000 + 8_000 + 1


def test_bucket_of_mutations_is_full_at_first_and_refills_to_no_more() -> None:
    bucket = WINDOW.mutations()
    assert bucket.tokens(5, 0) == 55
    bucket.take(115, 5, 0)
    assert bucket.throttle_ms(5, 0) == 12_000
    assert bucket.throttle_ms(5, 11_000) == 1_000
    assert bucket.throttle_ms(5, 12_000) == 0
    assert bucket.tokens(5, 1_000_000) == 55


def test_bucket_follows_a_bound_that_changes() -> None:
    bucket = WINDOW.mutations()
    bucket.take(66, 5, 0)
    assert bucket.throttle_ms(5, 0) == 2_200
    assert bucket.throttle_ms(11, 0) == 1_000


@pytest.mark.parametrize("bound", [float("inf"), 1e308])
def test_quota_without_a_bound_lets_everything_through(bound: float) -> None:
    bucket = WINDOW.rate()
    for now in (0, 0, 1, 500):
        bucket.take(1e12, bound, now)
        assert bucket.throttle_ms(bound, now) == 0


@pytest.mark.parametrize("bound", [1e-7, 1e-320, 5e-324])
def test_no_rest_is_longer_than_a_reply_can_tell(bound: float) -> None:
    bucket = WINDOW.rate()
    bucket.take(1e9, bound, 0)
    assert bucket.throttle_ms(bound, 0) == 2**31 - 1
