"""aiokafka, on a loop that runs while the worker asks something of it, or rests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from histories.clients import (
    CALL_S,
    DELIVERY_MS,
    FETCH_WAIT_MS,
    GROUP_SESSION_MS,
    PLAIN_DELIVERY_MS,
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

T = TypeVar("T")
REFUSED_COMMITS = (CommitFailedError, IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)


def see_errors_of_groups() -> None:
    """Have aiokafka ask for offsets by version 1, in which each partition carries the error of its group.

    From version 2 on that has a field of its own (the coordinator has moved, or loads), and aiokafka 0.14 does not look
    at it: it takes the empty reply for a group without offsets, and begins anew.
    """
    OffsetFetchRequest._CLASSES = OffsetFetchRequest._CLASSES[:1]


class Aiokafka:
    """The library; see ``clients.Library``."""

    name = "aiokafka"

    def __init__(self, access: ClientAccess, names: Names) -> None:
        self.settings = access.settings("aiokafka")
        self.names = names
        self.loop = asyncio.new_event_loop()
        see_errors_of_groups()

    def producer(self, kind: str, transactional_id: str | None) -> Producer:
        settings: dict[str, Any] = {
            **self.settings,
            "acks": "all",
            "enable_idempotence": kind != "plain",
            "request_timeout_ms": PLAIN_DELIVERY_MS if kind == "plain" else DELIVERY_MS,
        }
        if transactional_id is not None:
            settings |= {"transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        return AiokafkaProducer(self, settings)

    def consumer(
        self, isolation: str, group: str | None, protocol: str, on_record: OnRecord, on_rebalance: OnRebalance
    ) -> Consumer:
        assert protocol == "classic", "aiokafka knows no other"
        settings: dict[str, Any] = {
            **self.settings,
            "isolation_level": isolation,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": FETCH_WAIT_MS,
        }
        if group is not None:
            settings |= {
                "group_id": group,
                "session_timeout_ms": GROUP_SESSION_MS,
                "heartbeat_interval_ms": 500,
            }
        return AiokafkaConsumer(self, settings, on_record, on_rebalance)

    def rest(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def run(self, coroutine: Coroutine[Any, Any, T], patience_s: float = CALL_S) -> T:
        """Run a call to its end; raises ``Failed`` when it fails or takes too long."""
        try:
            return self.loop.run_until_complete(asyncio.wait_for(coroutine, patience_s))
        except Exception as failure:  # it is many things that aiokafka raises; after any of them the client is given up
            raise Failed(repr(failure), unknown=not isinstance(failure, REFUSED_COMMITS)) from failure


class AiokafkaProducer:
    """AIOKafkaProducer."""

    def __init__(self, library: Aiokafka, settings: dict[str, Any]) -> None:
        self._library = library
        self._names = library.names
        self._producer: Any = None
        try:
            library.run(self._start(settings))
        except Failed:
            self.close()
            raise

    async def _start(self, settings: dict[str, Any]) -> None:
        # It wants to be made on the loop that it runs on.
        self._producer = AIOKafkaProducer(**settings)
        await self._producer.start()

    def send(self, records: Sequence[tuple[str, int]]) -> list[int | None]:
        return self._library.run(self._send(records))

    async def _send(self, records: Sequence[tuple[str, int]]) -> list[int | None]:
        futures = []
        for key, value in records:
            topic, partition = self._names.partition(key)
            futures.append(await self._producer.send(topic, b"%d" % value, partition=partition))
        answers = await asyncio.gather(*futures, return_exceptions=True)
        return [None if isinstance(answer, BaseException) else self._offset(answer) for answer in answers]

    @staticmethod
    def _offset(metadata: Any) -> int:
        return UNKNOWN_OFFSET if metadata is None or metadata.offset < 0 else int(metadata.offset)

    def begin(self) -> None:
        self._library.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[str, int], consumer: Consumer) -> None:
        raise NotImplementedError("aiokafka tells the coordinator no generation, so that nothing fences it")

    def commit(self, patience_s: float) -> None:
        self._library.run(self._producer.commit_transaction(), patience_s)

    def abort(self) -> None:
        self._library.run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            stop_quietly(self._library, self._producer)


class AiokafkaConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is not typed
    """AIOKafkaConsumer."""

    def __init__(
        self, library: Aiokafka, settings: dict[str, Any], on_record: OnRecord, on_rebalance: OnRebalance
    ) -> None:
        self._library = library
        self._names = library.names
        self._on_record = on_record
        self._on_rebalance = on_rebalance
        self._consumer: Any = None
        try:
            library.run(self._start(settings))
        except Failed:
            self.close()
            raise

    async def _start(self, settings: dict[str, Any]) -> None:
        self._consumer = AIOKafkaConsumer(**settings)
        await self._consumer.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._on_rebalance("revoked", self._keys(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._on_rebalance("assigned", self._keys(assigned))

    def _keys(self, partitions: Any) -> list[str]:
        return sorted(self._names.key(found.topic, found.partition) for found in partitions)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._on_the_loop(self._consumer.subscribe, [self._names.topic(topic) for topic in topics], None, self)

    def assign_from_the_beginning(self, keys: Sequence[str]) -> None:
        partitions = [TopicPartition(*self._names.partition(key)) for key in keys]
        self._on_the_loop(self._consumer.assign, partitions)
        for partition in partitions:
            self._on_the_loop(self._consumer.seek, partition, 0)

    def _on_the_loop(self, function: Any, *arguments: Any) -> None:
        async def called() -> None:
            function(*arguments)

        self._library.run(called())

    def poll(self, records_max: int, timeout_s: float) -> None:
        brought = self._library.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=records_max))
        for partition, records in brought.items():
            key = self._names.key(partition.topic, partition.partition)
            for record in records:
                self._on_record(key, record.offset, int(record.value))

    def commit(self, offsets: Mapping[str, int]) -> None:
        sent = {TopicPartition(*self._names.partition(key)): offset for key, offset in offsets.items()}
        self._library.run(self._consumer.commit(sent))

    def return_to_committed(self, keys: Sequence[str]) -> None:
        raise NotImplementedError("only transactions return, and aiokafka's consume nothing here")

    def close(self) -> None:
        if self._consumer is not None:
            stop_quietly(self._library, self._consumer)


def stop_quietly(library: Aiokafka, client: Any) -> None:
    """Stop a client that may have failed in any way already, or may not end: what it held is given up."""

    async def stopped() -> None:
        await asyncio.wait({asyncio.ensure_future(client.stop())}, timeout=3)

    library.loop.run_until_complete(stopped())
