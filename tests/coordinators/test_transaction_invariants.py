"""Random lives of two transactional ids, with crashes, and what must always hold.

- What the log holds, replayed, is the state that is served.
- No producer id and epoch is ever given to two producers that begin.
- A transaction gets the markers that its producer was promised, in the partitions that were added to it, and never
  the contrary ones.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pybroker.coordinators.transaction.marker_sender import RETRY_MS
from pybroker.coordinators.transaction.transaction_metadata import NO_EPOCH, TransactionMetadata
from pybroker.coordinators.transaction.transaction_records import read_transaction, read_transactional_id
from pybroker.storage.results import TopicPartition
from pybroker_protocol.errors import ErrorCode
from tests.coordinators.transaction_support import OFFSETS, T0, T1, Cluster

IDS = ("a", "b")
ids = st.sampled_from(IDS)
# Which of the producers that an id ever had: the current one, or one that may have been fenced.
ages = st.sampled_from((1, 1, 1, 2, 3))


class Producer:
    """What one client knows of itself, and what it was promised."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.name = (producer_id, epoch)
        self.added: set[TopicPartition] = set()


class TransactionLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(transaction_version=2)
        self.producers: dict[str, list[Producer]] = {name: [] for name in IDS}
        self.begun: set[tuple[int, int]] = set()
        # (producer id, partition) -> the decisions that were promised for it, in order.
        self.promised: dict[tuple[int, TopicPartition], list[bool]] = {}

    def producer(self, transactional_id: str, age: int) -> Producer | None:
        known = self.producers[transactional_id]
        return known[-age] if len(known) >= age else None

    @rule(name=ids)
    def begin(self, name: str) -> None:
        answer = self.cluster.init(name, timeout_ms=15_000)
        if answer is None or answer.error_code:
            assert answer is None or answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            return
        given = answer.producer_id, answer.producer_epoch
        assert given not in self.begun
        self.begun.add(given)
        self.producers[name].append(Producer(*given))

    @rule(name=ids, age=ages, partition=st.sampled_from((T0, T1, OFFSETS)))
    def add(self, name: str, age: int, partition: TopicPartition) -> None:
        producer = self.producer(name, age)
        if producer is not None:
            answer = self.cluster.add_for(producer.name, partition, transactional_id=name)
            if answer == {partition: 0}:
                assert self.epoch_of(name) == producer.name
                producer.added.add(partition)

    @rule(name=ids, age=ages, commit=st.booleans())
    def end(self, name: str, age: int, commit: bool) -> None:
        producer = self.producer(name, age)
        if producer is None:
            return
        answer = self.cluster.end(producer.name, commit, transactional_id=name)
        if answer is not None and answer.error_code == 0:
            for partition in producer.added:
                self.promised.setdefault((producer.name[0], partition), []).append(commit)
            producer.name, producer.added = (answer.producer_id, answer.producer_epoch), set()
            self.begun.add(producer.name)

    @rule(held=st.booleans())
    def hold_markers(self, held: bool) -> None:
        self.cluster.markers.hold = held
        if not held:
            self.cluster.markers.finish()

    @rule(partition=st.sampled_from((T0, T1)))
    def fail_a_marker(self, partition: TopicPartition) -> None:
        self.cluster.markers.errors[partition] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    @rule()
    def crash(self) -> None:
        self.cluster = self.cluster.crash()

    @rule(by_ms=st.sampled_from((RETRY_MS, 10_000, 30_000)))
    def let_time_pass(self, by_ms: int) -> None:
        self.cluster.world.advance(by_ms)

    def epoch_of(self, name: str) -> tuple[int, int]:
        described = self.cluster.describe(name)
        return described.producer_id, described.producer_epoch

    def served(self) -> dict[str, TransactionMetadata]:
        shard: Any = self.cluster.coordinator._runtime._contexts[0].state
        return {name: txn._replace(last_producer_epoch=NO_EPOCH) for name, txn in shard.transactions.items()}

    @invariant()
    def the_log_says_what_is_served(self) -> None:
        replayed: dict[str, TransactionMetadata] = {}
        for key, value in self.cluster.world.records():
            name = read_transactional_id(key)
            assert name is not None
            assert value is not None
            replayed[name] = read_transaction(name, value)
        assert replayed == self.served()

    @invariant()
    def every_commit_marker_was_promised(self) -> None:
        committed: dict[tuple[int, TopicPartition], set[int]] = {}
        for partition, marker in self.cluster.markers.written:
            if marker.commit:
                committed.setdefault((marker.producer_id, partition), set()).add(marker.producer_epoch)
        for key, epochs in committed.items():
            # A marker that is written again, after a crash, has the epoch that it had before.
            assert len(epochs) <= self.promised.get(key, []).count(True)

    def teardown(self) -> None:
        """In the end every promise is kept."""
        self.cluster.markers.hold = False
        self.cluster.markers.finish()
        self.cluster = self.cluster.crash()
        self.cluster.world.advance(60_000)
        assert {self.cluster.state(name)[:7] for name in self.served()} <= {"Empty", "Complet"}
        for (producer_id, partition), decisions in self.promised.items():
            epochs = {
                marker.producer_epoch
                for written, marker in self.cluster.markers.written
                if marker.commit and written == partition and marker.producer_id == producer_id
            }
            assert len(epochs) == decisions.count(True)


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
