"""librdkafka, by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from histories.clients import (
    CALL_S,
    DELIVERY_MS,
    FETCH_WAIT_MS,
    GROUP_SESSION_MS,
    PLAIN_DELIVERY_MS,
    REQUEST_MS,
    TRANSACTION_TIMEOUT_MS,
    Consumer,
    Failed,
    Names,
    OnRebalance,
    OnRecord,
    Producer,
)
from histories.history import UNKNOWN_OFFSET
from pybroker.security.client_access import ClientAccess

# With the default, librdkafka forgets its only broker when that one is away for too long.
COMMON: dict[str, Any] = {
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
CONSUMER_REQUEST_MS = 10_000
# A group that has moved on refuses a commit for good; whatever else goes wrong may have gone right.
REFUSED_COMMITS = {
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
    confluent_kafka.KafkaError.FENCED_MEMBER_EPOCH,
}


def common_settings(access: ClientAccess) -> dict[str, Any]:
    """Those of all clients."""
    return {**access.settings("confluent-kafka"), **COMMON}


class Librdkafka:
    """The library; see ``clients.Library``."""

    name = "librdkafka"

    def __init__(self, access: ClientAccess, names: Names) -> None:
        self.settings: dict[str, Any] = common_settings(access)
        self.names = names

    def producer(self, kind: str, transactional_id: str | None) -> Producer:
        settings = {**self.settings, "acks": "all", "linger.ms": 1}
        if kind == "plain":
            # One request at a time: what is sent again must not overtake what was sent after it.
            settings |= {"message.timeout.ms": PLAIN_DELIVERY_MS, "max.in.flight.requests.per.connection": 1}
        else:
            settings |= {"message.timeout.ms": DELIVERY_MS, "enable.idempotence": True}
        if transactional_id is None:
            settings |= {"socket.timeout.ms": REQUEST_MS}
        else:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        return LibrdkafkaProducer(settings, self.names, transactional_id is not None)

    def consumer(
        self, isolation: str, group: str | None, protocol: str, on_record: OnRecord, on_rebalance: OnRebalance
    ) -> Consumer:
        settings = {
            **self.settings,
            "group.id": group or "none",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "group.protocol": protocol,
            # The default is a minute, in which a member whose coordinator is cut off does nothing.
            "socket.timeout.ms": CONSUMER_REQUEST_MS,
        }
        if protocol == "classic":
            # aiokafka's.  By default a member alone gets "range", and a coordinator that loads the group, like Kafka's,
            # knows of the protocol in use alone: aiokafka would be kept out until the next rebalance.
            settings |= {"partition.assignment.strategy": "roundrobin"}
            settings |= {"session.timeout.ms": GROUP_SESSION_MS, "heartbeat.interval.ms": 500}
        return LibrdkafkaConsumer(settings, self.names, on_record, on_rebalance)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


def call(step: Callable[..., Any], *arguments: Any, patience_s: float = CALL_S) -> None:
    """Do a step of a transaction, again while librdkafka says that this may help; raises ``Failed``."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            step(*arguments)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise Failed(failure, unknown=True) from failure
            time.sleep(0.05)
        else:
            return


class LibrdkafkaProducer:
    """confluent_kafka.Producer."""

    def __init__(self, settings: dict[str, Any], names: Names, transactional: bool) -> None:
        self._names = names
        self._producer = confluent_kafka.Producer(settings)
        if transactional:
            call(self._producer.init_transactions, CALL_S)

    def send(self, records: Sequence[tuple[str, int]]) -> list[int | None]:
        offsets: list[int | None] = [None] * len(records)

        def delivered_at(position: int) -> Callable[[Any, Any], None]:
            def delivered(error: Any, message: Any) -> None:
                if error is None:
                    offset = message.offset()
                    offsets[position] = UNKNOWN_OFFSET if offset is None or offset < 0 else offset

            return delivered

        for position, (key, value) in enumerate(records):
            topic, partition = self._names.partition(key)
            try:
                self._producer.produce(topic, b"%d" % value, partition=partition, on_delivery=delivered_at(position))
            except (KafkaException, BufferError) as failure:
                raise Failed(failure, unknown=position > 0) from failure
        try:
            unsent = self._producer.flush(CALL_S)
        except KafkaException as failure:  # the producer has failed for good
            raise Failed(failure, unknown=True) from failure
        if unsent > 0:
            raise Failed("flush timed out", unknown=True)
        return offsets

    def begin(self) -> None:
        call(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[str, int], consumer: Consumer) -> None:
        assert isinstance(consumer, LibrdkafkaConsumer)
        sent = [TopicPartition(*self._names.partition(key), offset) for key, offset in offsets.items()]
        call(self._producer.send_offsets_to_transaction, sent, consumer.group_metadata(), CALL_S)

    def commit(self, patience_s: float) -> None:
        call(self._producer.commit_transaction, patience_s, patience_s=patience_s)

    def abort(self) -> None:
        call(self._producer.abort_transaction, CALL_S)

    def close(self) -> None:
        # What is fenced fails for good, and says so whatever it is asked.
        with suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.flush(1)


class LibrdkafkaConsumer:
    """confluent_kafka.Consumer, one message at a time, so that rebalances are seen between the right ones."""

    def __init__(self, settings: dict[str, Any], names: Names, on_record: OnRecord, on_rebalance: OnRebalance) -> None:
        self._names = names
        self._on_record = on_record
        self._on_rebalance = on_rebalance
        self._consumer = confluent_kafka.Consumer(settings)

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def subscribe(self, topics: Sequence[str]) -> None:
        def rebalanced(kind: str) -> Callable[[Any, list[TopicPartition]], None]:
            return lambda _, found: self._on_rebalance(kind, self._keys(found))

        revoked = rebalanced("revoked")
        names = [self._names.topic(topic) for topic in topics]
        self._consumer.subscribe(names, on_assign=rebalanced("assigned"), on_revoke=revoked, on_lost=revoked)

    def assign_from_the_beginning(self, keys: Sequence[str]) -> None:
        self._consumer.assign([TopicPartition(*self._names.partition(key), 0) for key in keys])

    def poll(self, records_max: int, timeout_s: float) -> None:
        for position in range(records_max):
            message: Any = self._consumer.poll(timeout_s if position == 0 else 0)
            if message is None:
                return
            if (error := message.error()) is not None:
                if error.fatal():
                    raise Failed(error)
            else:
                key = self._names.key(message.topic(), message.partition())
                self._on_record(key, message.offset(), int(message.value()))

    def commit(self, offsets: Mapping[str, int]) -> None:
        sent = [TopicPartition(*self._names.partition(key), offset) for key, offset in offsets.items()]
        try:
            for partition in self._consumer.commit(offsets=sent, asynchronous=False) or ():
                if partition.error is not None:
                    raise KafkaException(partition.error)
        except KafkaException as failure:
            raise Failed(failure, unknown=failure.args[0].code() not in REFUSED_COMMITS) from failure

    def return_to_committed(self, keys: Sequence[str]) -> None:
        try:
            partitions = [TopicPartition(*self._names.partition(key)) for key in keys]
            for found in self._consumer.committed(partitions, timeout=CALL_S):
                self._consumer.seek(TopicPartition(found.topic, found.partition, max(found.offset, 0)))
        except KafkaException as failure:
            raise Failed(failure) from failure

    def close(self) -> None:
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _keys(self, partitions: list[TopicPartition]) -> list[str]:
        return [self._names.key(found.topic, found.partition) for found in partitions]
