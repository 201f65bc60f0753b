"""Lives of transactional ids: both protocols, fencing, used-up epochs, markers, time-outs, expiry."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pybroker.coordinators.regular_expressions import CompiledRegex
from pybroker.coordinators.transaction.marker_sender import RETRY_MS
from pybroker.coordinators.transaction.transaction_metadata import TransactionState
from pybroker_protocol import codec
from pybroker_protocol.data_records import encode_value
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_transactions import ListTransactionsRequest
from pybroker_protocol.messages.records_transaction import TransactionLogValue
from pybroker_protocol.record_codec import build_batch
from tests.coordinators.support import Reply
from tests.coordinators.transaction_support import COORDINATOR_EPOCH, OFFSETS, T0, T1, Cluster

V1 = 4  # the last version of EndTxn that clients of the first protocol send
LAST_EPOCH = 32_766
EVERYTHING = ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def ended(response: Any) -> tuple[int, int]:
    """(producer id, epoch) with which the client goes on."""
    assert response.error_code == 0
    return response.producer_id, response.producer_epoch


def raise_epoch_to(cluster: Cluster, epoch: int) -> tuple[int, int]:
    """A producer with this epoch, which a log says it has."""
    producer_id, _ = cluster.producer()
    key, value = cluster.world.records()[-1]
    assert value is not None
    decoded = codec.decode(TransactionLogValue, 1, memoryview(value)[2:])
    decoded.producer_epoch = epoch
    cluster.world.partitions.write(0, build_batch([(key, encode_value(decoded, 1))], timestamp_ms=0))
    return producer_id, epoch


# --- beginning -------------------------------------------------------------------------------------------------------


def test_a_new_id_gets_a_producer_id_of_its_own_and_epoch_0() -> None:
    cluster = Cluster()
    assert cluster.producer("a") == (1000, 0)
    assert cluster.producer("b") == (1001, 0)
    assert cluster.state("a") == "Empty"


def test_a_second_producer_with_one_id_fences_the_first() -> None:
    cluster = Cluster()
    first = cluster.producer()
    second = cluster.producer()
    assert second == (first[0], first[1] + 1)
    assert cluster.add(first, T0) == {T0: ErrorCode.PRODUCER_FENCED}
    assert cluster.end(first).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.add(second, T0) == {T0: 0}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_outside_of_the_bounds_is_refused(timeout_ms: int) -> None:
    assert Cluster().init(timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_the_longest_timeout_is_a_setting() -> None:
    cluster = Cluster(transaction_max_timeout_ms=5_000)
    assert cluster.init(timeout_ms=5_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert cluster.init(timeout_ms=5_000).error_code == 0


def test_an_empty_id_is_refused_everywhere() -> None:
    cluster = Cluster()
    assert cluster.init("").error_code == ErrorCode.INVALID_REQUEST
    assert cluster.add((1, 0), T0, transactional_id="") == {T0: ErrorCode.INVALID_REQUEST}
    assert cluster.add((1, 0), T0, transactional_id="", verify_only=True) == {T0: ErrorCode.INVALID_REQUEST}
    assert cluster.end((1, 0), transactional_id="").error_code == ErrorCode.INVALID_REQUEST
    assert cluster.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_without_producer_ids_to_give_a_client_is_told_to_come_again() -> None:
    cluster = Cluster()
    cluster.producer_ids.none_left = True
    assert cluster.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert cluster.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    assert cluster.producer(producer_id=producer_id, epoch=epoch) == (producer_id, epoch + 1)


def test_a_repeated_request_to_go_on_is_answered_as_the_first() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    cluster.producer(producer_id=producer_id, epoch=epoch)
    assert cluster.producer(producer_id=producer_id, epoch=epoch) == (producer_id, epoch + 1)


def test_a_producer_that_was_fenced_may_not_go_on() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    cluster.producer()
    assert cluster.init(producer_id=producer_id, epoch=epoch).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.init(producer_id=producer_id + 5, epoch=epoch).error_code == ErrorCode.PRODUCER_FENCED


def test_a_producer_may_go_on_under_an_id_that_expired() -> None:
    cluster = Cluster()
    assert cluster.producer(producer_id=77, epoch=5) == (1000, 0)


def test_clients_before_version_4_hear_of_their_fence_by_another_code() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    cluster.producer()
    answer = cluster.init(producer_id=producer_id, epoch=epoch, version=3)
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [0, 1])
def test_clients_before_version_2_hear_of_their_fence_by_another_code(version: int) -> None:
    cluster = Cluster()
    old = cluster.producer()
    cluster.producer()
    assert cluster.add(old, T0, version=version) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert cluster.add_offsets(old, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.end(old, version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# --- the first protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("commit", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_the_end_of_a_transaction_is_marked_in_each_of_its_partitions(commit: bool, state: str) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    assert cluster.add(producer, T0, T1) == {T0: 0, T1: 0}
    assert cluster.add_offsets(producer) == 0
    assert cluster.state() == "Ongoing"
    answer = cluster.end(producer, commit, version=V1)
    assert (answer.error_code, cluster.state()) == (0, state)
    assert {partition for partition, _ in cluster.markers.written} == {T0, T1, OFFSETS}
    for _, marker in cluster.markers.written:
        assert marker == (*producer, COORDINATOR_EPOCH, commit, 0)


def test_a_transaction_costs_three_appends_of_the_coordinator() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    before = cluster.world.partitions.appends
    cluster.add(producer, T0)
    cluster.add(producer, T0)
    cluster.end(producer, version=V1)
    assert cluster.world.partitions.appends == before + 3


def test_the_next_transaction_can_begin_at_once() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    for partition in (T0, T1):
        assert cluster.add(producer, partition) == {partition: 0}
        assert cluster.end(producer, version=V1).error_code == 0
    assert [partition for partition, _ in cluster.markers.written] == [T0, T1]


def test_a_transaction_with_nothing_in_it_cannot_end_in_the_first_protocol() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    for commit in (True, False):
        assert cluster.end(producer, commit, version=V1).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_repeated_end_of_the_first_protocol_is_granted_and_the_contrary_refused() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, T0)
    cluster.end(producer, version=V1)
    assert cluster.end(producer, version=V1).error_code == 0
    assert cluster.end(producer, False, version=V1).error_code == ErrorCode.INVALID_TXN_STATE
    assert len(cluster.markers.written) == 1


def test_strangers_have_no_transaction() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    for stranger, transactional_id in (((producer_id + 1, epoch), "x"), ((producer_id, epoch), "unknown")):
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert cluster.add(stranger, T0, transactional_id=transactional_id) == {T0: error}
        assert cluster.add(stranger, T0, transactional_id=transactional_id, verify_only=True) == {T0: error}
        assert cluster.end(stranger, transactional_id=transactional_id).error_code == error
        assert cluster.end(stranger, transactional_id=transactional_id, version=V1).error_code == error


# --- the second protocol ---------------------------------------------------------------------------------------------


def test_the_end_of_a_transaction_raises_the_epoch_and_its_markers_have_the_new_one() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    assert cluster.add_for((producer_id, epoch), T0) == {T0: 0}
    assert ended(cluster.end((producer_id, epoch))) == (producer_id, epoch + 1)
    assert cluster.markers.written == [(T0, (producer_id, epoch + 1, COORDINATOR_EPOCH, True, 2))]
    assert cluster.add_for((producer_id, epoch), T0) == {T0: ErrorCode.PRODUCER_FENCED}
    assert cluster.add_for((producer_id, epoch + 1), T0) == {T0: 0}


@pytest.mark.parametrize("before", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_a_transaction_with_nothing_in_it_can_be_aborted_but_not_committed(before: str) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    if before != "Empty":
        cluster.add_for(producer, T0)
        producer = ended(cluster.end(producer, before == "CompleteCommit"))
    cluster.markers.written.clear()
    assert cluster.state() == before
    assert cluster.end(producer).error_code == ErrorCode.INVALID_TXN_STATE
    assert ended(cluster.end(producer, False)) == (producer[0], producer[1] + 1)
    assert cluster.state() == "CompleteAbort"
    assert cluster.markers.written == []
    assert cluster.describe().transaction_start_time_ms == cluster.world.clock.now_ms()


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_as_the_first_and_the_contrary_refused(commit: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    first = ended(cluster.end(producer, commit))
    assert ended(cluster.end(producer, commit)) == first
    assert cluster.end(producer, not commit).error_code == ErrorCode.INVALID_TXN_STATE
    assert len(cluster.markers.written) == 1


@pytest.mark.parametrize(("epoch_change", "commit"), [(1, True), (1, False), (-1, True), (-1, False)])
def test_another_epoch_cannot_end_a_transaction(epoch_change: int, commit: bool) -> None:
    cluster = Cluster()
    cluster.producer()
    cluster.producer()
    producer_id, epoch = cluster.producer()
    cluster.add_for((producer_id, epoch), T0)
    assert cluster.end((producer_id, epoch + epoch_change), commit).error_code == ErrorCode.PRODUCER_FENCED
    assert cluster.state() == "Ongoing"


def test_a_partition_is_verified_without_becoming_part_of_the_transaction() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, T0)
    assert cluster.add_for(producer, T0, T1, verify_only=True) == {T0: 0, T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert cluster.add(producer, T0, T1, version=5, verify_only=True) == {T0: 0, T1: ErrorCode.TRANSACTION_ABORTABLE}
    stale = (producer[0], producer[1] - 1)
    assert cluster.add_for(stale, T0, verify_only=True) == {T0: ErrorCode.PRODUCER_FENCED}
    assert [topic.partitions for topic in cluster.describe().topics] == [[0]]


def test_used_up_epochs_bring_a_new_producer_id_with_the_end_of_the_transaction() -> None:
    cluster = Cluster()
    producer = raise_epoch_to(cluster, LAST_EPOCH)
    cluster = cluster.crash()
    cluster.add_for(producer, T0)
    after = ended(cluster.end(producer))
    assert after == (cluster.producer_ids.last, 0)
    assert after[0] != producer[0]
    # The markers still belong to the old one, with an epoch that no client ever had.
    assert cluster.markers.written == [(T0, (producer[0], LAST_EPOCH + 1, COORDINATOR_EPOCH, True, 2))]
    assert ended(cluster.end(producer)) == after, "a repeated request"
    assert cluster.end(producer, False).error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.add_for(after, T1) == {T1: 0}


def test_the_exchange_of_the_producer_id_outlives_a_crash_between_decision_and_markers() -> None:
    cluster = Cluster()
    producer = raise_epoch_to(cluster, LAST_EPOCH)
    cluster = cluster.crash()
    cluster.add_for(producer, T0)
    cluster.markers.hold = True
    after = ended(cluster.end(producer))
    cluster.markers.hold = False
    cluster = cluster.crash()
    assert (cluster.describe().producer_id, cluster.describe().producer_epoch) == after
    assert cluster.add_for(after, T1) == {T1: 0}


def test_used_up_epochs_bring_a_new_producer_id_to_whoever_begins_next() -> None:
    cluster = Cluster()
    producer = raise_epoch_to(cluster, LAST_EPOCH)
    cluster = cluster.crash()
    after = cluster.producer(producer_id=producer[0], epoch=LAST_EPOCH)
    assert after == (cluster.producer_ids.last, 0)
    assert cluster.producer(producer_id=producer[0], epoch=LAST_EPOCH) == after, "a repeated request"


# --- both at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("transaction_version", "raises"), [(0, 1), (1, 1), (2, 1)])
def test_a_second_producer_aborts_the_transaction_of_the_first(transaction_version: int, raises: int) -> None:
    cluster = Cluster(transaction_version=transaction_version)
    producer_id, epoch = cluster.producer()
    cluster.add((producer_id, epoch), T0)
    assert cluster.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    fence = epoch + raises
    assert cluster.markers.written == [(T0, (producer_id, fence, COORDINATOR_EPOCH, False, transaction_version & 2))]
    assert cluster.producer() == (producer_id, fence + 1)
    assert cluster.end((producer_id, epoch), version=V1).error_code == ErrorCode.PRODUCER_FENCED


def test_an_abort_by_a_second_producer_may_use_up_the_epochs() -> None:
    cluster = Cluster()
    producer = raise_epoch_to(cluster, LAST_EPOCH)
    cluster = cluster.crash()
    cluster.add_for(producer, T0)
    assert cluster.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.markers.written[0][1].producer_epoch == LAST_EPOCH + 1
    assert cluster.producer() == (cluster.producer_ids.last, 1)


def test_nothing_begins_while_markers_are_being_written() -> None:
    cluster = Cluster()
    producer_id, epoch = cluster.producer()
    cluster.add_for((producer_id, epoch), T0)
    cluster.markers.hold = True
    after = ended(cluster.end((producer_id, epoch)))
    assert cluster.state() == "PrepareCommit"
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.init().error_code == concurrent
    assert cluster.init(producer_id=producer_id + 9, epoch=epoch).error_code == concurrent
    assert cluster.add_for(after, T1) == {T1: concurrent}
    assert cluster.add_for(after, T1, verify_only=True) == {T1: concurrent}
    # Whoever asks: as Apache Kafka 4.3.1, which looks at ids and epochs when the step before is done.
    for commit in (True, False):
        for asking in ((producer_id, epoch), after, (producer_id, epoch + 9), (producer_id + 9, epoch)):
            assert cluster.end(asking, commit, version=5).error_code == concurrent
    assert cluster.add_for((producer_id, epoch + 9), T1) == {T1: concurrent}
    assert cluster.add_for((producer_id, epoch + 9), T1, verify_only=True) == {T1: ErrorCode.PRODUCER_FENCED}
    cluster.markers.finish()
    assert cluster.state() == "CompleteCommit"
    assert cluster.add_for(after, T1) == {T1: 0}


def test_older_client_that_is_fenced_is_told_so_also_while_markers_are_being_written() -> None:
    """It would try CONCURRENT_TRANSACTIONS again for as long as a marker finds no leader."""
    cluster = Cluster()
    producer_id, epoch = producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.hold = True
    cluster.end(producer, version=V1)
    assert cluster.state() == "PrepareCommit"
    for commit in (True, False):
        assert cluster.end(producer, commit, version=V1).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        for other in (epoch - 1, epoch + 1):
            assert cluster.end((producer_id, other), commit, version=V1).error_code == ErrorCode.PRODUCER_FENCED
        strange = cluster.end((producer_id + 9, epoch), commit, version=V1)
        assert strange.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- markers ---------------------------------------------------------------------------------------------------------


def test_a_partition_that_cannot_take_its_marker_yet_is_asked_again_alone() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0, T1)
    cluster.markers.errors[T1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
    cluster.end(producer)
    assert cluster.state() == "PrepareCommit"
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == "PrepareCommit"
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == "CompleteCommit"
    assert [partition for partition, _ in cluster.markers.written] == [T0, T1]


def test_partitions_that_cannot_take_their_markers_for_long_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0, T1)
    for partition in (T0, T1):
        cluster.markers.errors[partition] = [ErrorCode.KAFKA_STORAGE_ERROR] * 100
    with caplog.at_level("INFO"):
        cluster.end(producer)
        cluster.world.advance(50 * RETRY_MS)
    assert cluster.state() == "PrepareCommit"
    assert len(caplog.records) == 1


def test_a_partition_that_was_deleted_holds_nothing_up() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.delete_topic("t")
    cluster.markers.errors[T0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100
    cluster.end(producer)
    assert cluster.state() == "CompleteCommit"


def test_a_partition_whose_producer_has_another_epoch_holds_nothing_up() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.errors[T0] = [ErrorCode.INVALID_PRODUCER_EPOCH] * 100
    cluster.end(producer)
    assert cluster.state() == "CompleteCommit"


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_has_come_to_be_mirrored_holds_nothing_up(commit: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.errors[T0] = [ErrorCode.KAFKA_STORAGE_ERROR, *[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 100]
    cluster.end(producer, commit=commit)
    cluster.mirror_topic("t")
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_a_broker_that_does_not_know_yet_that_a_topic_takes_writes_is_asked_again() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.errors[T0] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
    cluster.end(producer)
    assert cluster.state() == "PrepareCommit"
    cluster.world.advance(3 * RETRY_MS)
    assert cluster.state() == "CompleteCommit"
    assert cluster.markers.errors[T0] == []


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.TRANSACTION_ABORTABLE), (3, ErrorCode.INVALID_TXN_STATE)])
def test_a_transaction_in_a_topic_that_is_mirrored_by_now_can_only_be_aborted(version: int, error: ErrorCode) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0, T1)
    cluster.mirror_topic("t")
    assert cluster.end(producer, version=version).error_code == error
    assert cluster.state() == "Ongoing"
    assert cluster.end((producer[0], producer[1] + 7), version=version).error_code != error
    assert cluster.end(producer, commit=False, version=version).error_code == 0


def test_markers_wait_until_the_decision_is_committed() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.world.partitions.hold_commits = True
    assert cluster.end(producer) is None, "parked"
    assert cluster.markers.written == []
    cluster.world.partitions.commit(0)
    assert [partition for partition, _ in cluster.markers.written] == [T0]


def test_a_decision_that_is_committed_late_is_seen_through() -> None:
    cluster = Cluster(request_timeout_ms=1_000)
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.world.partitions.hold_commits = True
    cluster.end(producer)
    cluster.world.advance(1_000)
    assert cluster.markers.written == []
    cluster.world.partitions.hold_commits = False
    cluster.world.partitions.commit(0)
    cluster.world.advance(RETRY_MS)
    assert [partition for partition, _ in cluster.markers.written] == [T0]
    assert cluster.state() == "CompleteCommit"


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.hold = True
    cluster.end(producer)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.markers.finish()
    cluster.world.partitions.append_error = 0
    assert cluster.state() == "PrepareCommit"
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == "CompleteCommit"
    assert len(cluster.markers.written) == 1


def test_a_decision_that_cannot_be_written_was_never_made() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.end(producer).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.world.partitions.append_error = 0
    assert (cluster.state(), cluster.markers.written) == ("Ongoing", [])
    assert ended(cluster.end(producer)) == (producer[0], producer[1] + 1)


# --- what a crash leaves ---------------------------------------------------------------------------------------------


def test_every_state_is_found_again_after_a_crash() -> None:
    cluster = Cluster()
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    for state in states:
        producer = cluster.producer(state)
        if state == "Empty":
            continue
        cluster.add_for(producer, T0, OFFSETS, transactional_id=state)
        cluster.markers.hold = state.startswith("Prepare")
        if state != "Ongoing":
            cluster.end(producer, state.endswith("Commit"), transactional_id=state)
    before = {state: vars_of(cluster.describe(state)) for state in states}
    assert {state: found["transaction_state"] for state, found in before.items()} == {s: s for s in states}
    cluster.markers.hold = True
    cluster = cluster.crash()
    assert {state: vars_of(cluster.describe(state)) for state in states} == before


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_sent_again_after_a_crash(commit: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0, T1)
    cluster.markers.hold = True
    after = ended(cluster.end(producer, commit))
    cluster.markers.hold = False
    cluster = cluster.crash()
    assert {(partition, *marker) for partition, marker in cluster.markers.written} == {
        (partition, *after, COORDINATOR_EPOCH, commit, 2) for partition in (T0, T1)
    }
    assert cluster.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert cluster.add_for(after, T0) == {T0: 0}


def test_requests_wait_for_the_load() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster = cluster.crash(settled=False)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert cluster.init().error_code == loading
    assert cluster.add(producer, T0) == {T0: loading}
    assert cluster.add(producer, T0, verify_only=True) == {T0: loading}
    assert cluster.end(producer).error_code == loading
    assert cluster.describe().error_code == loading
    assert cluster.list().error_code == loading
    cluster.world.advance()
    assert cluster.producer() == (producer[0], producer[1] + 1)


def test_a_broker_that_does_not_coordinate_an_id_says_so() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.coordinator.on_leadership(set(), {0})
    elsewhere = ErrorCode.NOT_COORDINATOR
    assert cluster.init().error_code == elsewhere
    assert cluster.add(producer, T0) == {T0: elsewhere}
    assert cluster.end(producer).error_code == elsewhere
    assert cluster.describe().error_code == elsewhere
    assert cluster.listed() == set()


def test_a_lost_partition_sends_no_markers_any_more() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.errors[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster.end(producer)
    cluster.coordinator.on_leadership(set(), {0})
    cluster.world.advance(10 * RETRY_MS)
    assert cluster.markers.written == []
    cluster.coordinator.on_leadership({0}, set())
    cluster.world.advance()
    assert [partition for partition, _ in cluster.markers.written] == [T0]


def test_a_partition_that_is_led_on_in_a_new_leader_epoch_ends_its_transactions() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.errors[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster.end(producer)
    cluster.coordinator.on_leadership({0}, {0})
    cluster.world.advance()
    assert [partition for partition, _ in cluster.markers.written] == [T0]


def ended_with_markers_held() -> tuple[Cluster, tuple[int, int]]:
    """A client of the first protocol has ended a transaction, of which no marker is answered yet; and its producer."""
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, T0)
    cluster.markers.hold = True
    cluster.end(producer, version=V1)
    return cluster, producer


def test_a_marker_of_an_earlier_leader_epoch_completes_nothing() -> None:
    cluster, _producer = ended_with_markers_held()
    cluster.lead_on_in_a_new_epoch()
    assert cluster.markers.waiting == 2
    cluster.markers.finish_one(0)
    assert cluster.state() == "PrepareCommit", "the marker of the new leader epoch is on its way yet"
    cluster.markers.finish_one(0)
    assert cluster.state() == "CompleteCommit"
    assert [marker.coordinator_epoch for _, marker in cluster.markers.written] == [3, 4]


def test_a_marker_of_an_earlier_leader_epoch_does_not_complete_the_next_transaction() -> None:
    cluster, producer = ended_with_markers_held()
    cluster.lead_on_in_a_new_epoch()
    cluster.markers.finish_one(1)
    assert cluster.state() == "CompleteCommit"
    assert cluster.add(producer, T0) == {T0: 0}
    assert ended(cluster.end(producer, version=V1)) == producer
    cluster.markers.finish_one(0)
    assert cluster.state() == "PrepareCommit", "its own marker is on its way yet"
    cluster.markers.finish()
    assert cluster.state() == "CompleteCommit"


def test_a_completion_that_is_tried_again_late_does_not_complete_the_next_transaction() -> None:
    cluster, producer = ended_with_markers_held()
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.markers.finish()
    cluster.world.partitions.append_error = 0
    cluster.lead_on_in_a_new_epoch()
    cluster.markers.finish()
    assert cluster.state() == "CompleteCommit"
    cluster.world.advance(1)
    assert cluster.add(producer, T0) == {T0: 0}
    assert ended(cluster.end(producer, version=V1)) == producer
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == "PrepareCommit", "its own marker is on its way yet"
    cluster.markers.finish()
    assert cluster.state() == "CompleteCommit"


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    cluster = Cluster()
    producer = cluster.producer(timeout_ms=25_000)
    cluster.add_for(producer, T0)
    cluster.world.advance(20_000)
    assert cluster.state() == "Ongoing"
    cluster.world.advance(10_000)
    assert cluster.state() == "CompleteAbort"
    assert cluster.markers.written == [(T0, (producer[0], producer[1] + 1, COORDINATOR_EPOCH, False, 2))]
    assert cluster.end(producer).error_code == ErrorCode.INVALID_TXN_STATE
    assert cluster.add_for(producer, T0) == {T0: ErrorCode.PRODUCER_FENCED}


def test_a_timeout_in_the_first_protocol_fences_too() -> None:
    cluster = Cluster(transaction_version=1)
    producer = cluster.producer(timeout_ms=5_000)
    cluster.add(producer, T0)
    cluster.world.advance(10_000)
    assert cluster.state() == "CompleteAbort"
    assert cluster.end(producer, version=V1).error_code == ErrorCode.PRODUCER_FENCED


def test_a_timeout_is_found_after_a_crash() -> None:
    cluster = Cluster()
    producer = cluster.producer(timeout_ms=25_000)
    cluster.add_for(producer, T0)
    cluster.world.advance(20_000)
    cluster = cluster.crash()
    cluster.world.advance(10_000)
    assert cluster.state() == "CompleteAbort"


def test_a_timeout_can_use_up_the_epochs() -> None:
    cluster = Cluster()
    producer = raise_epoch_to(cluster, LAST_EPOCH)
    cluster = cluster.crash()
    cluster.add_for(producer, T0)
    cluster.world.advance(70_000)
    assert cluster.state() == "CompleteAbort"
    assert (cluster.describe().producer_id, cluster.describe().producer_epoch) == (cluster.producer_ids.last, 0)


def test_a_timeout_that_cannot_be_written_is_tried_again() -> None:
    cluster = Cluster()
    producer = cluster.producer(timeout_ms=5_000)
    cluster.add_for(producer, T0)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.world.advance(10_000)
    cluster.world.partitions.append_error = 0
    assert cluster.state() == "Ongoing"
    cluster.world.advance(10_000)
    assert cluster.state() == "CompleteAbort"


def test_many_transactions_time_out_over_several_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.coordinators.transaction.transaction_coordinator_shard.ENDS_PER_OPERATION", 2)
    cluster = Cluster()
    for name in "abcde":
        cluster.add_for(cluster.producer(name, timeout_ms=5_000), T0, transactional_id=name)
    cluster.world.advance(9_999)
    cluster.world.clock.pass_ms(1)
    aborted = []
    for _ in range(3):
        cluster.world.turn()
        aborted.append(len(cluster.listed(states=["CompleteAbort"])))
    assert aborted == [2, 4, 5]


def test_transactions_that_time_out_together_are_aborted_in_the_order_of_their_beginnings() -> None:
    cluster = Cluster()
    producers = {name: cluster.producer(name, timeout_ms=5_000) for name in "hgfedcba"}
    for name, producer in producers.items():
        cluster.add_for(producer, T0, transactional_id=name)
    cluster.world.advance(10_000)
    assert [marker.producer_id for _, marker in cluster.markers.written] == [id_ for id_, _ in producers.values()]


def test_many_prepared_transactions_are_seen_through_over_several_turns_after_a_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pybroker.coordinators.transaction.transaction_coordinator_shard.ENDS_PER_OPERATION", 2)
    cluster = Cluster()
    cluster.markers.hold = True
    for name in "abcde":
        producer = cluster.producer(name)
        cluster.add_for(producer, T0, transactional_id=name)
        cluster.end(producer, transactional_id=name)
    assert cluster.listed(states=["PrepareCommit"]) == set("abcde")
    cluster.markers.hold = False
    cluster = cluster.crash(settled=False)
    completed = [0]
    while completed[-1] < 5:
        cluster.world.turn()
        transactions = cluster.coordinator._runtime._contexts[0].state.transactions.values()
        completed.append(sum(txn.state is TransactionState.COMPLETE_COMMIT for txn in transactions))
        assert len(completed) < 50
    assert max(after - before for before, after in pairwise(completed)) == 2


def test_many_partitions_are_listed_over_several_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(partitions=3)
    for number in range(9):
        cluster.producer(str(number))
    assert cluster.listed() == set("012345678")
    monkeypatch.setattr("pybroker.coordinators.runtime.LISTING_SLICE_MS", 0)
    reply = Reply()
    cluster.coordinator.list_transactions(EVERYTHING, reply.done)
    turns = 0
    while reply.parked:
        turns += 1
        cluster.world.turn()
    assert turns == 2
    assert {state.transactional_id for state in reply.response.transaction_states} == set("012345678")


def test_without_open_transactions_no_timer_looks_for_them() -> None:
    cluster = Cluster()
    before = len(cluster.world.timers.pending)
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.end(producer)
    cluster.world.advance(10_000)
    assert len(cluster.world.timers.pending) == before


def test_an_id_that_nobody_used_for_long_is_forgotten() -> None:
    cluster = Cluster(transactional_id_expiration_ms=7_200_000)
    cluster.producer("empty")
    done = cluster.producer("done")
    cluster.add_for(done, T0, transactional_id="done")
    cluster.end(done, transactional_id="done")
    cluster.world.advance(3_600_000)
    cluster.producer("young")
    cluster.world.advance(3_600_000)
    assert cluster.listed() == {"young"}
    assert {value for _, value in cluster.world.records()[-2:]} == {None}
    assert cluster.crash(transactional_id_expiration_ms=7_200_000).listed() == {"young"}


def test_an_id_with_a_transaction_is_not_forgotten() -> None:
    cluster = Cluster(transactional_id_expiration_ms=1)
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.hold = True
    cluster.end(producer)
    cluster.world.advance(7_200_000)
    assert cluster.state() == "PrepareCommit"


def test_many_ids_are_forgotten_some_at_a_time() -> None:
    cluster = Cluster(transactional_id_expiration_ms=1)
    for number in range(2_500):
        cluster.producer(str(number))
    appends = cluster.world.partitions.appends
    cluster.world.advance(3_600_000)
    assert cluster.listed() == set()
    assert cluster.world.partitions.appends - appends == 3


# --- asking ----------------------------------------------------------------------------------------------------------


def test_a_transaction_is_described_with_its_partitions() -> None:
    cluster = Cluster()
    producer = cluster.producer(timeout_ms=12_345)
    began_ms = cluster.world.clock.now_ms()
    cluster.add_for(producer, T1, T0, OFFSETS)
    cluster.world.advance(500)
    described = cluster.describe()
    assert described.error_code == 0
    assert (described.producer_id, described.producer_epoch) == producer
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (12_345, began_ms)
    assert {topic.topic: topic.partitions for topic in described.topics} == {"t": [0, 1], "__consumer_offsets": [7]}
    assert cluster.describe("unknown").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_partitions_that_cannot_be_loaded_or_are_lost_meanwhile_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(partitions=3)
    ids: dict[int, str] = {}
    for number in range(9):
        cluster.producer(str(number))
        ids.setdefault(cluster.coordinator.partition_of(str(number)), str(number))
    cluster.world.partitions.read_errors[0] = ErrorCode.CORRUPT_MESSAGE
    again = cluster.crash()
    again.world.advance()
    assert again.init(ids[0]).error_code == ErrorCode.NOT_COORDINATOR
    assert ids[0] not in again.listed()
    assert {ids[1], ids[2]} < again.listed()
    monkeypatch.setattr("pybroker.coordinators.runtime.LISTING_SLICE_MS", 0)
    reply = Reply()
    again.coordinator.list_transactions(EVERYTHING, reply.done)
    again.coordinator.on_leadership(set(), {2})
    again.world.advance()
    assert reply.error == 0
    listed = {state.transactional_id for state in reply.response.transaction_states}
    assert ids[1] in listed
    assert ids[2] not in listed


def test_transactions_are_listed_by_state_producer_duration_and_pattern() -> None:
    cluster = Cluster(partitions=3)
    producers = {name: cluster.producer(name) for name in ("app-1", "app-2", "other")}
    cluster.add_for(producers["app-1"], T0, transactional_id="app-1")
    cluster.world.advance(1_000)
    cluster.add_for(producers["other"], T0, transactional_id="other")
    assert cluster.listed() == {"app-1", "app-2", "other"}
    assert cluster.listed(states=["Ongoing"]) == {"app-1", "other"}
    assert cluster.listed(states=["Ongoing", "Empty"]) == {"app-1", "app-2", "other"}
    assert cluster.listed(producer_ids=[producers["app-2"][0], 5]) == {"app-2"}
    assert cluster.listed(states=["Ongoing"], duration_ms=999) == {"app-1"}
    assert cluster.listed(states=["Ongoing"], duration_ms=1_000) == set()
    assert cluster.listed(pattern="app-.*") == {"app-1", "app-2"}
    assert cluster.listed(pattern="app") == set(), "the whole id must match"
    assert cluster.listed(pattern="") == {"app-1", "app-2", "other"}


def test_each_match_of_a_listing_is_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for number in range(9):
        cluster.producer(f"app-{number}")
    matched = 0

    def is_match(_regex: CompiledRegex, _name: str) -> bool:
        nonlocal matched
        matched += 1
        return True

    monkeypatch.setattr(CompiledRegex, "is_match", is_match)
    steps = cluster.listing_steps(pattern="app-.*")
    listed = next(steps)
    assert listed is not None
    assert matched == 0
    steps.send(listed.response)
    for match in range(2, 10):
        next(steps)
        assert matched == match


def test_names_of_unknown_states_are_told_and_find_nothing() -> None:
    cluster = Cluster()
    cluster.producer()
    answer = cluster.list(states=["Nonsense", "ongoing", "Nonsense"])
    assert answer.unknown_state_filters == ["Nonsense", "ongoing"]
    assert answer.transaction_states == []
    assert cluster.list(states=["Dead", "PrepareEpochFence"]).unknown_state_filters == []


@pytest.mark.parametrize("partitions", [0, 1], ids=["before there is a partition", "with transactions"])
def test_a_bad_pattern_is_refused(partitions: int) -> None:
    cluster = Cluster(partitions=partitions)
    if partitions:
        cluster.producer()
    answer = cluster.list(pattern="a(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == []


def vars_of(message: Any) -> dict[str, Any]:
    names = ("error_code", "transaction_state", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id")
    found = {name: getattr(message, name) for name in (*names, "producer_epoch")}
    found["topics"] = [(topic.topic, topic.partitions) for topic in message.topics]
    return found


def test_an_end_whose_last_record_finds_no_room_is_completed_when_there_is_room_again() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add_for(producer, T0)
    cluster.markers.hold = True
    cluster.end(producer)
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.markers.finish()
    cluster.world.advance(3 * RETRY_MS)
    assert cluster.state() == "PrepareCommit"
    cluster.world.partitions.append_error = 0
    cluster.world.advance(RETRY_MS)
    assert cluster.state() == "CompleteCommit"
