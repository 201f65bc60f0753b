"""Requests to the broker of the run, and what is in their replies.

Owns: ``Wire``, which asks one broker over connections of its own and makes topics that this broker leads, and one
function per request that several tests send.  Framing and encoding are the comparator's (``comparator.wire``); batches
are built by hand (``harness.batches``) and taken apart by hand, so that no mistake of pybroker's own codecs can hide
here.
"""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any, NamedTuple

from comparator.wire import CLOSED, Connection, Tree
from harness.batches import BASE_TIMESTAMP_MS, TRANSACTIONAL_FLAG, Batch, Record, batch
from harness.waiting import wait_until

from pybroker_protocol.errors import ErrorCode

TIMEOUT_MS = 30_000
NAMES_TRIED_MAX = 100
ZERO_ID, UNKNOWN_ID = bytes(16), b"\x01" * 16
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
GROUP, TRANSACTION = 0, 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PATIENT_WITH = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def fresh_name(kind: str = "wire") -> str:
    """A name that no other test uses."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def now_ms() -> int:
    """The time of records that stand beside a marker: one much older would make it begin a segment of its own."""
    return time.time_ns() // 1_000_000


class Wire:
    """Asks one broker; ``close`` ends its connections and deletes its topics."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._connections: list[Connection] = []
        self._own: dict[tuple[str, int], Connection] = {}
        self._topics: list[str] = []

    def connect(self, address: tuple[str, int] | None = None) -> Connection:
        """A further connection, for what has to wait or to be closed; to another broker where an address is given."""
        self._connections.append(Connection(address or self.address))
        return self._connections[-1]

    def ask(self, api: str, version: int, **fields: Tree) -> Tree:
        """One request over the own connection, and its reply."""
        return self.ask_at(self.address, api, version, **fields)

    def ask_at(self, address: tuple[str, int], api: str, version: int, **fields: Tree) -> Tree:
        """The same of any broker of the cluster."""
        if address not in self._own:
            self._own[address] = self.connect(address)
        self._own[address].send(api, version, fields)
        reply = self._own[address].receive(api, version)
        assert reply != CLOSED, f"the connection was closed on {api} v{version}"
        return reply

    def brokers(self) -> dict[int, tuple[str, int]]:
        """The addresses of all brokers of the cluster, by id."""
        told = self.ask("Metadata", 12, topics=[])["brokers"]
        return {broker["node_id"]: (broker["host"], broker["port"]) for broker in told}

    def own_id(self) -> int:
        """The id of the broker that is asked."""
        brokers = self.brokers()
        return next(each for each, address in brokers.items() if len(brokers) == 1 or address == self.address)

    def topic(self, partitions: int = 1, *, replicated: bool = True, **configs: str) -> str:
        """A fresh topic that the broker which is asked leads, with a replica on every other unless told otherwise.

        Underscores in ``configs`` stand for dots.
        """
        name = fresh_name()
        self._topics.append(name)
        self.make_topic(name, partitions, replicated=replicated, **configs)
        return name

    def make_topic(self, name: str, partitions: int = 1, *, replicated: bool = True, **configs: str) -> None:
        """The same under a name of the caller's."""
        own = self.own_id()
        others = [other for other in self.brokers() if other != own] if replicated else []
        placed = [{"partition_index": index, "broker_ids": [own, *others]} for index in range(partitions)]
        self._make({"name": name, "num_partitions": -1, "assignments": placed}, configs)
        self.wait_for_leaders(name, partitions)

    def make_spread_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic that the brokers place, with as many replicas as their settings say."""
        self._make({"name": name, "num_partitions": partitions}, configs)
        self.wait_for_leaders(name, partitions)

    def _make(self, topic: dict[str, Tree], configs: dict[str, str]) -> None:
        entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {**topic, "replication_factor": -1, "configs": entries}
        (made,) = self.ask("CreateTopics", 7, topics=[wanted], timeout_ms=TIMEOUT_MS)["topics"]
        assert made["error_code"] == 0, made

    def wait_for_leaders(self, name: str, partitions: int = 1) -> None:
        """The controller knows a topic before its leaders do, and they before other brokers."""
        asked = [{"partition_index": index, "timestamp": LATEST} for index in range(partitions)]

        def led(brokers: dict[int, tuple[str, int]]) -> bool:
            at: dict[int, list[Tree]] = {broker_id: [] for broker_id in brokers}
            for address in brokers.values():
                (topic,) = self.ask_at(address, "Metadata", 12, topics=[{"name": name}])["topics"]
                if len(topic["partitions"]) != partitions:
                    return False
            for found in topic["partitions"]:
                at.setdefault(found["leader_id"], []).append(asked[found["partition_index"]])
            return all(self._are_led(brokers.get(leader), name, wanted) for leader, wanted in at.items())

        wait_until(lambda: led(self.brokers()), f"leaders of {name}")

    def _are_led(self, address: tuple[str, int] | None, name: str, asked: list[Tree]) -> bool:
        """Whether the broker leads these partitions of the topic."""
        if address is None or not asked:
            return not asked
        topics = [{"name": name, "partitions": asked}]
        (topic,) = self.ask_at(address, "ListOffsets", 7, replica_id=-1, topics=topics)["topics"]
        return all(found["error_code"] == 0 for found in topic["partitions"])

    def name_of(self, kind: int) -> str:
        """A group or transactional id that nobody has heard of, whose coordinator is the broker that is asked."""
        own = self.own_id()
        for _ in range(NAMES_TRIED_MAX):
            name = fresh_name()
            wait_for_coordinator(self, name, kind)
            if self.ask("FindCoordinator", 3, key=name, key_type=kind)["node_id"] == own:
                return name
        raise AssertionError(f"broker {own} coordinates nothing")

    def topic_id(self, name: str) -> bytes:
        topic_id: bytes = metadata(self, name)["topic_id"]
        return topic_id

    def close(self) -> None:
        try:
            if self._topics:
                self.ask("DeleteTopics", 6, topics=[{"name": name} for name in self._topics], timeout_ms=TIMEOUT_MS)
        finally:
            for connection in self._connections:
                connection.close()


# --- metadata --------------------------------------------------------------------------------------------------------


def metadata(wire: Wire, name: str, version: int = 12, create: bool = False) -> Tree:
    """The one topic of a Metadata reply."""
    (found,) = wire.ask("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=create)["topics"]
    return found


# --- data ------------------------------------------------------------------------------------------------------------


def produce_fields(topic: str, records: bytes, **more: Any) -> dict[str, Tree]:
    """The fields of a Produce of one batch; ``index``, ``topic_id`` and fields of the request may be given."""
    data = {"index": more.pop("index", 0), "records": records}
    asked = {"name": topic, "topic_id": more.pop("topic_id", ZERO_ID), "partition_data": [data]}
    return {"acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": [asked], **more}


def produce(wire: Wire, topic: str, records: bytes, version: int = 9, **more: Any) -> Tree:
    """The one partition of a Produce reply."""
    reply = wire.ask("Produce", version, **produce_fields(topic, records, **more))
    return reply["responses"][0]["partition_responses"][0]


def produced(wire: Wire, topic: str, *values: bytes, **more: Any) -> int:
    """Produce a sound batch of these values; its base offset."""
    reply = produce(wire, topic, batch(*values, base_timestamp_ms=now_ms()), **more)
    assert reply["error_code"] == 0, reply
    offset: int = reply["base_offset"]
    return offset


def fetch_fields(topic: str, offset: int = 0, limit: int = 1 << 20, **more: Any) -> dict[str, Tree]:
    """The fields of a Fetch of one partition; ``index``, ``epoch``, ``topic_id`` and fields of the request may be
    given."""
    asked = {
        "partition": more.pop("index", 0),
        "current_leader_epoch": more.pop("epoch", -1),
        "fetch_offset": offset,
        "partition_max_bytes": limit,
    }
    topics = [{"topic": topic, "topic_id": more.pop("topic_id", ZERO_ID), "partitions": [asked]}]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 25, "topics": topics, **more}


def fetch(wire: Wire, topic: str, offset: int = 0, limit: int = 1 << 20, version: int = 11, **more: Any) -> Tree:
    """The one partition of a Fetch reply."""
    reply = wire.ask("Fetch", version, **fetch_fields(topic, offset, limit, **more))
    return reply["responses"][0]["partitions"][0]


class StoredBatch(NamedTuple):
    """The header of a batch as it was fetched, without what no test asks for, and the bytes of its records."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp_ms: int
    producer_id: int
    records: bytes


def stored_batches(records: bytes | None) -> list[StoredBatch]:
    """The whole batches of a reply; Kafka may cut the last one."""
    found, position, data = [], 0, records or b""
    while position + _HEADER.size <= len(data):
        base, length, epoch, _, _, attributes, delta, _, latest, producer_id, *_ = _HEADER.unpack_from(data, position)
        end = position + 12 + length
        if end > len(data):
            break
        body = data[position + _HEADER.size : end]
        found.append(StoredBatch(base, epoch, attributes, delta, latest, producer_id, body))
        position = end
    return found


def offsets(wire: Wire, topic: str, offset: int = 0, **more: Any) -> list[int]:
    """The base offsets of what a Fetch brings."""
    return [found.base_offset for found in stored_batches(fetch(wire, topic, offset, **more)["records"])]


def list_offset(wire: Wire, topic: str, timestamp: int, version: int = 7, epoch: int = -1, **more: Any) -> Tree:
    """The one partition of a ListOffsets reply."""
    asked = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}], "timeout_ms": TIMEOUT_MS, **more}
    return wire.ask("ListOffsets", version, **fields)["topics"][0]["partitions"][0]


def end_offset(wire: Wire, topic: str, isolation_level: int = READ_UNCOMMITTED) -> int:
    offset: int = list_offset(wire, topic, LATEST, isolation_level=isolation_level)["offset"]
    return offset


def timed_batch(*deltas_ms: int) -> bytes:
    """A batch with one record per timestamp, given from ``BASE_TIMESTAMP_MS`` on."""
    return Batch(
        records=[Record(timestamp_delta_ms=delta - deltas_ms[0]) for delta in deltas_ms],
        base_timestamp_ms=BASE_TIMESTAMP_MS + deltas_ms[0],
    ).encode()


# --- producers -------------------------------------------------------------------------------------------------------


class Producer:
    """A producer id with its epoch; ``transactional_id`` is ``None`` for one that is only idempotent."""

    def __init__(self, wire: Wire, transactional_id: str | None = None) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        if transactional_id is not None:
            wait_for_coordinator(wire, transactional_id, TRANSACTION)
        self.init()

    def try_init(self, version: int = 4, timeout_ms: int = 60_000, **more: Any) -> Tree:
        fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": timeout_ms, **more}
        return self.wire.ask("InitProducerId", version, **fields)

    def init(self) -> None:
        """Begin, or begin again; whoever had the id before is fenced."""
        replies: list[Tree] = []

        def answered() -> bool:
            replies.append(self.try_init())
            return replies[-1]["error_code"] not in _PATIENT_WITH

        wait_until(answered, "a producer id")
        assert replies[-1]["error_code"] == 0, replies[-1]
        self.producer_id, self.epoch = replies[-1]["producer_id"], replies[-1]["producer_epoch"]

    @property
    def identity(self) -> dict[str, Any]:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    def batch(self, sequence: int, *values: bytes, **header: int) -> bytes:
        flags = TRANSACTIONAL_FLAG if self.transactional_id is not None else 0
        fields = {"base_sequence": sequence, "flags": flags, "base_timestamp_ms": now_ms(), **self.identity, **header}
        return Batch(records=[Record(value=value) for value in values or (b"v",)], **fields).encode()

    def produce(self, topic: str, sequence: int, *values: bytes, version: int = 12, **header: int) -> Tree:
        """From Produce 12 on the broker adds the partition to the transaction."""
        records = self.batch(sequence, *values, **header)
        return produce(self.wire, topic, records, version, transactional_id=self.transactional_id)

    def produced(self, topic: str, sequence: int, *values: bytes, version: int = 12) -> int:
        reply = self.produce(topic, sequence, *values, version=version)
        assert reply["error_code"] == 0, reply
        offset: int = reply["base_offset"]
        return offset

    def end(self, commit: bool, version: int = 5) -> Tree:
        """End the transaction; the markers are written when this returns."""
        fields = {"transactional_id": self.transactional_id, "committed": commit, **self.identity}
        reply = self.wire.ask("EndTxn", version, **fields)
        if reply["error_code"] == 0 and version >= 5:
            self.producer_id, self.epoch = reply["producer_id"], reply["producer_epoch"]
        wait_until(lambda: not self.state().startswith("Prepare"), f"the end of {self.transactional_id}")
        return reply

    def ended(self, commit: bool, version: int = 5) -> None:
        reply = self.end(commit, version)
        assert reply["error_code"] == 0, reply

    def state(self) -> str:
        (found,) = self.wire.ask("DescribeTransactions", 0, transactional_ids=[self.transactional_id])[
            "transaction_states"
        ]
        state: str = found["transaction_state"]
        return state


def wait_for_coordinator(wire: Wire, key: str, kind: int = GROUP) -> None:
    """Wait until the coordinator is known and has loaded; a broker makes its topic at the first question for it."""

    def answers() -> bool:
        coordinator = wire.ask("FindCoordinator", 3, key=key, key_type=kind)
        if coordinator["error_code"] != 0:
            return False
        address = (coordinator["host"], coordinator["port"]) if len(wire.brokers()) > 1 else wire.address
        if kind == GROUP:
            (found,) = wire.ask_at(address, "DescribeGroups", 5, groups=[key])["groups"]
        else:
            (found,) = wire.ask_at(address, "DescribeTransactions", 0, transactional_ids=[key])["transaction_states"]
        return found["error_code"] not in _PATIENT_WITH

    wait_until(answers, f"the coordinator of {key}")
