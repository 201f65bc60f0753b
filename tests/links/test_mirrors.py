"""What leaders of mirrored partitions do, in virtual time: the same bytes at the same offsets, through every change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.cluster.image.link_states import (
    DIVERGED,
    ENDED,
    FAILED,
    MIRRORING,
    PAUSE,
    PROMOTE,
    PROMOTED,
    PROMOTING,
    RESUME,
    STOP,
    STOPPED,
)
from pybroker.config.resources import BROKER
from pybroker.replication.mirrored_partition import HISTORY_PATIENCE_MS
from pybroker.storage.results import TimestampOffset, TransactionMarker
from pybroker_protocol.messages.list_offsets import ListOffsetsRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pybroker_protocol.records import TRANSACTIONAL_FLAG
from tests.links.virtual_link import LinkedClusters, stored_of
from tests.replication.cluster import NAME
from tests.replication.test_divergence import only
from tests.storage.batches import batch, end_marker

# What was under way to a broker that is gone is given up by then: nothing breaks a connection in this world.
FETCH_TIMEOUT_MS = 40_000

PRODUCER_ID = 7


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedClusters]:
    clusters = LinkedClusters(tmp_path)
    yield clusters
    clusters.close()


def produce(linked: LinkedClusters, count: int = 3, *, acks: int = -1) -> None:
    source = linked.source
    for number in range(count):
        source.brokers[source.state().leader].produce(acks, value=b"%d" % number)


def assert_same(linked: LinkedClusters) -> None:
    """All that the source has is on each broker here, and committed."""
    original = linked.stored(linked.source)
    assert original
    for broker in linked.here.brokers.values():
        if broker.alive:
            assert stored_of(broker) == original
            start, high_watermark, end = broker.offsets()
            assert high_watermark == end
            assert start == linked.source.brokers[linked.source.state().leader].offsets()[0]


def test_what_the_source_has_comes_to_the_leader_and_from_there_to_its_followers(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    assert_same(linked)
    produce(linked)
    linked.settle()
    assert_same(linked)


def test_batches_keep_the_leader_epochs_of_the_source(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.source.elect(2)
    linked.source.tell()
    produce(linked)
    linked.settle()
    assert_same(linked)
    entries = linked.here.brokers[11].log().leader_epochs.entries
    assert entries == [(0, 0), (1, 3)]


def test_nothing_above_the_high_watermark_of_the_source_comes(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.source.isolate(2)
    produce(linked, acks=1)
    linked.world.advance(500)
    assert len(linked.stored(linked.source)) == 6
    assert len(linked.stored(linked.here)) == 3


def test_a_leader_alone_that_syncs_before_it_shows_anything_shows_its_last_records_too(tmp_path: Path) -> None:
    linked = LinkedClusters(tmp_path, here=(11,), storage_settings={"pybroker_fsync_before_ack": True})
    try:
        for _ in range(3):
            produce(linked)
            linked.settle()
            assert_same(linked)
        linked.become(PROMOTING)
        linked.settle()
        assert linked.state == PROMOTED
    finally:
        linked.close()


@pytest.mark.parametrize("leader", [11, 12])
def test_leaders_that_change_here_go_on_where_the_last_one_was(linked: LinkedClusters, leader: int) -> None:
    produce(linked)
    linked.settle()
    linked.here.elect(leader)
    linked.here.tell()
    produce(linked)
    linked.settle()
    assert_same(linked)


def test_a_leader_of_the_source_that_changes_costs_no_word_here(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    epoch = linked.here.state().leader_epoch
    for leader in (2, 1, 2):
        linked.source.elect(leader)
        linked.source.tell()
        produce(linked)
        linked.settle()
    assert_same(linked)
    assert (linked.here.state().leader_epoch, linked.reports) == (epoch, [])


def test_nothing_is_fetched_while_the_source_has_a_higher_leader_epoch(linked: LinkedClusters) -> None:
    epoch = linked.here.state().leader_epoch + 1
    linked.source.set(leader_epoch=epoch)
    linked.source.tell()
    produce(linked)
    linked.settle()
    assert not linked.stored(linked.here)
    linked.here.set(leader_epoch=epoch)
    linked.here.tell()
    linked.settle()
    assert_same(linked)


def mirror_what_one_leader_has_alone(linked: LinkedClusters) -> None:
    """Three records that both brokers of the source have, and three of its broker 1; the mirror has all."""
    produce(linked)
    linked.settle()
    only(linked.source, 1)
    linked.source.set(isr=(1,))
    linked.source.tell((1,))
    produce(linked)
    linked.settle()


def test_a_cut_at_the_source_is_followed_in_another_leader_epoch_alone(linked: LinkedClusters) -> None:
    mirror_what_one_leader_has_alone(linked)
    assert len(linked.stored(linked.here)) == 6
    linked.hears_reports = False
    only(linked.source, 2)
    linked.source.elect(2, isr=(2,))
    linked.source.tell((2,))
    produce(linked, 1)
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert len(linked.stored(linked.here)) == 6
    epoch = linked.here.state().leader_epoch
    linked.hears_reports = True
    linked.settle()
    assert [report.kind for report in linked.reports] == [DIVERGED]
    assert linked.here.state().leader_epoch == epoch + 1
    assert len(linked.stored(linked.here)) == 4
    assert_same(linked)


def test_a_log_that_begins_late_begins_here_where_it_does_there(linked: LinkedClusters) -> None:
    linked.is_away = True
    produce(linked)
    linked.settle()
    leader = linked.source.brokers[1]
    assert leader.partition().delete_records(2) == 0
    linked.is_away = False
    linked.settle()
    assert_same(linked)
    produce(linked)
    linked.settle()
    assert leader.partition().delete_records(4) == 0
    linked.settle()
    produce(linked)
    linked.settle()
    assert_same(linked)


def test_a_source_that_was_away_is_followed_again(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.is_away = True
    produce(linked)
    linked.settle()
    linked.is_away = False
    linked.settle()
    assert_same(linked)


@pytest.mark.parametrize("state", ["paused", "stopped", "promoted", "failed-over"])
def test_nothing_comes_in_a_state_in_which_nothing_is_fetched(linked: LinkedClusters, state: str) -> None:
    produce(linked)
    linked.settle()
    linked.become(state)
    produce(linked)
    linked.settle()
    assert len(linked.stored(linked.here)) == 3


def test_a_topic_is_promoted_once_all_is_here_and_committed(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.here.isolate(12)  # a follower that is in sync, and does not hear: nothing is committed without it
    produce(linked)
    linked.world.advance(100)  # until the source's consumers see it
    linked.become(PROMOTING)
    linked.world.advance(500)
    assert linked.state == PROMOTING
    linked.here.heal()
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTED
    assert [report.kind for report in linked.reports] == [ENDED]
    assert_same(linked)


def test_a_topic_at_rest_is_promoted_at_once(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.become(PROMOTING)
    linked.world.advance(200)
    assert linked.state == PROMOTED


def test_a_promotion_asks_for_the_ends_and_the_partitions_alone(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    asked = len(linked.questions)
    linked.become(PROMOTING)
    linked.world.advance(200)
    assert linked.state == PROMOTED
    asked_for = [type(request) for request in linked.questions[asked:]]
    # Each of the two brokers says how many partitions there are.
    assert asked_for == [ListOffsetsRequest, OffsetForLeaderEpochRequest, MetadataRequest, MetadataRequest]


def test_an_end_of_a_promotion_that_was_taken_back_counts_for_no_other(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.hears_reports = False
    linked.become(PROMOTING)
    linked.world.advance(200)
    linked.become(MIRRORING)
    linked.is_away = True
    produce(linked)
    linked.settle()
    linked.become(PROMOTING)
    linked.hears_reports = True
    linked.settle()
    assert linked.state == PROMOTING
    linked.is_away = False
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTED
    assert_same(linked)


@pytest.mark.parametrize("count", [0, 1, 3], ids=["fewer-records", "some-others", "as-many-others"])
def test_a_promotion_ends_where_a_source_that_was_cut_does(linked: LinkedClusters, count: int) -> None:
    """The mirror has what a leader of the source took away with it, and its offsets hide what others wrote."""
    mirror_what_one_leader_has_alone(linked)
    assert len(linked.stored(linked.here)) == 6
    linked.is_away = True
    linked.world.advance(FETCH_TIMEOUT_MS)
    only(linked.source, 2)
    linked.source.elect(2, isr=(2,))
    linked.source.tell((2,))
    produce(linked, count)
    linked.become(PROMOTING)
    linked.is_away = False
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTED
    assert_same(linked)


@pytest.mark.parametrize("count", [0, 1, 8], ids=["fewer-records", "some-others", "more-others"])
def test_a_source_that_came_back_from_a_backup_stops_the_partition_and_nothing_is_cut(
    linked: LinkedClusters, count: int
) -> None:
    """Its leader epochs went back with it: other records stand at the same offsets, and under the same epochs."""
    produce(linked)
    linked.settle()
    for leader in (2, 1):
        linked.source.elect(leader)
        linked.source.tell()
        produce(linked, 2)
        linked.settle()
    here = linked.stored(linked.here)
    assert len(here) == 7
    linked.is_away = True
    linked.world.advance(FETCH_TIMEOUT_MS)
    for broker in list(linked.source.brokers.values()):
        broker.log().truncate_to(3)
        broker.stop()
    linked.source.set(leader=1, leader_epoch=1, isr=(1, 2))
    for broker_id in (1, 2):
        linked.source.start(broker_id, tell=False)
    linked.source.tell()
    produce(linked, count)
    linked.world.advance(2_000)
    asked = len(linked.questions)
    linked.is_away = False
    linked.world.advance(5_000)
    (progress,) = linked.mirrors[11].progress("west")
    assert progress["problem"] == "the source does not know the last leader epoch here"
    linked.world.advance(HISTORY_PATIENCE_MS)
    assert len(linked.questions) - asked < 200
    assert [report.kind for report in linked.reports] == [FAILED]
    assert "another history" in linked.reports[0].reason
    assert linked.state == STOPPED
    assert linked.stored(linked.here) == here


def test_a_leader_that_was_deposed_and_does_not_know_the_last_epoch_stops_nothing(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.source.elect(2)
    linked.source.tell()
    produce(linked)
    linked.settle()
    epoch = linked.source.state().leader_epoch
    linked.source.set(leader=1, leader_epoch=epoch - 1)  # as a broker says that has not heard of the last election
    linked.source.brokers[1].log().truncate_to(3)
    linked.source.tell()
    linked.world.advance(HISTORY_PATIENCE_MS // 2)
    linked.source.set(leader=2, leader_epoch=epoch + 1, isr=(2,))
    linked.source.tell((2,))  # the other one takes itself for the leader on and on
    produce(linked)
    linked.world.advance(2 * HISTORY_PATIENCE_MS)
    assert linked.state == MIRRORING
    assert_same(linked)


def test_an_answer_that_the_end_of_a_transaction_came_into_begins_nothing_anew(linked: LinkedClusters) -> None:
    """The source reads its high watermark, then its last stable offset, and a marker is committed in between."""
    begin_transaction(linked)
    here = linked.stored(linked.here)
    answer_that_it_has_ended(linked)
    assert linked.stored(linked.here) == here
    linked.settle()
    assert linked.stored(linked.here) == here
    end_transaction(linked)
    linked.settle()
    assert_same(linked)
    assert not linked.here.brokers[11].log().producers.ongoing_txns


def test_a_log_with_a_transaction_open_that_two_answers_say_has_ended_is_fetched_anew(linked: LinkedClusters) -> None:
    begin_transaction(linked)
    answer_that_it_has_ended(linked)
    answer_that_it_has_ended(linked)
    assert linked.here.brokers[11].offsets() == (0, 0, 0)
    linked.settle()
    assert_same(linked)


def test_a_source_is_asked_again_whether_it_has_nothing_left_of_the_end_of_a_transaction(
    linked: LinkedClusters, caplog: pytest.LogCaptureFixture
) -> None:
    begin_transaction(linked)
    producers = linked.source.brokers[1].log().producers  # which forget what the cleaner took all of
    producers.ongoing_txns.clear()
    producers.producers.clear()
    produce(linked, 1)
    linked.world.advance(1_000)
    assert "of which the source has nothing left" in caplog.text


def answer_that_it_has_ended(linked: LinkedClusters) -> None:
    """The leader here is answered that the source has no transaction open, and nothing more than is here."""
    (mirrored,) = linked.mirrors[11]._mirrored[NAME].values()
    fetcher = linked.mirrors[11]._links["west"]._fetchers[mirrored.source_leader]
    end = mirrored.log.log_end_offset
    data = SimpleNamespace(records=b"", high_watermark=end, last_stable_offset=end + 1, log_start_offset=0)
    fetcher._append(mirrored, cast(Any, data))


def begin_transaction(linked: LinkedClusters) -> None:
    """Three records and one of a transaction that is open; the mirror has all."""
    produce(linked)
    source = linked.source.brokers[1]
    verifications = source.log().producers.verifications
    verifications.succeed(PRODUCER_ID, verifications.begin(PRODUCER_ID, 0, 0, False, 0), 0)
    source.produce(producer_id=PRODUCER_ID, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_FLAG)
    linked.settle()
    assert linked.here.brokers[11].log().producers.ongoing_txns


def end_transaction(linked: LinkedClusters) -> None:
    marker = TransactionMarker(PRODUCER_ID, 0, 0, True, 0)
    records = bytes(end_marker(PRODUCER_ID, 0, commit=True))
    linked.source.brokers[1].partition().end_transaction(records, marker, lambda _: None)


def test_a_source_that_ends_before_the_end_here_is_said_so(linked: LinkedClusters) -> None:
    mirror_what_one_leader_has_alone(linked)
    linked.hears_reports = False
    only(linked.source, 2)
    linked.source.elect(2, isr=(2,))
    linked.source.tell((2,))
    linked.become(PROMOTING)
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTING
    (progress,) = linked.mirrors[11].progress("west")
    assert progress["problem"] == "the source ends at offset 3, 3 before the end here"


def test_a_promotion_that_is_taken_back_and_wished_at_once_ends(
    linked: LinkedClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(linked)
    linked.settle()
    with monkeypatch.context() as taken_back:
        # The controller has taken it back when the report of the end comes, and the leader does not know that yet.
        taken_back.setattr("tests.links.virtual_link.take_reports", lambda *_: None)
        linked.become(PROMOTING)
        linked.world.advance(200)
    assert [report.kind for report in linked.reports] == [ENDED]
    linked.move(RESUME, PROMOTE)
    linked.settle()
    assert linked.state == PROMOTED


def test_an_end_of_before_counts_not_for_a_promotion_that_is_wished_at_once(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.hears_reports = False
    linked.become(PROMOTING)
    linked.world.advance(200)
    linked.is_away = True
    produce(linked)
    linked.move(PAUSE, PROMOTE)
    linked.hears_reports = True
    linked.settle()
    assert linked.state == PROMOTING
    linked.is_away = False
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTED
    assert_same(linked)


def test_a_topic_that_has_stopped_goes_on_though_no_leader_has_heard_of_it(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    (mirrored,) = linked.mirrors[11]._mirrored[NAME].values()
    link = linked.mirrors[11]._links["west"]
    link._fetchers[mirrored.source_leader]._wait_for(mirrored)  # as a failure does before the leader reports it
    linked.move(STOP, PAUSE, RESUME)
    produce(linked)
    linked.settle()
    assert_same(linked)


def test_what_was_on_its_way_as_a_topic_is_promoted_comes_too_late(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    produce(linked)
    linked.world.advance(1)
    linked.become("failed-over")
    linked.settle()
    assert len(linked.stored(linked.here)) == 3


def test_a_link_brings_no_more_bytes_per_second_than_it_may(tmp_path: Path) -> None:
    linked = LinkedClusters(tmp_path, throttled_rate="1000")
    try:
        produce(linked, 100)
        original = linked.stored(linked.source)
        size = sum(len(batch) for batch in original.values())
        before_ms = linked.world.clock.monotonic_ms()
        while len(linked.stored(linked.here)) < len(original):
            linked.world.advance(100)
            elapsed_ms = linked.world.clock.monotonic_ms() - before_ms
            assert elapsed_ms < 2 * size
            arrived = sum(len(batch) for batch in linked.stored(linked.here).values())
            assert arrived <= 2_200 + elapsed_ms
        assert elapsed_ms > size - 2_200
        assert linked.stored(linked.here) == original
    finally:
        linked.close()


def test_a_link_whose_keys_lack_for_a_moment_says_so_and_is_tried_again(tmp_path: Path) -> None:
    linked = LinkedClusters(tmp_path)
    try:
        linked.refusal = "ssl.truststore.location: no such file"
        produce(linked)
        linked.settle()
        assert problems(linked) == [linked.refusal]
        linked.refusal = None
        linked.settle()
        assert_same(linked)
        assert problems(linked) == []
    finally:
        linked.close()


def test_a_source_that_one_broker_does_not_reach_is_said_so_by_that_broker(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.is_away = True
    linked.world.advance(FETCH_TIMEOUT_MS)
    (problem,) = problems(linked)
    assert problem.startswith("its source does not answer: no connection to it can be made")
    linked.is_away = False
    linked.settle()
    assert problems(linked) == []


def test_a_broker_of_the_source_that_does_not_answer_is_named(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.source.brokers[1].kill()  # it leads still, as the source's other broker says
    linked.world.advance(2 * FETCH_TIMEOUT_MS)
    (problem,) = problems(linked)
    assert problem.startswith("broker 1 of the source does not answer")


def problems(linked: LinkedClusters) -> list[str]:
    """What the leader here says is the matter with its partitions."""
    return [str(each["problem"]) for each in linked.mirrors[11].progress("west") if "problem" in each]


def test_nothing_is_kept_of_a_link_that_is_deleted(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    mirrors, broker = linked.mirrors[11], linked.here.brokers[11]
    (link,) = mirrors._links.values()
    cast(dict[str, str], broker.config.static).clear()
    linked.here._change(configs={**linked.here.image.configs, (BROKER, ""): {}})
    linked.here.tell()
    assert (link._config, link._source) == (None, None)
    asked = len(linked.questions)
    linked.settle()
    assert len(linked.questions) == asked
    linked.become(STOPPED)  # as the controller decides
    assert mirrors._links == {}


# --- what records may be like -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_records_in_an_old_format_stop_the_partition_with_the_reason(linked: LinkedClusters, magic: int) -> None:
    produce(linked)
    linked.settle()
    (mirrored,) = linked.mirrors[11]._mirrored[NAME].values()
    fetcher = linked.mirrors[11]._links["west"]._fetchers[mirrored.source_leader]
    old = bytes(batch([b"old"], base_offset=3, magic=magic))
    data = SimpleNamespace(records=old, high_watermark=4, last_stable_offset=4, log_start_offset=0)
    fetcher._append(mirrored, cast(Any, data))
    linked.settle()
    assert linked.state == STOPPED
    assert [report.kind for report in linked.reports] == [FAILED]
    assert "a format older than" in linked.reports[0].reason
    assert len(linked.stored(linked.here)) == 3


@pytest.mark.parametrize("is_known_here", [False, True])
def test_times_that_the_source_has_set_stay(linked: LinkedClusters, is_known_here: bool) -> None:
    for cluster in (linked.source, linked.here)[: 1 + is_known_here]:
        cluster.configure_topic(message_timestamp_type="LogAppendTime")
        cluster.tell()
    produce(linked)
    linked.world.advance(5_000)
    assert_same(linked)
    there, here = (
        broker.log().offset_of_max_timestamp() for broker in (linked.source.brokers[1], linked.here.brokers[11])
    )
    assert isinstance(there, TimestampOffset)
    assert isinstance(here, TimestampOffset)
    assert (here.timestamp, here.offset) == (there.timestamp, there.offset)
    assert there.timestamp > linked.world.clock.now_ms() - 60_000


def test_a_batch_comes_that_is_longer_than_what_brokers_here_take_from_clients(linked: LinkedClusters) -> None:
    linked.source.configure_topic(max_message_bytes="4000000")
    linked.source.tell()
    results = linked.source.brokers[1].produce(value=bytes(2_000_000))
    linked.settle()
    assert [result.error_code for result in results] == [0]
    produce(linked)
    linked.settle()
    assert_same(linked)
