"""What the scenarios of this folder ask of a client library, in one vocabulary.

Owns: the small interface that every client's adapter fills, and the plain values that pass through it.  Does not own
the scenarios.  Errors pass as Kafka's error codes; what a client has no call for skips the test.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn, TypeVar

import pytest
from harness.waiting import PATIENCE_S

POLL_MS = 100

# An error that a client raises by itself, without a code of Kafka's.
CLIENT_ERROR = -1

Partition = tuple[str, int]
Headers = tuple[tuple[str, bytes], ...]
CloseableT = TypeVar("CloseableT", bound="Closeable")


class Record(NamedTuple):
    """A record as a consumer hands it out.

    ``timestamp_type`` is 0 for CreateTime, 1 for LogAppendTime and ``None`` where the client does not tell.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int | None


class Delivery(NamedTuple):
    """What became of a sent record; ``error`` is Kafka's code, 0 for success."""

    error: int
    partition: int = -1
    offset: int = -1


class Committed(NamedTuple):
    """A committed offset and its metadata."""

    offset: int
    metadata: str


class Cluster(NamedTuple):
    """DescribeCluster's answer."""

    cluster_id: str
    controller_id: int
    brokers: tuple[tuple[int, str, int], ...]


class Group(NamedTuple):
    """DescribeGroups' answer."""

    state: str
    members: int


@dataclass(frozen=True)
class ProducerOptions:
    """How a producer is set up; ``None`` leaves the client's own default."""

    codec: str | None = None
    partitioner: str | None = None
    acks: int = -1
    idempotent: bool | None = None
    linger_ms: int = 0
    request_bytes_max: int = 8 << 20
    patience_ms: int | None = None
    transactional_id: str | None = None


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer is set up; ``None`` leaves the client's own default."""

    group: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    offset_reset: str = "earliest"
    fetch_wait_ms: int | None = None
    partition_fetch_bytes: int | None = None
    isolation: str = "read_uncommitted"


PRODUCER_DEFAULTS = ProducerOptions()
CONSUMER_DEFAULTS = ConsumerOptions()


class Closeable(ABC):
    """Something that holds connections."""

    @abstractmethod
    def close(self) -> None: ...


class Producer(Closeable):
    """Sends records; ``flush`` tells what became of each since the last flush, in the order of sending.

    One with a transactional id has begun under it when it is made; the steps of a transaction return the code of the
    error that they failed with, 0 when they did not.
    """

    @abstractmethod
    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None: ...

    @abstractmethod
    def flush(self) -> list[Delivery]: ...

    @abstractmethod
    def begin(self) -> int: ...

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> int:
        """Make the offsets of the consumer's group part of the transaction."""

    @abstractmethod
    def commit(self) -> int: ...

    @abstractmethod
    def abort(self) -> int: ...


class Consumer(Closeable):
    """Reads records; ``revocations`` counts the calls of the client's rebalance listener."""

    revocations: int

    @abstractmethod
    def subscribe(self, topic: str) -> None: ...

    @abstractmethod
    def assign(self, partitions: Iterable[Partition]) -> None: ...

    @abstractmethod
    def assignment(self) -> set[Partition]: ...

    @abstractmethod
    def poll(self, timeout_ms: int = POLL_MS) -> list[Record]: ...

    @abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abstractmethod
    def seek_to_beginning(self, partition: Partition) -> None: ...

    @abstractmethod
    def seek_to_end(self, partition: Partition) -> None: ...

    @abstractmethod
    def position(self, partition: Partition) -> int: ...

    @abstractmethod
    def beginning_and_end(self, partition: Partition) -> tuple[int, int]: ...

    @abstractmethod
    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        """The first offset at or after the time; ``None`` past the end."""

    @abstractmethod
    def pause(self, partition: Partition) -> None: ...

    @abstractmethod
    def resume(self, partition: Partition) -> None: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        """Commit and wait; without offsets, the positions."""

    @abstractmethod
    def commit_async(self, offsets: Mapping[Partition, Committed]) -> None:
        """Commit without waiting."""

    @abstractmethod
    def committed(self, partition: Partition) -> Committed | None: ...


class Admin(Closeable):
    """The administration calls; those that a client lacks skip the test."""

    def not_offered(self, what: str) -> NoReturn:
        pytest.skip(f"{type(self).__module__.rpartition('.')[2]} offers no {what}")

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> int:
        """Returns the error code."""

    @abstractmethod
    def delete_topic(self, name: str) -> int:
        """Returns the error code."""

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """Every topic's number of partitions."""

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> int:
        """Returns the error code."""

    @abstractmethod
    def topic_configs(self, topic: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> int:
        """The legacy call, which sets what is given and resets the rest; returns the error code."""

    def incremental_alter_configs(self, topic: str, changes: Sequence[tuple[str, str, str | None]]) -> int:
        """``changes`` are (SET | DELETE | APPEND | SUBTRACT, name, value); returns the error code."""
        self.not_offered("incremental alter configs")

    @abstractmethod
    def delete_records(self, partition: Partition, before_offset: int) -> int:
        """Returns the low watermark."""

    @abstractmethod
    def groups(self) -> set[str]: ...

    @abstractmethod
    def describe_group(self, group: str) -> Group: ...

    @abstractmethod
    def group_offsets(self, group: str) -> dict[Partition, int]: ...

    def alter_group_offset(self, group: str, partition: Partition, offset: int) -> int:
        self.not_offered("alter group offsets")

    def delete_group(self, group: str) -> int:
        self.not_offered("delete groups")

    def delete_group_offset(self, group: str, partition: Partition) -> int:
        self.not_offered("delete group offsets")

    def list_offset(self, partition: Partition, spec: str | int) -> int:
        """The offset for ``earliest``, ``latest``, ``max_timestamp`` or a timestamp in milliseconds."""
        self.not_offered("list offsets")

    def log_dir_sizes(self) -> dict[Partition, int]:
        self.not_offered("describe log dirs")

    @abstractmethod
    def describe_cluster(self) -> Cluster: ...


class Client(ABC):
    """One client library pointed at one broker; ``close`` closes whatever it made."""

    codecs: ClassVar[tuple[str, ...]]
    partitioners: ClassVar[tuple[str, ...]]
    assignors: ClassVar[tuple[str, ...]]
    murmur2_partitioner: ClassVar[str | None]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._open: list[Closeable] = []

    @abstractmethod
    def producer(self, options: ProducerOptions = PRODUCER_DEFAULTS) -> Producer: ...

    @abstractmethod
    def consumer(self, options: ConsumerOptions = CONSUMER_DEFAULTS) -> Consumer: ...

    @abstractmethod
    def admin(self) -> Admin: ...

    @classmethod
    def missing_requirement(cls) -> str | None:
        """Why the client cannot be run here, as one sentence; ``None`` when it can."""
        return None

    @classmethod
    def end(cls) -> None:
        """End what all clients of this kind share: nothing, for most."""
        return

    def need(self, what: str) -> None:
        """Skip the test when the client does not have this."""
        return

    def keep(self, opened: CloseableT) -> CloseableT:
        """Close this with the client."""
        self._open.append(opened)
        return opened

    def close(self) -> None:
        for opened in reversed(self._open):
            opened.close()
        self._open.clear()


def poll_until(consumers: Sequence[Consumer], condition: Callable[[list[Record]], bool]) -> list[Record]:
    """Poll the consumers until the condition holds for what they read; returns it.

    They are polled side by side, as members of a group are: a member that is not polled holds a rebalance up.
    """
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(len(consumers)) as threads:
        while not condition(records):
            assert time.monotonic() < deadline, (len(records), [member.assignment() for member in consumers])
            for polled in threads.map(lambda member: member.poll(), consumers):
                records += polled
    return records


def read(consumer: Consumer, count: int) -> list[Record]:
    """The next ``count`` records."""
    records = poll_until([consumer], lambda so_far: len(so_far) >= count)
    assert len(records) == count, [record.value for record in records]
    return records
