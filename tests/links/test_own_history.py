"""A topic that takes writes again: what producers of its source have left says nothing of this cluster's own.

Both clusters may have given the same producer id, as long as one of them had no link.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.image.link_states import CAUGHT_UP, FAIL_OVER, PROMOTE
from pybroker.storage.results import DUPLICATE_SEQUENCE_NUMBER, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER
from pybroker.storage.rules.producer_state import MARKED_PRODUCER_IDS
from pybroker_protocol.records import TRANSACTIONAL_FLAG
from tests.links.test_mirrors import FETCH_TIMEOUT_MS
from tests.links.virtual_link import LinkedClusters
from tests.replication.cluster import Broker

ID = 7
OF_THE_SOURCE = 3  # batches


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedClusters]:
    clusters = LinkedClusters(tmp_path)
    for sequence in range(OF_THE_SOURCE):
        result = send(clusters, clusters.source.brokers[1], sequence, value=b"theirs")
        assert result == (NONE, sequence)
    clusters.settle()
    assert len(clusters.stored(clusters.here)) == OF_THE_SOURCE
    yield clusters
    clusters.close()


def send(
    linked: LinkedClusters, broker: Broker, sequence: int, *, producer_id: int = ID, value: bytes = b"ours"
) -> tuple[int, int]:
    """Write a batch of one record: the error code and the offset that its producer is answered."""
    results = broker.produce(producer_id=producer_id, producer_epoch=0, sequence=sequence, value=value)
    linked.settle()
    (result,) = results
    return result.error_code, result.base_offset


def take_writes(linked: LinkedClusters, *inputs: str) -> Broker:
    linked.move(*(inputs or (PROMOTE, CAUGHT_UP)))
    linked.settle()
    return linked.here.brokers[linked.here.state().leader]


@pytest.mark.parametrize("inputs", [(PROMOTE, CAUGHT_UP), (FAIL_OVER,)], ids=["promoted", "failed-over"])
def test_what_is_acknowledged_is_there_though_the_sources_producer_had_the_same_id(
    linked: LinkedClusters, inputs: tuple[str, ...]
) -> None:
    leader = take_writes(linked, *inputs)
    answers = [send(linked, leader, sequence) for sequence in range(4)]
    assert answers == [(NONE, OF_THE_SOURCE + sequence) for sequence in range(4)]
    assert [b"ours" in batch for _, _, batch in leader.contents()] == [False] * OF_THE_SOURCE + [True] * 4


def test_a_batch_is_not_taken_for_one_of_the_source_in_the_place_of_a_lost_one(linked: LinkedClusters) -> None:
    leader = take_writes(linked)
    assert send(linked, leader, 0) == (NONE, OF_THE_SOURCE)
    error_code, _ = send(linked, leader, 2)  # its sequence 1 is missing
    assert error_code == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_is_recognized_by_a_follower_that_leads_now(linked: LinkedClusters) -> None:
    leader = take_writes(linked)
    for sequence in range(2):
        send(linked, leader, sequence)
    linked.here.elect(12)
    linked.here.tell()
    linked.settle()
    leader = linked.here.brokers[12]
    assert send(linked, leader, 0) == (NONE, OF_THE_SOURCE)
    assert send(linked, leader, 1) == (NONE, OF_THE_SOURCE + 1)
    assert send(linked, leader, 2) == (NONE, OF_THE_SOURCE + 2)


def test_a_log_that_was_shut_and_opened_knows_its_own_producers_alone(linked: LinkedClusters) -> None:
    leader = take_writes(linked)
    send(linked, leader, 0)
    partition_log = leader.partition().partition_log
    partition_log.shut()
    assert partition_log.opened is None
    assert send(linked, leader, 0) == (NONE, OF_THE_SOURCE)
    assert send(linked, leader, 2)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(linked, leader, 1) == (NONE, OF_THE_SOURCE + 1)


def test_a_restarted_broker_knows_its_own_producers_alone(linked: LinkedClusters) -> None:
    leader = take_writes(linked)
    send(linked, leader, 0)
    linked.mirrors[11].close()
    leader.stop()
    leader = linked.here.start(11)
    linked.mirrors[11] = linked.mirror_on(leader)
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert send(linked, leader, 2)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(linked, leader, 1) == (NONE, OF_THE_SOURCE + 1)


def test_a_producer_whose_id_has_a_clusters_mark_is_known_on_both_sides(tmp_path: Path) -> None:
    linked = LinkedClusters(tmp_path)
    try:
        marked = MARKED_PRODUCER_IDS + ID
        for sequence in range(6):
            send(linked, linked.source.brokers[1], sequence, producer_id=marked)
        leader = take_writes(linked)
        assert send(linked, leader, 5, producer_id=marked) == (NONE, 5)
        assert send(linked, leader, 0, producer_id=marked)[0] == DUPLICATE_SEQUENCE_NUMBER
    finally:
        linked.close()


def test_an_open_transaction_of_the_source_is_ended_before_a_producer_of_the_same_id_writes(
    linked: LinkedClusters,
) -> None:
    source = linked.source.brokers[1]
    open_id = ID + 1
    verifications = source.log().producers.verifications
    verifications.succeed(open_id, verifications.begin(open_id, 0, 0, False, 0), 0)
    source.produce(producer_id=open_id, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_FLAG)
    linked.settle()
    leader = linked.here.brokers[11]
    assert leader.log().producers.ongoing_txns
    linked.move(FAIL_OVER)
    # In the same turn of the loop, before anything else may hear of it:
    results = leader.produce(producer_id=open_id, producer_epoch=0, sequence=0)
    linked.settle()
    assert [(result.error_code, result.base_offset) for result in results] == [(NONE, OF_THE_SOURCE + 2)]
    assert not leader.log().producers.ongoing_txns
