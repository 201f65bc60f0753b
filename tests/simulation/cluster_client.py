"""A simulated client of a cluster: several addresses to begin with, leaders and coordinators found and followed.

Owns: what a client library does below its API: which broker a request goes to, Metadata and FindCoordinator, requests
that are split by leader and put together again.  Owns no protocol of any client, and retries nothing: who asked does.

Invariant: what is sent to one partition leaves in order; a Produce whose leader is not known, or of which a part is
lost, is lost as a whole, so that nothing overtakes what has to be sent again.

Kafka counterpart: NetworkClient, Metadata, Fetcher and ConsumerCoordinator of the Java client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_transactions import DescribeTransactionsRequest
from pybroker_protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequest
from pybroker_protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData, TopicProduceResponse
from pybroker_protocol.schema import Request
from tests.simulation.client import Client, ClientConnection, Disconnected

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.network import Address, Network
    from tests.simulation.scheduler import Life

GROUP, TRANSACTION = 0, 1
REFRESH_PAUSE_MS = 50
REQUEST_TIMEOUT_MS = 3_000  # of what the library asks for itself
# What says that the leader, or the coordinator, is another broker by now.
LEADER_IS_ELSEWHERE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
COORDINATOR_IS_ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}

Partition = tuple[str, int]


class ClusterClient(Client):
    """See the module's docstring.  ``bootstrap`` are the addresses that it knows before it knows anything."""

    def __init__(
        self,
        name: str,
        network: Network,
        bootstrap: list[Address],
        random: Random,
        coordinators: dict[tuple[int, str], Address] | None = None,
    ) -> None:
        """``coordinators`` are shared by the clients of one process."""
        super().__init__(name, network, bootstrap[0])
        self._bootstrap = bootstrap
        self._random = random
        self._connections: dict[Address, ClientConnection] = {}
        self._brokers: dict[int, Address] = {}
        self.topics: dict[str, tuple[bytes, int]] = {}  # id and number of partitions, as far as they are known
        self._topic_ids: dict[str, bytes] = {}  # of those, too, that are not there any more
        self._leaders: dict[Partition, tuple[int, int]] = {}  # broker id, leader epoch
        self._seen_epochs: dict[Partition, int] = {}
        self._coordinators: dict[tuple[int, str], Address] = {} if coordinators is None else coordinators
        self.coordinator: Life | None = None  # whose answer was the last one for a group or a transaction
        self._on_their_way: dict[Partition, tuple[int, Address]] = {}  # batches, and the leader that has them
        self._is_refreshing = False

    # --- connections -------------------------------------------------------------------------------------------------

    def _to(self, address: Address) -> ClientConnection:
        """The open connection to a broker, a new one if need be.  Raises ``Disconnected``."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connections[address] = ClientConnection(self.name, self.network, address)
        self._connection = connection
        return connection

    def connection(self) -> ClientConnection:
        """One to any broker: the last that worked, as long as it does."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        return self._to(self._random.choice(list(self._brokers.values()) or self._bootstrap))

    def disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._connection = None

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, request: Request, version: int, timeout_ms: int = 10_000) -> asyncio.Future[Any]:
        if isinstance(request, ProduceRequest):
            return self._produce(request, version, timeout_ms)
        if isinstance(request, FetchRequest):
            return self._fetch(request, version, timeout_ms)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request, version, timeout_ms)
        coordinator = coordinator_of(request)
        if coordinator is None:
            return super().send(request, version, timeout_ms)
        return self.scheduler.in_background(self._ask_coordinator(coordinator, request, version, timeout_ms))

    async def _ask_coordinator(self, key: tuple[int, str], request: Request, version: int, timeout_ms: int) -> Any:
        address = self._coordinators.get(key)
        if address is None:
            asked = FindCoordinatorRequest(key_type=key[0], coordinator_keys=[key[1]])
            (found,) = (await super().send(asked, 4, REQUEST_TIMEOUT_MS)).coordinators
            if found.error_code:
                raise Disconnected(f"no coordinator of {key[1]}: error {found.error_code}")
            address = self._coordinators[key] = found.host, found.port
        try:
            connection = self._to(address)
            server = connection.server
            response = await connection.send(request, version, timeout_ms)
        except Disconnected:
            self._coordinators.pop(key, None)
            raise
        self.coordinator = server
        if not COORDINATOR_IS_ELSEWHERE.isdisjoint(error_codes(response)):
            self._coordinators.pop(key, None)
        return response

    @property
    def server_has_died(self) -> bool:
        """What a coordinator says that it has not written yet may be forgotten: another one may be it by now."""
        return True

    # --- leaders -----------------------------------------------------------------------------------------------------

    def leader_epoch(self, topic: str, partition: int) -> int:
        """As far as it is known, else -1."""
        return self._leaders.get((topic, partition), (-1, -1))[1]

    def _address_of_leader(self, partition: Partition) -> Address | None:
        leader = self._leaders.get(partition)
        return self._brokers.get(leader[0]) if leader is not None else None

    async def ask_leader(self, partition: Partition, request: Request, version: int, timeout_ms: int) -> Any:
        """The leader's response to a request that is for one partition alone; ``Disconnected`` without either.

        Whoever asks looks at the error codes, and says so where the leader is another one (``lost_leader``).
        """
        address = self._address_of_leader(partition)
        if address is None:
            self.lost_leader(partition)
            raise Disconnected("a leader is not known")
        return await self._send_part(address, request, version, timeout_ms, [partition])

    async def ask_broker(self, address: Address, request: Request, version: int, timeout_ms: int) -> Any:
        """One broker's response to what no other can do; ``Disconnected``."""
        return await self._to(address).send(request, version, timeout_ms)

    def lost_leader(self, partition: Partition) -> None:
        """Who led the partition does so no more."""
        self._leaders.pop(partition, None)
        self._refresh()

    def _refresh(self) -> None:
        if not self._is_refreshing:
            self._is_refreshing = True
            self.scheduler.in_background(self._read_metadata())

    async def _read_metadata(self) -> None:
        try:
            await self.sleep(REFRESH_PAUSE_MS)
            address = self._random.choice(list(self._brokers.values()) or self._bootstrap)
            response = await self._to(address).send(MetadataRequest(topics=None), 12, REQUEST_TIMEOUT_MS)
        except Disconnected:
            self._brokers = {}  # begin anew with what is known for sure
            return
        finally:
            self._is_refreshing = False
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        topics = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in response.topics}
        for name, (topic_id, _) in topics.items():
            if self._topic_ids.setdefault(name, topic_id) != topic_id:  # made anew, and so are its epochs
                self._topic_ids[name] = topic_id
                self._seen_epochs = {part: epoch for part, epoch in self._seen_epochs.items() if part[0] != name}
        self.topics = topics
        for topic in response.topics:
            for found in topic.partitions:
                self._learn((topic.name, found.partition_index), found.leader_id, found.leader_epoch)

    def _learn(self, partition: Partition, leader: int, epoch: int) -> None:
        """Metadata that is older than what was seen before is not believed."""
        if epoch < self._seen_epochs.get(partition, -1):
            return
        self._seen_epochs[partition] = epoch
        if leader < 0:
            self._leaders.pop(partition, None)
        else:
            self._leaders[partition] = leader, epoch

    def saw_epoch(self, partition: Partition, epoch: int) -> None:
        """Who led the partition in an epoch before is not asked any more."""
        if epoch > self._seen_epochs.get(partition, -1):
            self._seen_epochs[partition] = epoch
            if self.leader_epoch(*partition) < epoch:
                self.lost_leader(partition)

    # --- what is split by leader -------------------------------------------------------------------------------------

    def _produce(self, request: ProduceRequest, version: int, timeout_ms: int) -> asyncio.Future[Any]:
        parts: dict[Address, dict[str, list[Any]]] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                address = self._address_of_leader((topic.name, data.index))
                if address is None:
                    self.lost_leader((topic.name, data.index))
                    return self._failed("a leader is not known")
                if self._on_their_way.get((topic.name, data.index), (0, address))[1] != address:
                    return self._failed("the former leader has not answered yet")
                parts.setdefault(address, {}).setdefault(topic.name, []).append(data)
        sent = []
        for address, topics in parts.items():
            part = ProduceRequest(
                transactional_id=request.transactional_id,
                acks=request.acks,
                timeout_ms=request.timeout_ms,
                topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
            )
            partitions = _partitions_of(topics, "index")
            sent.append(self._send_part(address, part, version, timeout_ms, partitions))
            self._note_on_their_way(sent[-1], partitions, address)
        return self.scheduler.in_background(self._produced(sent))

    def _note_on_their_way(self, future: asyncio.Future[Any], partitions: list[Partition], address: Address) -> None:
        """Batches go to one leader at a time: what goes to the next one must not overtake what the last one has."""
        for partition in partitions:
            self._on_their_way[partition] = self._on_their_way.get(partition, (0, address))[0] + 1, address

        def answered(_: asyncio.Future[Any]) -> None:
            for partition in partitions:
                count = self._on_their_way[partition][0] - 1
                if count:
                    self._on_their_way[partition] = count, address
                else:
                    del self._on_their_way[partition]

        future.add_done_callback(answered)

    async def _produced(self, sent: list[asyncio.Future[Any]]) -> Any:
        topics: dict[str, list[Any]] = {}
        for future in sent:
            for topic in (await future).responses:
                topics.setdefault(topic.name, []).extend(topic.partition_responses)
                self._look_at(topic.name, topic.partition_responses, "index")
        responses = [TopicProduceResponse(name=name, partition_responses=found) for name, found in topics.items()]
        return ProduceResponse(responses=responses, throttle_time_ms=0)

    def _fetch(self, request: FetchRequest, version: int, timeout_ms: int) -> asyncio.Future[Any]:
        parts = self._by_leader([(topic.topic, topic.partitions) for topic in request.topics], "partition")
        sent = []
        for address, topics in parts.items():
            part = FetchRequest(
                max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes,
                isolation_level=request.isolation_level,
                topics=[FetchTopic(topic=name, partitions=found) for name, found in topics.items()],
            )
            sent.append(self._send_part(address, part, version, timeout_ms, _partitions_of(topics, "partition")))
        return self.scheduler.in_background(self._fetched(sent))

    async def _fetched(self, sent: list[asyncio.Future[Any]]) -> Any:
        topics: dict[str, list[Any]] = {}
        for response in await self._heard(sent):
            for topic in response.responses:
                topics.setdefault(topic.topic, []).extend(topic.partitions)
                self._look_at(topic.topic, topic.partitions, "partition_index")
        responses = [FetchableTopicResponse(topic=name, partitions=found) for name, found in topics.items()]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)

    def _list_offsets(self, request: ListOffsetsRequest, version: int, timeout_ms: int) -> asyncio.Future[Any]:
        parts = self._by_leader([(topic.name, topic.partitions) for topic in request.topics], "partition_index")
        sent = []
        for address, topics in parts.items():
            part = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=request.isolation_level,
                topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
            )
            sent.append(self._send_part(address, part, version, timeout_ms, _partitions_of(topics, "partition_index")))
        return self.scheduler.in_background(self._listed(sent))

    async def _listed(self, sent: list[asyncio.Future[Any]]) -> Any:
        topics: dict[str, list[Any]] = {}
        for response in await self._heard(sent):
            for topic in response.topics:
                topics.setdefault(topic.name, []).extend(topic.partitions)
                self._look_at(topic.name, topic.partitions, "partition_index")
        found = [ListOffsetsTopicResponse(name=name, partitions=partitions) for name, partitions in topics.items()]
        return ListOffsetsResponse(throttle_time_ms=0, topics=found)

    def _by_leader(self, topics: list[tuple[str, list[Any]]], index: str) -> dict[Address, dict[str, list[Any]]]:
        """Partitions by their leaders' addresses, with the leader epochs that are known; others are left out."""
        parts: dict[Address, dict[str, list[Any]]] = {}
        for name, partitions in topics:
            for partition in partitions:
                key = name, getattr(partition, index)
                address = self._address_of_leader(key)
                if address is None:
                    self.lost_leader(key)
                else:
                    partition.current_leader_epoch = self.leader_epoch(*key)
                    parts.setdefault(address, {}).setdefault(name, []).append(partition)
        return parts

    def _send_part(
        self, address: Address, request: Request, version: int, timeout_ms: int, partitions: list[Partition]
    ) -> asyncio.Future[Any]:
        def lost(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is not None:
                for partition in partitions:
                    self.lost_leader(partition)

        try:
            future = self._to(address).send(request, version, timeout_ms)
        except Disconnected as error:
            future = self._failed(str(error))
        future.add_done_callback(lost)
        return future

    async def _heard(self, sent: list[asyncio.Future[Any]]) -> list[Any]:
        """The responses that came; ``Disconnected`` where none did."""
        responses = []
        for future in sent:
            try:
                responses.append(await future)
            except Disconnected:
                continue
        if not responses:
            raise Disconnected("no leader answered")
        return responses

    def _look_at(self, topic: str, answers: list[Any], index: str) -> None:
        for answer in answers:
            if answer.error_code in LEADER_IS_ELSEWHERE:
                self.lost_leader((topic, getattr(answer, index)))


def _partitions_of(topics: dict[str, list[Any]], index: str) -> list[Partition]:
    return [(name, getattr(partition, index)) for name, partitions in topics.items() for partition in partitions]


def coordinator_of(request: Request) -> tuple[int, str] | None:
    """Which coordinator a request is for, None for any broker."""
    if isinstance(request, OffsetFetchRequest):
        return GROUP, request.groups[0].group_id
    if isinstance(request, DescribeTransactionsRequest):
        return TRANSACTION, request.transactional_ids[0]
    if isinstance(request, InitProducerIdRequest):
        return (TRANSACTION, request.transactional_id) if request.transactional_id else None
    readers: list[tuple[int, Callable[[], str]]] = [
        (TRANSACTION, lambda: str(getattr(request, "v3_and_below_transactional_id", "") or "")),
        (GROUP, lambda: str(getattr(request, "group_id", "") or "")),
        (TRANSACTION, lambda: str(getattr(request, "transactional_id", "") or "")),
    ]
    # AddOffsetsToTxn names a group, and is the transaction coordinator's.
    if type(request).__name__ == "AddOffsetsToTxnRequest":
        readers.reverse()
    return next(((kind, key()) for kind, key in readers if key()), None)


def error_codes(message: Any) -> set[int]:
    """Every error code in a response."""
    found: set[int] = set()
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name, None)
        if name.endswith("error_code") and value:
            found.add(int(value))
        elif isinstance(value, list):
            for item in value:
                found |= error_codes(item)
    return found
