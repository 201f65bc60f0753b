"""The driver: appends that fail or take long, commits that wait, partitions that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.virtual_world import START_MS, VirtualClock

from pybroker import rate_limited_log
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker.coordinators.group.group_records import offset_key_prefix, pack_offset, pack_partition
from pybroker.coordinators.loader import LOAD_READ_BYTES, RECORDS_PER_CLOCK_READ
from pybroker.coordinators.partitioning import partition_for
from pybroker.coordinators.round_robin_work import RoundRobinWork
from pybroker.coordinators.runtime import LOAD_RETRY_MAX_MS, LOAD_RETRY_MS
from pybroker.coordinators.timers import Expiry, TimerTable
from pybroker.storage.results import TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from pybroker_protocol.record_codec import build_batch
from pybroker_protocol.records import HEADER_BYTES, LOG_OVERHEAD
from tests.coordinators.support import TOPIC_ID, Cluster, Reply, World

# What the log reports, and what a client of the coordinator is told.
LOG_ERRORS = [
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- appends that fail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_error", "told"), LOG_ERRORS)
def test_failed_commit_changes_nothing_and_says_why(cluster: Cluster, log_error: int, told: int) -> None:
    cluster.commit(1)
    cluster.world.partitions.append_error = log_error
    assert cluster.commit_error(2) == told
    assert cluster.committed() == {("t", 0): 1}
    cluster.world.partitions.append_error = 0
    assert cluster.commit_error(3) == 0


def test_appends_that_fail_and_fail_are_told_once_then_counted(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    for offset in range(20):
        cluster.commit_error(offset)
    assert caplog.text.count("could not append to __consumer_offsets-") == 1
    cluster.world.advance(rate_limited_log.FOLDED_LOG_MS)
    assert "19 more of __consumer_offsets" in caplog.text


def test_group_that_could_not_be_written_does_not_exist(cluster: Cluster) -> None:
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.join().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_assignment_that_could_not_be_written_sends_everybody_back_to_join(cluster: Cluster) -> None:
    joined = [cluster.new_member() for _ in range(2)]
    cluster.world.advance()
    (leader, _), (follower, _) = joined
    parked = cluster.sync(follower, 1)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.sync(leader, 1, {leader: b"a"}).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert parked.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.state() == "PreparingRebalance"
    cluster.world.partitions.append_error = 0
    rejoined = cluster.join(leader), cluster.join(follower)
    assert [reply.response.generation_id for reply in rejoined] == [2, 2]


def test_static_member_whose_new_id_could_not_be_written_keeps_the_old_one(cluster: Cluster) -> None:
    joined = cluster.join(instance="i")
    cluster.world.advance()
    (member,), generation = cluster.settle([(joined.response.member_id, joined)])
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.join(instance="i").error == ErrorCode.NOT_COORDINATOR
    assert cluster.heartbeat(member, generation, instance="i").error == 0


def test_group_is_empty_even_if_that_could_not_be_written(cluster: Cluster) -> None:
    (member,), _ = cluster.stable_group()
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.leave((member, None)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.state() == "Empty"


def test_parked_requests_of_who_leaves_are_answered_even_if_nothing_could_be_written(cluster: Cluster) -> None:
    leader, follower = cluster.stable_group(2)[0]
    parked = cluster.join(leader)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.leave((leader, None), (follower, None))
    assert parked.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.state() == "Empty"


# --- appends that take long ------------------------------------------------------------------------------------------


def test_operations_wait_behind_an_append_and_run_in_order(cluster: Cluster) -> None:
    cluster.world.partitions.hold_appends = True
    first = cluster.commit(1)
    second = cluster.commit(2)
    fetch = cluster.fetch()
    assert [reply.parked for reply in (first, second, fetch)] == [True, True, True]
    cluster.world.partitions.finish_appends()
    assert [reply.parked for reply in (first, second, fetch)] == [False, True, True]
    cluster.world.partitions.finish_appends()
    assert fetch.response.topics[0].partitions[0].committed_offset == 2


def test_partition_lost_while_appending_answers_everybody_once(cluster: Cluster) -> None:
    cluster.world.partitions.hold_appends = True
    replies = [cluster.commit(1), cluster.commit(2)]
    cluster.groups.on_leadership(set(), {0})
    cluster.world.partitions.finish_appends()
    for reply in replies:
        assert reply.response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_leader_whose_assignment_is_being_written_is_answered_once_when_the_partition_is_lost(
    cluster: Cluster,
) -> None:
    joined = [cluster.new_member() for _ in range(2)]
    cluster.world.advance()
    (leader, _), (follower, _) = joined
    cluster.world.partitions.hold_appends = True
    replies = [cluster.sync(follower, 1), cluster.sync(leader, 1, {})]
    cluster.groups.on_leadership(set(), {0})
    cluster.world.partitions.finish_appends()
    assert [reply.error for reply in replies] == [ErrorCode.NOT_COORDINATOR] * 2


def test_parked_request_that_an_append_sets_free_is_answered_when_the_partition_is_lost(cluster: Cluster) -> None:
    leader, follower = cluster.stable_group(2)[0]
    parked = cluster.join(leader)
    cluster.world.partitions.hold_appends = True
    left = cluster.leave((leader, None), (follower, None))
    cluster.groups.on_leadership(set(), {0})
    cluster.world.partitions.finish_appends()
    assert [reply.error for reply in (parked, left)] == [ErrorCode.NOT_COORDINATOR] * 2


def test_heartbeat_that_waits_behind_an_append_keeps_its_member(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group(session_ms=10_000)
    cluster.world.advance(9_999)
    cluster.world.partitions.hold_appends = True
    cluster.commit(1, group="simple")
    heartbeat = cluster.heartbeat(member, generation)
    cluster.world.advance(10)
    cluster.world.partitions.hold_appends = False
    cluster.world.partitions.finish_appends()
    assert heartbeat.error == 0
    assert cluster.heartbeat(member, generation).error == 0
    cluster.world.advance(9_999)
    assert cluster.heartbeat(member, generation).error == 0
    cluster.world.advance(10_000)
    assert cluster.state() == "Empty"


def test_session_that_ends_behind_an_append_without_a_heartbeat_is_over(cluster: Cluster) -> None:
    cluster.stable_group(session_ms=10_000)
    cluster.world.advance(9_999)
    cluster.world.partitions.hold_appends = True
    cluster.commit(1, group="simple")
    cluster.world.advance(10)
    cluster.world.partitions.hold_appends = False
    cluster.world.partitions.finish_appends()
    assert cluster.state() == "Empty"


def test_timer_that_expired_can_be_set_anew_or_cancelled_until_what_it_set_off_begins() -> None:
    world, key, expiries = World(), ("session", "g", "m"), list[Expiry]()
    timers = TimerTable(
        world.env, RoundRobinWork(world.timers), frozenset(), lambda _key, expiry: expiries.append(expiry)
    )

    def expire() -> Expiry:
        timers.schedule(key, 10)
        world.advance(10)
        return expiries.pop()

    expiry = expire()
    assert [timers.take(key, expiry), timers.take(key, expiry)] == [True, False], "once"
    cancelled = expire()
    timers.cancel(key)
    assert not timers.take(key, cancelled)
    replaced, latest = expire(), expire()
    assert [timers.take(key, replaced), timers.take(key, latest)] == [False, True]
    cleared = expire()
    timers.clear()
    assert not timers.take(key, cleared)


# --- commits that wait for the high watermark ------------------------------------------------------------------------


def test_response_waits_until_its_records_are_committed(cluster: Cluster) -> None:
    cluster.world.partitions.hold_commits = True
    reply = cluster.commit(1)
    assert reply.parked
    cluster.world.partitions.commit(0)
    assert reply.response.topics[0].partitions[0].error_code == 0


def test_nobody_sees_what_is_not_committed(cluster: Cluster) -> None:
    cluster.world.partitions.hold_commits = True
    cluster.commit(1)
    fetch = cluster.fetch()
    assert fetch.parked
    cluster.world.partitions.commit(0)
    assert fetch.response.topics[0].partitions[0].committed_offset == 1


def test_assignment_is_told_only_when_it_is_committed(cluster: Cluster) -> None:
    member_id, _ = cluster.new_member()
    cluster.world.advance()
    cluster.world.partitions.hold_commits = True
    reply = cluster.sync(member_id, 1, {member_id: b"a"})
    assert reply.parked
    cluster.world.partitions.commit(0)
    assert reply.response.assignment == b"a"


def test_commit_that_takes_too_long_is_given_up(cluster: Cluster) -> None:
    cluster.world.partitions.hold_commits = True
    first = cluster.commit(1)
    cluster.world.advance(3_000)
    second = cluster.commit(2)
    cluster.world.advance(2_000)
    assert first.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert second.parked
    cluster.world.partitions.commit(0)
    assert second.response.topics[0].partitions[0].error_code == 0
    assert cluster.committed() == {("t", 0): 2}


def test_old_consumers_are_told_to_look_for_the_coordinator_when_a_fetch_takes_too_long(cluster: Cluster) -> None:
    cluster.world.partitions.hold_commits = True
    cluster.commit(1)
    fetch = cluster.fetch()
    cluster.world.advance(5_000)
    assert fetch.error == ErrorCode.NOT_COORDINATOR


# --- partitions that come and go -------------------------------------------------------------------------------------


def test_partition_that_is_not_led_here_is_not_coordinated_here(cluster: Cluster) -> None:
    cluster.groups.on_leadership(set(), {0})
    told = ErrorCode.NOT_COORDINATOR
    assert cluster.join().error == told
    assert cluster.sync("m", 1).error == told
    assert cluster.heartbeat("m", 1).error == told
    assert cluster.leave(("m", None)).error == told
    assert cluster.commit_error(1) == told
    assert cluster.fetch().error == told
    assert cluster.describe().error_code == told


def test_everybody_who_waits_is_answered_when_the_partition_is_lost(cluster: Cluster) -> None:
    leader = cluster.stable_group(2)[0][0]
    joining = cluster.join(leader)
    follower = [cluster.new_member(group="h")[0] for _ in range(2)][1]
    cluster.world.advance()
    syncing = cluster.sync(follower, 1, group="h")
    cluster.world.partitions.hold_commits = True
    committing = cluster.commit(1, group="simple")
    cluster.groups.on_leadership(set(), {0})
    told = ErrorCode.NOT_COORDINATOR
    assert [joining.error, syncing.error] == [told, told]
    assert committing.response.topics[0].partitions[0].error_code == told


def test_lost_partition_leaves_no_timer_behind(cluster: Cluster) -> None:
    cluster.stable_group(3)
    cluster.new_member(group="h")
    cluster.groups.on_leadership(set(), {0})
    assert not cluster.world.timers.pending


def test_closing_leaves_no_timer_behind_and_hears_of_no_image(cluster: Cluster) -> None:
    cluster.stable_group()
    cluster.groups.close()
    assert not cluster.world.timers.pending
    cluster.delete_topics("t")


def test_regained_partition_has_what_it_had(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2)
    cluster.commit(5, leader, generation)
    cluster.groups.on_leadership(set(), {0})
    cluster.groups.on_leadership({0}, set())
    cluster.world.advance()
    assert cluster.committed() == {("t", 0): 5}
    assert cluster.state() == "Stable"
    assert cluster.heartbeat(follower, generation).error == 0
    assert cluster.sync(follower, generation).response.assignment == follower.encode()


def test_sessions_begin_anew_after_loading(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group()
    cluster.world.advance(9_000)
    again = cluster.restart()
    again.world.advance(9_999)
    assert again.heartbeat(member, generation).error == 0
    again.world.advance(10_000)
    assert again.state() == "Empty"


def test_group_above_the_bound_rebalances_after_loading(cluster: Cluster) -> None:
    cluster.stable_group(3)
    again = cluster.restart(group_max_size=2)
    assert again.state() == "PreparingRebalance"


# --- loading ---------------------------------------------------------------------------------------------------------


def filled(batch_count: int = 400, batch_records: int = 50) -> World:
    """A log of offsets, larger than one read."""
    world = World()
    for batch in range(batch_count):
        keys = (offset_key_prefix(f"group-{batch}", "t") + pack_partition(index) for index in range(batch_records))
        values = [(key, pack_offset(batch, -1, "", START_MS, TOPIC_ID)) for key in keys]
        world.partitions.write(0, build_batch(values, timestamp_ms=START_MS))
    assert len(world.partitions.logs[0]) > 3 * LOAD_READ_BYTES
    return world


class TickingClock(VirtualClock):
    """Time passes by being looked at."""

    ticking = False

    def monotonic_ms(self) -> int:
        if self.ticking:
            self.pass_ms(1)
        return super().monotonic_ms()


def test_loading_answers_load_in_progress_and_heartbeats_are_fine() -> None:
    cluster = Cluster(filled(), settled=False)
    told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert cluster.join().error == told
    assert cluster.commit_error(1) == told
    assert cluster.fetch().error == told
    assert cluster.heartbeat("m", 1).error == 0
    listed = Reply()
    cluster.groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[]), listed.done)
    assert listed.error == told
    cluster.world.advance()
    assert cluster.committed("group-399") == {("t", partition): 399 for partition in range(50)}


def test_loading_holds_the_loop_for_a_slice_at_a_time() -> None:
    clock = TickingClock()
    world, source = World(clock=clock), filled()
    world.partitions = source.partitions
    cluster = Cluster(world, settled=False)
    clock.ticking = True
    turns = 0
    while cluster.fetch().error:
        world.turn()
        turns += 1
        assert turns < 10_000
    assert turns > 400 * 50 / RECORDS_PER_CLOCK_READ / 4


def test_partition_lost_while_loading_is_dropped_and_the_next_is_loaded() -> None:
    world = filled()
    cluster = Cluster(world, partitions=2, settled=False)
    cluster.groups.on_leadership(set(), {0})
    world.advance()
    cluster.groups.on_leadership({0}, set())
    world.advance()
    listed = Reply()
    cluster.groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[]), listed.done)
    assert len(listed.response.groups) == 400


def batch_of_offset(group: str, offset: int) -> bytes:
    value = pack_offset(offset, -1, "", START_MS, TOPIC_ID)
    return build_batch([(offset_key_prefix(group, "t") + pack_partition(0), value)], timestamp_ms=START_MS)


def two_partitions() -> tuple[World, list[str]]:
    """A world with an offset of one group in each of two partitions, and the names of the groups."""
    world = World()
    groups = [next(name for name in "abcdefgh" if partition_for(name, 2) == partition) for partition in range(2)]
    for partition, group in enumerate(groups):
        world.partitions.write(partition, batch_of_offset(group, 5 + partition))
    return world, groups


def listed_groups(cluster: Cluster) -> list[str]:
    listed = Reply()
    cluster.groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[]), listed.done)
    assert listed.error == 0
    return [group.group_id for group in listed.response.groups]


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_log_that_cannot_be_read_is_in_no_other_partitions_way_and_is_tried_again(code: int) -> None:
    world, groups = two_partitions()
    world.partitions.read_errors[0] = code
    cluster = Cluster(world, partitions=2)
    assert cluster.fetch(groups[0]).error == ErrorCode.NOT_COORDINATOR
    assert cluster.commit_error(1, group=groups[0]) == ErrorCode.NOT_COORDINATOR
    assert cluster.committed(groups[1]) == {("t", 0): 6}
    assert listed_groups(cluster) == [groups[1]]
    world.partitions.read_errors.clear()
    world.advance(LOAD_RETRY_MS)
    assert cluster.committed(groups[0]) == {("t", 0): 5}


def test_log_that_cannot_be_had_does_not_pass_for_an_empty_one() -> None:
    world, groups = two_partitions()
    world.partitions.missing.add(0)
    cluster = Cluster(world, partitions=2)
    assert cluster.fetch(groups[0]).error == ErrorCode.NOT_COORDINATOR
    assert cluster.committed(groups[1]) == {("t", 0): 6}
    world.partitions.missing.clear()
    world.advance(LOAD_RETRY_MS)
    assert cluster.committed(groups[0]) == {("t", 0): 5}


@pytest.mark.parametrize("begin", [LOG_OVERHEAD, HEADER_BYTES], ids=["header", "records"])
def test_nobody_is_served_past_what_cannot_be_read(begin: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for group in "abc":
        world.partitions.write(0, batch_of_offset(group, 5))
    whole = bytes(world.partitions.logs[0])
    batch_bytes = len(whole) // 3
    world.partitions.logs[0][batch_bytes + begin : 2 * batch_bytes] = bytes(batch_bytes - begin)
    cluster = Cluster(world)
    assert [cluster.fetch(group).error for group in "abc"] == [ErrorCode.NOT_COORDINATOR] * 3
    assert "cannot load __consumer_offsets-0 from offset 1 to 3" in caplog.text
    world.partitions.logs[0][:] = whole
    world.advance(LOAD_RETRY_MS)
    assert [cluster.committed(group) for group in "abc"] == [{("t", 0): 5}] * 3


def test_pause_between_attempts_to_load_grows_to_a_bound_and_begins_anew_once_loaded() -> None:
    world = World()
    world.partitions.write(0, batch_of_offset("g", 5))
    world.partitions.read_errors[0] = ErrorCode.CORRUPT_MESSAGE
    cluster = Cluster(world)
    attempts = []
    for second in range(200):
        reads = world.partitions.reads
        world.advance(1_000)
        attempts += [second + 1] * (world.partitions.reads - reads)
    assert attempts == [1, 3, 7, 15, 31, 63, 123, 183]
    world.partitions.read_errors.clear()
    world.advance(LOAD_RETRY_MAX_MS)
    assert cluster.committed() == {("t", 0): 5}
    world.partitions.read_errors[0] = ErrorCode.CORRUPT_MESSAGE
    cluster.groups.on_leadership(set(), {0})
    cluster.groups.on_leadership({0}, set())
    world.advance()
    world.partitions.read_errors.clear()
    world.advance(LOAD_RETRY_MS)
    assert cluster.committed() == {("t", 0): 5}


@pytest.mark.parametrize("close", [False, True])
def test_partition_that_failed_to_load_is_not_tried_again_once_it_is_lost(close: bool) -> None:
    world = World()
    world.partitions.write(0, batch_of_offset("g", 5))
    world.partitions.missing.add(0)
    cluster = Cluster(world)
    if close:
        cluster.groups.close()
    else:
        cluster.groups.on_leadership(set(), {0})
    assert not world.timers.pending
    assert cluster.fetch().error == ErrorCode.NOT_COORDINATOR


def test_record_that_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    group_key = b"\x00\x02\x00\x01g"
    good = offset_key_prefix("h", "t") + pack_partition(0)
    values = [
        (group_key, b"\x00\x03torn"),
        (group_key, b"\x00\x63of a version of the future"),
        (b"", b"no key at all"),
        (b"\x00\x01\x00", b"a key that ends early"),
        (b"\x00\x01\x00\x50short", b""),
        (good, pack_offset(5, -1, "", START_MS, TOPIC_ID)),
    ]
    world.partitions.write(0, build_batch(values, timestamp_ms=START_MS))
    cluster = Cluster(world)
    assert cluster.committed("h") == {("t", 0): 5}
    assert "passed over" in caplog.text


def test_log_whose_last_records_were_compacted_away_is_loaded() -> None:
    world = World()
    world.partitions.write(0, batch_of_offset("g", 5))
    world.partitions.ends[0] = world.partitions.high_watermarks[0] = 2
    assert Cluster(world).committed() == {("t", 0): 5}


def test_bug_in_an_operation_fails_that_request_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(GroupCoordinatorShard, "heartbeat", lambda *_: 1 / 0)
        assert cluster.heartbeat("m", 1).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert cluster.heartbeat("m", 1).error == ErrorCode.UNKNOWN_MEMBER_ID


# --- deleted topics --------------------------------------------------------------------------------------------------


def test_offsets_of_a_topic_that_is_deleted_while_its_partition_loads_are_forgotten() -> None:
    world = filled()
    cluster = Cluster(world, settled=False)
    assert cluster.fetch().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.delete_topics("t")
    world.advance()
    assert cluster.committed("group-0") == {}
    assert cluster.restart().committed("group-0") == {}


def test_offset_of_a_deleted_topic_is_none_of_its_namesake(cluster: Cluster) -> None:
    """Nobody heard of the deletion here: the broker died before the tombstones were written."""
    value = pack_offset(5, -1, "", START_MS, TOPIC_ID[::-1])
    keys = [offset_key_prefix("g", topic) + pack_partition(0) for topic in ("t", "gone")]
    cluster.world.partitions.write(0, build_batch([(key, value) for key in keys], timestamp_ms=START_MS))
    again = cluster.restart()
    assert again.committed() == {("t", 0): -1, ("gone", 0): 5}
    assert again.fetch(topics={"t": [0]}).response.topics[0].partitions[0].committed_offset == -1
    assert again.commit_error(7) == 0
    assert again.committed() == {("t", 0): 7, ("gone", 0): 5}


# --- answers that cannot be delivered --------------------------------------------------------------------------------


class Undeliverable(Reply):
    """The first answer cannot be delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0

    def done(self, response: Any) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise RuntimeError("the answer cannot be shaped")
        super().done(response)

    @property
    def commit_error(self) -> int:
        assert self.response is not None
        return int(self.response.topics[0].partitions[0].error_code)


def test_answer_that_cannot_be_delivered_is_followed_by_a_refusal_and_stops_nobody(cluster: Cluster) -> None:
    reply = cluster.commit(1, reply=Undeliverable())
    assert isinstance(reply, Undeliverable)
    assert reply.commit_error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.commit_error(2) == 0
    assert cluster.committed() == {("t", 0): 2}


def test_gathered_answer_that_cannot_be_delivered_is_followed_by_a_refusal(cluster: Cluster) -> None:
    reply = Undeliverable()
    cluster.groups.describe_groups(["g", "h"], 5, reply.done)
    assert reply.response is not None
    assert [group.error_code for group in reply.response] == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]


def _finish_appends(cluster: Cluster) -> None:
    cluster.world.partitions.hold_appends = False
    for _ in range(2):
        cluster.world.partitions.finish_appends()


@pytest.mark.parametrize(
    ("hold", "answer", "told"),
    [
        ("hold_appends", _finish_appends, ErrorCode.NONE),
        ("hold_commits", lambda cluster: cluster.world.partitions.commit(0), ErrorCode.NONE),
        ("hold_commits", lambda cluster: cluster.world.advance(5_000), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("hold_commits", lambda cluster: cluster.groups.on_leadership(set(), {0}), ErrorCode.NOT_COORDINATOR),
    ],
    ids=["written", "committed", "timed out", "lost"],
)
def test_answer_that_cannot_be_delivered_keeps_back_none_behind_it(
    cluster: Cluster, hold: str, answer: Callable[[Cluster], None], told: int
) -> None:
    setattr(cluster.world.partitions, hold, True)
    first, second = cluster.commit(1, reply=Undeliverable()), cluster.commit(2, reply=Undeliverable())
    third = cluster.commit(3)
    assert [reply.parked for reply in (first, second, third)] == [True] * 3
    answer(cluster)
    cluster.world.partitions.finish_appends()
    assert isinstance(first, Undeliverable)
    assert isinstance(second, Undeliverable)
    assert first.commit_error == second.commit_error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert third.response.topics[0].partitions[0].error_code == told


def test_write_that_breaks_fails_its_request_and_stops_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("pybroker.coordinators.coordinator_context.build_batch", lambda *_, **__: 1 / 0)
        assert cluster.commit_error(1) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert cluster.commit_error(2) == 0


def test_marker_that_cannot_be_replayed_stops_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            GroupCoordinatorShard,
            "replay_end_transaction",
            lambda *_: 1 / 0,
        )
        cluster.groups.end_transaction(0, TransactionMarker(1, 0, 0, True, 2), ended.append)
        again = cluster.restart()
    assert ended == [0]
    assert "cannot replay the marker at offset 0" in caplog.text
    assert "passed over the record at offset 0" in caplog.text
    assert again.commit_error(1) == 0
