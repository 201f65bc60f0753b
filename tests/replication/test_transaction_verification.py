"""Asking a transaction coordinator that is another broker: what its answer is worth when it comes late (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.config.broker import BrokerConfig
from pybroker.replication.transaction_verification import (
    ProducerOfTransaction,
    TransactionVerification,
    offset_commit_operation,
    produce_operation,
)
from pybroker.storage.results import PartitionErrors
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker_protocol.errors import ErrorCode

PRODUCER = ProducerOfTransaction("id", 7, 3)
PLACE = ("t", 0)
BACKOFF_MS = 20
SECOND_PROTOCOL = produce_operation(12)


class FarCoordinator:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[PartitionErrors], None]] = []

    def add_partitions_for(self, *arguments: Any) -> None:
        self.waiting.append(arguments[-1])

    def answer(self, code: int = 0) -> None:
        self.waiting.pop(0)({PLACE: code})


class Leader:
    """A partition's leader that verifies transactions; ``answers`` are what its producers are told."""

    def __init__(self) -> None:
        self.world = VirtualWorld(1, has_threads=False)
        self.far = FarCoordinator()
        self.producers = ProducerStateManager(1000)
        self.answers: list[PartitionErrors] = []
        self._partition: Any = SimpleNamespace(topic="t", index=0, log=SimpleNamespace(producers=self.producers))
        self._verification = TransactionVerification(self.world.env, BrokerConfig({}), self.far)

    def ask(self, operation: Any = SECOND_PROTOCOL, *, retries: bool = True) -> None:
        self._verification.verify(PRODUCER, [(self._partition, 0)], operation, self.answers.append, retries=retries)

    def ends_last_transaction(self) -> None:
        """The marker of the transaction before, which has the epoch that the next one has."""
        self.producers.complete_transaction(PRODUCER.producer_id, PRODUCER.producer_epoch, 0, 5, 0)

    def pass_ms(self, ms: int) -> None:
        self.world.clock.pass_ms(ms)
        self.world.turn()

    def refusal(self) -> Any:
        """Why the first batch of the transaction is not appended."""
        return self.producers.check_unsequenced(PRODUCER.producer_id, PRODUCER.producer_epoch, 1)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_partition_is_verified_by_the_answer(leader: Leader) -> None:
    leader.ask()
    assert leader.refusal() is not None
    leader.far.answer()
    assert (leader.answers, leader.refusal()) == ([{}], None)


def test_question_that_the_end_of_the_last_transaction_has_overtaken_is_asked_again(leader: Leader) -> None:
    leader.ask()
    leader.ends_last_transaction()
    leader.far.answer()
    assert not leader.answers, "the answer may be of the transaction that has ended"
    leader.pass_ms(BACKOFF_MS)
    leader.far.answer()
    assert (leader.answers, leader.refusal()) == ([{}], None)


@pytest.mark.parametrize("operation", [SECOND_PROTOCOL, offset_commit_operation(5)], ids=["produce", "offsets"])
def test_client_is_told_to_try_again_where_nobody_asks_for_it(leader: Leader, operation: Any) -> None:
    leader.ask(operation, retries=False)
    leader.ends_last_transaction()
    leader.far.answer()
    assert leader.answers == [{PLACE: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert leader.refusal() is not None


def test_answer_that_comes_after_the_first_batch_was_appended_is_of_use(leader: Leader) -> None:
    leader.ask()
    leader.ask()
    leader.far.answer()
    leader.producers.update(7, 3, 0, 10, 10, 0, 1)
    leader.far.answer()
    assert leader.answers == [{}, {}]
