"""Where partitions of the cluster end, whichever broker leads them.

Owns: the questions to the leaders, one for each of them.  Does not own what an end is good for: cluster links hold the
committed offsets of groups to it (``coordinators/carried_offsets``, ``coordinators/offsets_past_the_end``).

Invariant: an end that is given was the leader's, in the leader epoch of the image, after it was asked for.

Counterpart in Kafka: ``PartitionLeaderStrategy`` with ListOffsets, of the admin client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.cluster.membership.peers import CONTROL
from pybroker.replication.partition import LATEST
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.replication.partition import Partition
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker_protocol.messages.list_offsets import ListOffsetsResponse
    from pybroker_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
    from pybroker_protocol.schema import Request

ENDS_TIMEOUT_MS: Final = 10_000
_LIST_OFFSETS_VERSION: Final = 7
_OFFSET_FOR_LEADER_EPOCH_VERSION: Final = 4
_A_CONSUMER: Final = -1

# A topic's name, and a partition's index.
PartitionName = tuple[str, int]
Ends = dict[PartitionName, int]


class _Question(NamedTuple):
    """How other leaders are asked: what is said of a partition and its leader epoch, a request of these by topics, and
    the ends that are read of its answer."""

    version: int
    asked: Callable[[PartitionName, int], Any]
    request: Callable[[Mapping[str, list[Any]]], Request]
    read: Callable[[Any], Iterable[tuple[PartitionName, int]]]


class PartitionEnds:
    """One per broker that needs them."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def ask(self, partitions: Iterable[PartitionName], done: Callable[[Ends], None], *, written: bool = False) -> None:
        """``done(ends)`` once each leader has answered, inside of the call or later: what is committed of a partition,
        or ``written`` to its leader's log.  A partition whose leader does not say lacks."""

        def of_log(name: PartitionName, partition: Partition) -> int:
            return partition.log.log_end_offset if written else partition.log.high_watermark

        def asked(name: PartitionName, leader_epoch: int) -> ListOffsetsPartition:
            return ListOffsetsPartition(partition_index=name[1], current_leader_epoch=leader_epoch, timestamp=LATEST)

        def request(topics: Mapping[str, list[ListOffsetsPartition]]) -> ListOffsetsRequest:
            named = [ListOffsetsTopic(name=name, partitions=of_topic) for name, of_topic in topics.items()]
            replica_id = self._replicas.broker_id if written else _A_CONSUMER
            return ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=named)

        def read(response: ListOffsetsResponse) -> Iterator[tuple[PartitionName, int]]:
            for topic in response.topics:
                for each in topic.partitions:
                    if not each.error_code and each.offset >= 0:
                        yield (topic.name, each.partition_index), each.offset

        self._ask(partitions, of_log, _Question(_LIST_OFFSETS_VERSION, asked, request, read), done)

    def ask_before(self, epochs: Mapping[PartitionName, int], done: Callable[[Ends], None]) -> None:
        """The same of what was written before the leader epoch beside each partition."""

        def of_log(name: PartitionName, partition: Partition) -> int:
            return max(partition.log.end_offset_for_epoch(epochs[name] - 1, partition.leader_epoch)[1], 0)

        def asked(name: PartitionName, leader_epoch: int) -> OffsetForLeaderPartition:
            return OffsetForLeaderPartition(
                partition=name[1], current_leader_epoch=leader_epoch, leader_epoch=epochs[name] - 1
            )

        def request(topics: Mapping[str, list[OffsetForLeaderPartition]]) -> OffsetForLeaderEpochRequest:
            named = [OffsetForLeaderTopic(topic=name, partitions=of_topic) for name, of_topic in topics.items()]
            return OffsetForLeaderEpochRequest(replica_id=_A_CONSUMER, topics=named)

        def read(response: OffsetForLeaderEpochResponse) -> Iterator[tuple[PartitionName, int]]:
            for topic in response.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        yield (topic.topic, each.partition), max(each.end_offset, 0)

        self._ask(epochs, of_log, _Question(_OFFSET_FOR_LEADER_EPOCH_VERSION, asked, request, read), done)

    def _ask(
        self,
        partitions: Iterable[PartitionName],
        of_log: Callable[[PartitionName, Partition], int],
        question: _Question,
        done: Callable[[Ends], None],
    ) -> None:
        found: Ends = {}
        elsewhere: dict[int, dict[str, list[Any]]] = {}
        image, own_id = self._replicas.image, self._replicas.broker_id
        for name, index in partitions:
            topic = image.topics_by_name.get(name)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            state = topic.partitions[index]
            if state.leader == own_id:
                partition = self._replicas.partition(name, index)
                if partition is not None:
                    found[name, index] = of_log((name, index), partition)
            elif state.leader >= 0:
                asked = question.asked((name, index), state.leader_epoch)
                elsewhere.setdefault(state.leader, {}).setdefault(name, []).append(asked)
        self._ask_others(elsewhere, question, found, done)

    def _ask_others(
        self,
        elsewhere: dict[int, dict[str, list[Any]]],
        question: _Question,
        found: Ends,
        done: Callable[[Ends], None],
    ) -> None:
        peers = self._replicas.peers
        if peers is None or not elsewhere:
            done(found)
            return
        waits_for = set(elsewhere)

        def answered(leader: int, response: Any | None, _error: PeerError | None) -> None:
            found.update(() if response is None else question.read(response))
            waits_for.discard(leader)
            if not waits_for:
                done(found)

        for leader, topics in elsewhere.items():
            request, told = question.request(topics), partial(answered, leader)
            peers.ask(leader, request, question.version, told, timeout_ms=ENDS_TIMEOUT_MS, channel=CONTROL)
