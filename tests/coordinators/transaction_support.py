"""A transaction coordinator in a world of its own: virtual time, a log in memory, partitions that only note markers.

``Cluster`` asks the coordinator in plain calls; most answers come inside the call and are returned as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import TRANSACTIONS
from pybroker.cluster.image.link_states import MirroredTopic
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.image.supported_features import TRANSACTION_VERSION
from pybroker.config.broker import BrokerConfig
from pybroker.coordinators.transaction.transaction_coordinator import TransactionCoordinator
from pybroker.handlers import list_transactions
from pybroker.handlers.context import RequestContext, Steps
from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker
from pybroker_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pybroker_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from pybroker_protocol.messages.end_txn import EndTxnRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.list_transactions import ListTransactionsRequest
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches
from tests.coordinators.support import Reply, World
from tests.handled import answer_of

T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)
OFFSETS: TopicPartition = ("__consumer_offsets", 7)
COORDINATOR_EPOCH = 3


class TransactionWorld(World):
    """The world, with the log of another topic."""

    def __init__(self) -> None:
        super().__init__(TRANSACTIONS.topic)

    def forget_the_process(self) -> None:
        """What the dead process had scheduled, or not yet written, never happens."""
        self.timers.clear()
        self.partitions.lose_the_leader()

    def records(self, partition: int = 0) -> list[tuple[bytes, bytes | None]]:
        """Every record of the log, in order."""
        log = self.partitions.logs.get(partition, bytearray())
        return [
            (record.key or b"", record.value)
            for position, header in batches(log)
            for record in decode_records(memoryview(log)[position : position + header.size_bytes])
        ]


class Markers:
    """Partitions that note which markers they were given; the knobs are attributes.

    ``errors``: codes to answer, by partition, once each in their order.  ``hold``: answers wait for ``finish``.
    """

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, TransactionMarker]] = []
        self.errors: dict[TopicPartition, list[int]] = {}
        self.hold = False
        self._held: list[Callable[[], None]] = []

    def write(
        self,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[PartitionErrors], None],
    ) -> None:
        def finish() -> None:
            answers: PartitionErrors = {}
            for partition in partitions:
                errors = self.errors.get(partition)
                answers[partition] = errors.pop(0) if errors else 0
                if not answers[partition]:
                    self.written.append((partition, marker))
            done(answers)

        if self.hold:
            self._held.append(finish)
        else:
            finish()

    def finish(self) -> None:
        """Let all markers through that wait."""
        held, self._held = self._held, []
        for finish in held:
            finish()

    def finish_one(self, index: int) -> None:
        """Let one of the writes through that wait, by their order."""
        self._held.pop(index)()

    @property
    def waiting(self) -> int:
        """How many writes wait."""
        return len(self._held)

    def drop(self) -> None:
        """Forget what waits, as the death of the process does."""
        self._held.clear()


class ProducerIds:
    """1000, 1001, 1002, …  ``none_left``: there are none."""

    def __init__(self) -> None:
        self.first = 0
        self.last = 999
        self.none_left = False

    def next(self, done: Callable[[int | None], None]) -> None:
        if self.none_left:
            done(None)
            return
        self.last += 1
        done(self.last)


def image(partitions: int, transaction_version: int, topics: dict[str, int]) -> ClusterImage:
    """A cluster of one broker with the internal topic and some others."""
    state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=COORDINATOR_EPOCH)
    counts = {TRANSACTIONS.topic: partitions, **topics}
    images = [
        TopicImage(name, bytes(15) + bytes([number]), (state,) * count)
        for number, (name, count) in enumerate(counts.items(), 1)
    ]
    return ClusterImage(
        epoch=1,
        features={TRANSACTION_VERSION: transaction_version},
        topics_by_name={topic.name: topic for topic in images},
        topics_by_id={topic.topic_id: topic for topic in images},
    )


class Cluster:
    """A coordinator in a world, leading all its partitions and (unless not ``settled``) done with loading."""

    def __init__(
        self,
        world: TransactionWorld | None = None,
        *,
        markers: Markers | None = None,
        producer_ids: ProducerIds | None = None,
        partitions: int = 1,
        transaction_version: int = 2,
        settled: bool = True,
        **settings: Any,
    ) -> None:
        self.world = TransactionWorld() if world is None else world
        self.markers = Markers() if markers is None else markers
        self.producer_ids = ProducerIds() if producer_ids is None else producer_ids
        self.settings = {"partitions": partitions, "transaction_version": transaction_version, **settings}
        self.metadata = MetadataCache(image(partitions, transaction_version, {"t": 4, "__consumer_offsets": 50}))
        config = BrokerConfig({name.replace("_", "."): str(value) for name, value in settings.items()})
        log = self.world.partitions
        self.coordinator = TransactionCoordinator(
            self.world.env, config, self.metadata, log, log, self.producer_ids, self.markers
        )
        log.on_high_watermark = self.coordinator.on_high_watermark
        self.coordinator.on_leadership(set(range(partitions)), set())
        if settled:
            self.world.advance()

    def crash(self, *, settled: bool = True, **settings: Any) -> Cluster:
        """Kill it and start another over what lies in the log."""
        self.world.forget_the_process()
        self.markers.drop()
        changed = {**self.settings, **settings}
        return Cluster(self.world, markers=self.markers, producer_ids=self.producer_ids, settled=settled, **changed)

    def lead_on_in_a_new_epoch(self) -> None:
        """The image, then the coordinator, hear of the next leader epoch of this leader."""
        before = self.metadata.image
        topic = before.topics_by_name[TRANSACTIONS.topic]
        states = tuple(state._replace(leader_epoch=state.leader_epoch + 1) for state in topic.partitions)
        after = topic._replace(partitions=states)
        topics = {**before.topics_by_name, topic.name: after}
        self.metadata.apply(
            ClusterImage(epoch=before.epoch + 1, features=before.features, topics_by_name=topics), ImageDelta()
        )
        led = set(range(len(states)))
        self.coordinator.on_leadership(led, led)
        self.world.advance()

    def delete_topic(self, name: str) -> None:
        before = self.metadata.image
        left = {kept: topic for kept, topic in before.topics_by_name.items() if kept != name}
        gone = before.topics_by_name[name]
        self.metadata.apply(
            ClusterImage(epoch=before.epoch + 1, features=before.features, topics_by_name=left),
            ImageDelta(topics_deleted=(gone,)),
        )

    def mirror_topic(self, name: str) -> None:
        """A cluster link has it from now on."""
        before = self.metadata.image
        after = ClusterImage(
            epoch=before.epoch + 1,
            features=before.features,
            topics_by_name=before.topics_by_name,
            mirrors={name: MirroredTopic("west", name)},
        )
        self.metadata.apply(after, ImageDelta())

    # --- requests -------------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str = "x",
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int = 5,
    ) -> Any:
        reply = Reply()
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.coordinator.init_producer_id(request, version, reply.done)
        return reply.response

    def producer(self, transactional_id: str = "x", **how: Any) -> tuple[int, int]:
        """(producer id, epoch) of a producer that begins."""
        response = self.init(transactional_id, **how)
        assert response.error_code == 0
        return response.producer_id, response.producer_epoch

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "x",
        version: int = 3,
        verify_only: bool = False,
    ) -> Any:
        """Error code by partition, None while parked."""
        reply = Reply()
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions],
        )
        self.coordinator.add_partitions(transaction, version, reply.done)
        answer = reply.response
        return dict.fromkeys(partitions, answer) if isinstance(answer, int) else answer

    def add_offsets(self, producer: tuple[int, int], *, transactional_id: str = "x", version: int = 3) -> Any:
        reply = Reply()
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        self.coordinator.add_offsets(request, OFFSETS, version, reply.done)
        return reply.response

    def add_for(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "x",
        verify_only: bool = False,
    ) -> Any:
        """What a partition's leader asks: error code by partition."""
        reply = Reply()
        self.coordinator.add_partitions_for(transactional_id, *producer, list(partitions), verify_only, reply.done)
        return reply.response

    def end(
        self, producer: tuple[int, int], commit: bool = True, *, transactional_id: str = "x", version: int = 5
    ) -> Any:
        reply = Reply()
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        self.coordinator.end_txn(request, version, reply.done)
        return reply.response

    def describe(self, transactional_id: str = "x") -> Any:
        reply = Reply()
        self.coordinator.describe([transactional_id], reply.done)
        return reply.response[0]

    def state(self, transactional_id: str = "x") -> str:
        return str(self.describe(transactional_id).transaction_state)

    def listing_steps(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> Steps:
        """ListTransactions, as its handler does it."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        ctx = RequestContext()
        ctx.services = SimpleNamespace(authorizer=None, transactions=self.coordinator)  # type: ignore[assignment]
        return list_transactions.handle(ctx, request)

    def list(self, **filters: Any) -> Any:
        return answer_of(self.listing_steps(**filters))

    def listed(self, **filters: Any) -> set[str]:
        response = self.list(**filters)
        assert response.error_code == 0
        return {state.transactional_id for state in response.transaction_states}
