"""A load of idempotent and transactional producers that goes on while brokers are killed, and what it knows then.

Owns: what was acknowledged, at which offset, and what was aborted.  Owns no broker, and no judgement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaException, Message, Producer
from harness.waiting import PATIENCE_S

PAUSE_S = 0.005
RECORDS_OF_A_TRANSACTION = 5
# Every so many transactions are aborted.
ABORTED = 3


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Load:
    """Both producers, from the begin of a ``with`` to its end; ``acknowledged`` has the value at each place.

    ``unplaced`` are values that were acknowledged as duplicates, of which a broker may say no more where the first one
    is.  ``unknown`` are values of which no answer came: they may be there or not.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[Place, bytes] = {}
        self.unplaced: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self._failures: list[BaseException] = []
        loops = (self._produce_idempotent, self._produce_transactions)
        self._threads = [threading.Thread(target=self._run, args=(loop,)) for loop in loops]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End both once everything is answered; raises what a thread has raised."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    @property
    def count(self) -> int:
        """Records that were acknowledged so far."""
        with self._lock:
            return len(self.acknowledged) + len(self.unplaced)

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self._failures.append(error)

    def _take(self, acknowledged: Iterable[Message]) -> None:
        with self._lock:
            for message in acknowledged:
                value, place = message.value() or b"", _place(message)
                if place is None:
                    self.unplaced.add(value)
                else:
                    self.acknowledged[place] = value

    def _produce_idempotent(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5, "acks": "all"}
        )

        def delivered(error: Any, message: Message) -> None:
            if error is None:
                self._take([message])
            else:
                self.unknown.add(message.value() or b"")

        number = 0
        while not self._stopped.wait(PAUSE_S):
            producer.produce(self._topic, b"single-%d" % number, b"key-%d" % number, on_delivery=delivered)
            producer.poll(0)
            number += 1
        assert producer.flush(PATIENCE_S) == 0

    def _produce_transactions(self) -> None:
        number = 0
        producer = self._transactional()
        while not self._stopped.wait(10 * PAUSE_S):
            number += 1
            if not self._transaction(producer, number):
                producer = self._transactional()

    def _transactional(self) -> Producer:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "load", "linger.ms": 0})
        producer.init_transactions(PATIENCE_S)
        return producer

    def _transaction(self, producer: Producer, number: int) -> bool:
        """One of them; False where the producer is of no use any more."""
        values = [b"transaction-%d-%d" % (number, each) for each in range(RECORDS_OF_A_TRANSACTION)]
        found: list[Message] = []

        def delivered(error: Any, message: Message) -> None:
            if error is None:
                found.append(message)

        try:
            producer.begin_transaction()
            for value in values:
                producer.produce(self._topic, value, on_delivery=delivered)
            producer.flush(PATIENCE_S)
            if number % ABORTED == 0:
                producer.abort_transaction(PATIENCE_S)
                self.aborted.update(values)
            else:
                producer.commit_transaction(PATIENCE_S)
                self._take(found)
        except KafkaException as error:
            return self._give_up(producer, error, values)
        return True

    def _give_up(self, producer: Producer, error: KafkaException, values: list[bytes]) -> bool:
        self.unknown.update(values)
        if not error.args[0].txn_requires_abort():
            return False
        try:
            producer.abort_transaction(PATIENCE_S)
        except KafkaException:
            return False
        return True


def _place(message: Message) -> Place | None:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    return None if offset is None or offset < 0 else Place(partition, offset)
