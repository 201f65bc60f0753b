"""Where partitions of the cluster end, whichever broker leads them.

Owns: the questions to the leaders, one for each of them.  Does not own what an end is good for: cluster links hold the
committed offsets of groups to it (``coordinators/carried_offsets``, ``coordinators/offsets_past_the_end``).

Invariant: an end that is given was the leader's, in the leader epoch of the image, after it was asked for.

Counterpart in Kafka: ``PartitionLeaderStrategy`` with ListOffsets, of the admin client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.membership.peers import CONTROL
from pybroker.replication.partition import LATEST
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.replication.replica_manager import ReplicaManager

ENDS_TIMEOUT_MS: Final = 10_000
_LIST_OFFSETS_VERSION: Final = 7
_A_CONSUMER: Final = -1

# A topic's name, and a partition's index.
PartitionName = tuple[str, int]
Ends = dict[PartitionName, int]


class PartitionEnds:
    """One per broker that needs them."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def ask(self, partitions: Iterable[PartitionName], done: Callable[[Ends], None], *, written: bool = False) -> None:
        """``done(ends)`` once each leader has answered, inside of the call or later: what is committed of a partition,
        or ``written`` to its leader's log.  A partition whose leader does not say lacks."""
        found: Ends = {}
        elsewhere: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        image, own_id = self._replicas.image, self._replicas.broker_id
        for name, index in partitions:
            topic = image.topics_by_name.get(name)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            state = topic.partitions[index]
            if state.leader == own_id:
                partition = self._replicas.partition(name, index)
                if partition is not None:
                    log = partition.log
                    found[name, index] = log.log_end_offset if written else log.high_watermark
            elif state.leader >= 0:
                asked = ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=state.leader_epoch, timestamp=LATEST
                )
                elsewhere.setdefault(state.leader, {}).setdefault(name, []).append(asked)
        self._ask_others(elsewhere, own_id if written else _A_CONSUMER, found, done)

    def _ask_others(
        self,
        elsewhere: dict[int, dict[str, list[ListOffsetsPartition]]],
        replica_id: int,
        found: Ends,
        done: Callable[[Ends], None],
    ) -> None:
        peers = self._replicas.peers
        if peers is None or not elsewhere:
            done(found)
            return
        waits_for = set(elsewhere)

        def answered(leader: int, response: Any | None) -> None:
            for topic in () if response is None else response.topics:
                for each in topic.partitions:
                    if not each.error_code and each.offset >= 0:
                        found[topic.name, each.partition_index] = each.offset
            waits_for.discard(leader)
            if not waits_for:
                done(found)

        for leader, topics in elsewhere.items():
            named = [ListOffsetsTopic(name=name, partitions=of_topic) for name, of_topic in topics.items()]
            request = ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=named)

            def told(response: Any | None, _error: PeerError | None, leader: int = leader) -> None:
                answered(leader, response)

            peers.ask(leader, request, _LIST_OFFSETS_VERSION, told, timeout_ms=ENDS_TIMEOUT_MS, channel=CONTROL)
