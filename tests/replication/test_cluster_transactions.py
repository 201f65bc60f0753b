"""Transactions whose coordinator and partitions are on several brokers: who is asked, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import TRANSACTIONS
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.peers import CONTROL, PeerDone, PeerError, PeerFailure
from pybroker.replication.cluster_markers import ClusterMarkers
from pybroker.replication.cluster_transactions import ClusterTransactions
from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from pybroker_protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE, OTHER = 1, 2
MARKER = TransactionMarker(7, 3, 5, True, 2)
DISCONNECTED = PeerError(PeerFailure.DISCONNECTED, may_be_done=True)


def metadata(topic: str = "t") -> MetadataCache:
    """A topic whose partitions 0 and 1 are led here, 2 and 3 by the other broker, 4 by nobody."""
    states = tuple(PartitionImage((HERE, OTHER), (HERE, OTHER), leader) for leader in (HERE, HERE, OTHER, OTHER, -1))
    image = TopicImage(topic, bytes(15) + b"\x07", states)
    return MetadataCache(ClusterImage(epoch=1, topics_by_name={topic: image}, topics_by_id={image.topic_id: image}))


class FakePeers:
    """Keeps what is asked until the test answers."""

    def __init__(self) -> None:
        self.on_broken: Callable[[int], None] = lambda broker_id: None
        self.asked: list[tuple[int, Any, PeerDone]] = []

    def ask(
        self, broker_id: int, request: Any, version: int, done: PeerDone, *, timeout_ms: int, channel: str = CONTROL
    ) -> None:
        self.asked.append((broker_id, request, done))

    def forward(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no client's request is forwarded")

    def close(self) -> None:
        pass


class Markers:
    """What is written here: each partition answers with ``code``."""

    def __init__(self) -> None:
        self.written: list[TopicPartition] = []

    def write(self, marker: TransactionMarker, partitions: Any, done: Any) -> None:
        self.written += partitions
        done(dict.fromkeys(partitions, 0))


def wrote(codes: dict[int, int]) -> WriteTxnMarkersResponse:
    results = [
        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index, code in codes.items()
    ]
    topic = WritableTxnMarkerTopicResult(name="t", partitions=results)
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


def test_each_partition_gets_its_marker_from_its_leader() -> None:
    peers, here, answers = FakePeers(), Markers(), list[PartitionErrors]()
    markers: Any = ClusterMarkers(metadata(), HERE, here, peers)  # type: ignore[arg-type]
    markers.write(MARKER, [("t", index) for index in range(6)], answers.append)
    assert here.written == [("t", 0), ("t", 1)]
    ((broker_id, request, done),) = peers.asked
    assert broker_id == OTHER
    assert isinstance(request, WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [2, 3])]
    assert not answers, "until all have answered"
    done(wrote({2: 0, 3: ErrorCode.NOT_LEADER_OR_FOLLOWER}), None)
    assert answers == [
        {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): 0,
            ("t", 3): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ("t", 4): ErrorCode.LEADER_NOT_AVAILABLE,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    ]


@pytest.mark.parametrize("response", [None, wrote({2: 0})], ids=["nobody answers", "one is left out"])
def test_a_marker_of_unknown_fate_is_to_be_written_again(response: Any) -> None:
    peers, answers = FakePeers(), list[PartitionErrors]()
    markers: Any = ClusterMarkers(metadata(), HERE, Markers(), peers)  # type: ignore[arg-type]
    markers.write(MARKER, [("t", 3)], answers.append)
    peers.asked[0][2](response, None if response else DISCONNECTED)
    assert answers == [{("t", 3): ErrorCode.NETWORK_EXCEPTION}]


class Coordinator:
    """The coordinator of this broker."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def add_partitions_for(self, *arguments: Any) -> None:
        self.asked.append(arguments[:-1])
        arguments[-1](dict.fromkeys(arguments[3], 0))


def transactions(partition: int, here: Coordinator, peers: FakePeers) -> ClusterTransactions:
    """Of a transactional id whose state is in that partition."""
    return ClusterTransactions(metadata(TRANSACTIONS.topic), HERE, lambda _: partition, lambda: here, peers)


def test_the_coordinator_of_this_broker_is_asked_without_a_request() -> None:
    peers, here, answers = FakePeers(), Coordinator(), list[PartitionErrors]()
    transactions(0, here, peers).add_partitions_for("id", 7, 3, [("t", 0)], True, answers.append)
    assert (answers, peers.asked) == ([{("t", 0): 0}], [])
    assert here.asked == [("id", 7, 3, [("t", 0)], True)]


def test_the_coordinator_of_another_broker_is_asked_by_a_request() -> None:
    peers, answers = FakePeers(), list[PartitionErrors]()
    asked = [("t", 0), ("u", 1), ("t", 2)]
    transactions(2, Coordinator(), peers).add_partitions_for("id", 7, 3, asked, True, answers.append)
    ((broker_id, request, done),) = peers.asked
    assert broker_id == OTHER
    assert isinstance(request, AddPartitionsToTxnRequest)
    (transaction,) = request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.verify_only) == ("id", 7, True)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 2]), ("u", [1])]
    results = [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)],
        )
        for name, index, code in (("t", 0, 0), ("u", 1, ErrorCode.TRANSACTION_ABORTABLE))
    ]
    result = AddPartitionsToTxnResult(transactional_id="id", topic_results=results)
    done(AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=0, results_by_transaction=[result]), None)
    assert answers == [{("t", 0): 0, ("u", 1): ErrorCode.TRANSACTION_ABORTABLE, ("t", 2): ErrorCode.NETWORK_EXCEPTION}]


def test_a_coordinator_that_is_out_of_reach_is_an_error_that_clients_try_again() -> None:
    peers, answers = FakePeers(), list[PartitionErrors]()
    transactions(2, Coordinator(), peers).add_partitions_for("id", 7, 3, [("t", 0)], False, answers.append)
    peers.asked[0][2](None, DISCONNECTED)
    transactions(4, Coordinator(), peers).add_partitions_for("id", 7, 3, [("t", 0)], False, answers.append)
    assert answers == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}, {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}]
