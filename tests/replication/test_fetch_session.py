"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

from random import Random

import pytest
from harness.virtual_world import VirtualClock

from pybroker import limits
from pybroker.replication.fetch_session import (
    EVICTION_MS,
    NO_FOLLOWER,
    FetchPartition,
    FetchSession,
    FetchSessionCache,
)
from pybroker_protocol.errors import ErrorCode


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def make_cache(clock: VirtualClock, slots: int = 3) -> FetchSessionCache:
    return FetchSessionCache(slots, clock.monotonic_ms, Random(1))


def partitions(count: int, topic: str = "t") -> list[FetchPartition]:
    made = []
    for index in range(count):
        fetched = FetchPartition(topic, bytes(16), index)
        fetched.ask(fetch_offset=index * 10, max_bytes=100, current_leader_epoch=-1)
        made.append(fetched)
    return made


def create(
    cache: FetchSessionCache, asked: list[FetchPartition], *, by_id: bool, follower: int = NO_FOLLOWER
) -> FetchSession | None:
    """As a short request has it made."""
    session = cache.begin(len(asked), by_id, follower)
    if session is not None:
        cache.change(session, asked)
    return session


def created(cache: FetchSessionCache, count: int = 1) -> FetchSession:
    session = create(cache, partitions(count), by_id=False)
    assert session is not None
    return session


def test_session_starts_at_epoch_one_and_grows_with_each_request(clock: VirtualClock) -> None:
    cache = make_cache(clock)
    session = created(cache)
    assert cache.resume(session.session_id, 1, by_id=False) is session
    assert cache.resume(session.session_id, 2, by_id=False) is session


def test_wrong_epoch_is_refused_and_leaves_the_session_alone(clock: VirtualClock) -> None:
    cache = make_cache(clock)
    session = created(cache)
    assert cache.resume(session.session_id, 7, by_id=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(session.session_id, 1, by_id=False) is session


def test_unknown_session_is_refused(clock: VirtualClock) -> None:
    assert make_cache(clock).resume(99, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_by_names_cannot_be_continued_by_topic_ids(clock: VirtualClock) -> None:
    cache = make_cache(clock)
    session = created(cache)
    assert cache.resume(session.session_id, 1, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epoch_wraps_to_one_because_zero_means_a_new_session(clock: VirtualClock) -> None:
    session = created(make_cache(clock))
    session.epoch = 0x7FFFFFFF
    session.advance()
    assert session.epoch == 1


def test_full_cache_of_fresh_sessions_admits_nobody(clock: VirtualClock) -> None:
    cache = make_cache(clock, slots=2)
    created(cache)
    created(cache)
    assert create(cache, partitions(5), by_id=False) is None
    assert len(cache) == 2


def test_session_unused_for_the_eviction_time_makes_room_first(clock: VirtualClock) -> None:
    cache = make_cache(clock, slots=2)
    old, used = created(cache), created(cache)
    clock.pass_ms(EVICTION_MS + 1)
    assert cache.resume(used.session_id, 1, by_id=False) is used
    created(cache)
    assert cache.resume(old.session_id, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(used.session_id, 2, by_id=False) is used


def test_smaller_old_session_makes_room_for_a_larger_one_though_it_is_in_use(clock: VirtualClock) -> None:
    cache = make_cache(clock, slots=1)
    small = created(cache, 1)
    clock.pass_ms(EVICTION_MS + 1)
    assert cache.resume(small.session_id, 1, by_id=False) is small
    assert create(cache, partitions(1), by_id=False) is None
    assert create(cache, partitions(2), by_id=False) is not None


def test_sessions_remember_so_many_partitions_at_most(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_PARTITIONS_MAX", 10)
    cache = make_cache(clock)
    assert create(cache, partitions(11), by_id=False) is None
    first = created(cache, 6)
    assert create(cache, partitions(5), by_id=False) is None
    second = created(cache, 4)
    clock.pass_ms(EVICTION_MS + 1)
    assert cache.resume(second.session_id, 1, by_id=False) is second
    created(cache, 5)
    assert cache.resume(first.session_id, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(second.session_id, 2, by_id=False) is second


def test_session_that_grows_too_large_ends(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_PARTITIONS_MAX", 10)
    cache = make_cache(clock)
    session, other = created(cache, 5), created(cache, 5)
    cache.change(session, partitions(5))
    assert cache.resume(session.session_id, 1, by_id=False) is session, "it knew them already"
    cache.change(session, partitions(1, "another"))
    assert cache.resume(session.session_id, 2, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(other.session_id, 1, by_id=False) is other


def follower_session(cache: FetchSessionCache, broker_id: int, count: int = 1) -> FetchSession:
    session = create(cache, partitions(count), by_id=False, follower=broker_id)
    assert session is not None
    return session


def is_there(cache: FetchSessionCache, session: FetchSession) -> bool:
    return cache.resume(session.session_id, session.epoch, by_id=False) is session


def test_a_followers_session_takes_the_place_of_the_smallest_client_and_gives_way_to_none(clock: VirtualClock) -> None:
    cache = make_cache(clock, slots=2)
    large, small = created(cache, 5), created(cache, 3)
    first = follower_session(cache, 1)
    assert is_there(cache, large)
    assert not is_there(cache, small)
    clock.pass_ms(EVICTION_MS + 1)
    assert is_there(cache, large)
    assert is_there(cache, first)
    created(cache, 9)
    assert is_there(cache, first), "the client's gives way, though it is larger"
    assert not is_there(cache, large)
    second = follower_session(cache, 2)
    assert create(cache, partitions(9), by_id=False) is None
    assert create(cache, partitions(1), by_id=False, follower=3) is None, "no follower's that is as large"
    assert follower_session(cache, 3, 2)
    assert not is_there(cache, first)
    assert is_there(cache, second)


def test_a_followers_new_session_ends_its_former_one(clock: VirtualClock) -> None:
    cache = make_cache(clock)
    former, others = follower_session(cache, 1), follower_session(cache, 2)
    follower_session(cache, 1)
    assert not is_there(cache, former)
    assert is_there(cache, others)
    assert len(cache) == 2


def test_clients_give_way_to_a_followers_session_that_grows(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSION_PARTITIONS_MAX", 10)
    cache = make_cache(clock)
    follower, client = follower_session(cache, 1, 6), created(cache, 4)
    cache.change(follower, partitions(1, "another"))
    assert is_there(cache, follower)
    assert not is_there(cache, client)
    cache.change(follower, partitions(4, "and another"))
    assert not is_there(cache, follower), "it is too large by itself"


def test_what_a_session_forgets_is_room_for_others(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_PARTITIONS_MAX", 10)
    cache = make_cache(clock)
    session = created(cache, 10)
    assert create(cache, partitions(5), by_id=False) is None
    cache.change(session, [], [("t", index) for index in range(5)])
    other = created(cache, 5)
    cache.remove(other.session_id)
    cache.remove(other.session_id)
    created(cache, 5)
    assert create(cache, partitions(1), by_id=False) is None


def test_no_slots_means_no_sessions(clock: VirtualClock) -> None:
    assert create(make_cache(clock, slots=0), partitions(1), by_id=False) is None


def test_changed_partition_is_replaced_and_forgotten_one_goes(clock: VirtualClock) -> None:
    session = created(make_cache(clock), 2)
    changed = FetchPartition("t", bytes(16), 1)
    changed.ask(fetch_offset=77, max_bytes=5, current_leader_epoch=3)
    session.put([changed])
    session.forget([("t", 0), ("unknown", 9)])
    (left,) = session.partitions.values()
    assert (left.index, left.fetch_offset, left.max_bytes, left.current_leader_epoch) == (1, 77, 5, 3)


def test_partition_with_records_moves_behind_those_without(clock: VirtualClock) -> None:
    session = created(make_cache(clock), 3)
    first = next(iter(session.partitions.values()))
    session.rotate([first])
    assert [fetched.index for fetched in session.partitions.values()] == [1, 2, 0]


def test_partition_is_news_only_when_something_changed() -> None:
    fetched = partitions(1)[0]
    fetched.high_watermark, fetched.log_start_offset = 5, 0
    assert fetched.has_news()
    assert not fetched.has_news()
    fetched.high_watermark = 6
    assert fetched.has_news()
    fetched.records = b"batch"
    assert fetched.has_news()


def test_error_is_news_every_time_and_so_is_its_end() -> None:
    fetched = partitions(1)[0]
    fetched.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert fetched.has_news()
    assert fetched.has_news()
    fetched.error_code, fetched.high_watermark, fetched.log_start_offset = 0, 0, 0
    assert fetched.has_news()
