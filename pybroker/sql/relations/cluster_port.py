"""The cluster, its changes and its supervisor as statements see them: ports, which the command implements.

Owns the ports and their values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from pybroker_protocol.schema import Buffer


class Bounds(NamedTuple):
    """Where a partition begins, and the offset behind its last committed record."""

    begin: int
    end: int


class Fetched(NamedTuple):
    """What a fetch has of one partition: whole record batches, and its aborted transactions.

    A transaction is its producer's id and its first offset; they come in the order of these.
    """

    partition: int
    records: Buffer
    aborted: Sequence[tuple[int, int]]


class Written(NamedTuple):
    """A record to write; without a time its writer's clock gives it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None


class Cluster(Protocol):
    """Asks a cluster; for one thread.  What is refused or not reached is an exception with a sentence."""

    def topics(self) -> list[str]:
        """The names of all topics that the user may see, in order."""
        ...

    def partitions(self, topic: str) -> list[int] | None:
        """Those of a topic, in order; None where it is not there."""
        ...

    def bounds(self, topic: str, partitions: Sequence[int]) -> dict[int, Bounds]:
        """Where each partition begins and ends now."""
        ...

    def offsets_from(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        """The offset of the first record of this time or later; None where there is none."""
        ...

    def has_broker_times(self, topic: str) -> bool:
        """Whether the broker's clock gives the timestamps, so that they ascend with the offsets.

        Not as far as is known, where the user may not see the topic's settings.
        """
        ...

    def fetch(self, topic: str, positions: Mapping[int, int], bytes_max: int, wait_ms: int) -> list[Fetched]:
        """Committed records from the positions on; without any, ``wait_ms`` at most is waited for some.

        ``bytes_max`` bounds the answer, but for a first batch that is larger.
        """
        ...


class Changes(Protocol):
    """What statements change in a cluster; for one thread.  What is refused is an exception with a sentence."""

    def cluster_id(self) -> str:
        """Of the cluster that is changed."""
        ...

    def create_topic(self, name: str, partitions: int, replicas: int | None, settings: Mapping[str, str]) -> None:
        """Make a topic, unless it is there; without ``replicas`` their number is left to the broker."""
        ...

    def difference(self, name: str, replicas: int | None, settings: Mapping[str, str]) -> str | None:
        """What a topic has that is there, in place of what is wanted; None where it is as wanted."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if it is there."""
        ...

    def write(self, topic: str, records: Sequence[Written]) -> None:
        """Send records; returns when all are acknowledged."""
        ...


class Supervisor(Protocol):
    """Kafka Connect's REST interface of what runs standing queries."""

    def ask(self, method: str, *path: str, body: Any = None, **query: str | Sequence[str]) -> Any:
        """The document of the reply; ``SqlError`` for a request that is refused, or not answered."""
        ...


Connect: TypeAlias = Callable[[], AbstractContextManager[Cluster]]
