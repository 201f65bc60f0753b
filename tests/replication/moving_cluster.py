"""A cluster in virtual time whose partitions move: its controller has the real rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pybroker.cluster.decisions.operations import InSyncChange, InSyncState, Reassignment
from pybroker.cluster.decisions.partition_changes import alter_partitions
from pybroker.cluster.decisions.reassignments import ReassignmentRules, alter_reassignments
from pybroker.cluster.image.cluster_image import ImageBuilder
from tests.replication.cluster import LATENCY_MS, NAME, Broker, Cluster
from tests.steps import end_of
from tests.storage.logs import TOPIC_ID


class MovingCluster(Cluster):
    """See the module's docstring."""

    def move(self, *replicas: int, indexes: Sequence[int] = (0,)) -> None:
        """Begin to move partitions; no broker has heard of it yet."""
        wanted = [(NAME, [Reassignment(index, replicas or None) for index in indexes])]
        results = self._decide(lambda builder: end_of(alter_reassignments(builder, wanted, ReassignmentRules(False))))
        assert [result.error_code for _, of_topic in results.topics for result in of_topic] == [0] * len(indexes)

    def _decide(self, decide: Callable[[ImageBuilder], Any]) -> Any:
        builder = ImageBuilder(self.image)
        answer = decide(builder)
        self.image, _ = builder.build(self.image.epoch + 1)
        return answer

    def alter_partition(
        self,
        broker: Broker,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Callable[[int, InSyncState | None], None],
    ) -> None:
        change = InSyncChange(TOPIC_ID, index, leader_epoch, partition_epoch, new_isr)

        def decide() -> None:
            if not self.controller_answers:
                return
            (result,) = self._decide(lambda builder: end_of(alter_partitions(builder, broker.broker_id, [change])))
            state = result.state
            done(
                result.error_code,
                None
                if state is None
                else InSyncState(state.leader, state.leader_epoch, state.isr, state.partition_epoch),
            )
            self.tell()

        self.world.timers.call_later(LATENCY_MS, decide)
