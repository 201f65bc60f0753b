"""What a worker asks of a client library, whichever it is; ``librdkafka_clients`` and ``aiokafka_clients`` answer.

Unlike the conformance suite's vocabulary, this one says of every call whether it took effect, did not, or may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

GROUP_SESSION_MS = 6_000  # the least that brokers allow by default
TRANSACTION_TIMEOUT_MS = 10_000
# A producer without idempotence gives up soon, so that some of its writes end in nobody knows what.
PLAIN_DELIVERY_MS, DELIVERY_MS = 1_500, 8_000
# So short that a pause makes producers without transactions send again what is still on its way.  The checker knows it:
# nothing that was answered sooner is to be there twice.
REQUEST_MS = 1_000
CALL_S = 20.0  # after this a call is given up, and its client with it
FETCH_WAIT_MS = 100


OnRecord = Callable[[str, int, int], None]  # key, offset, value
OnRebalance = Callable[[str, list[str]], None]  # assigned or revoked, keys


class Failed(Exception):
    """The call did not do what it should; with ``unknown``, it may have, or may still do it."""

    def __init__(self, reason: object, unknown: bool = False) -> None:
        super().__init__(str(reason))
        self.unknown = unknown


@dataclass(frozen=True)
class Names:
    """Keys of the history and partitions of the broker: topics have a prefix of their own in each run."""

    prefix: str
    partitions: Mapping[str, int]  # topic, without the prefix -> how many

    @property
    def keys(self) -> list[str]:
        return [key for topic in self.partitions for key in self.keys_of(topic)]

    def keys_of(self, *topics: str) -> list[str]:
        return [f"{topic}/{index}" for topic in topics for index in range(self.partitions[topic])]

    def topic(self, topic: str) -> str:
        return self.prefix + topic

    def partition(self, key: str) -> tuple[str, int]:
        topic, _, index = key.partition("/")
        return self.prefix + topic, int(index)

    def key(self, topic: str, index: int) -> str:
        return f"{topic.removeprefix(self.prefix)}/{index}"


class Consumer(Protocol):
    """A consumer; records and rebalances come by the callbacks that it was made with, in their order."""

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def assign_from_the_beginning(self, keys: Sequence[str]) -> None: ...

    def poll(self, records_max: int, timeout_s: float) -> None:
        """Hand out what has come."""

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit and wait; raises ``Failed``."""

    def return_to_committed(self, keys: Sequence[str]) -> None:
        """Go on at the committed offsets, or at the beginning without; raises ``Failed``."""

    def close(self) -> None: ...


class Producer(Protocol):
    """A producer of any kind; every method raises ``Failed``."""

    def send(self, records: Sequence[tuple[str, int]]) -> list[int | None]:
        """Send and wait: the offset of each, ``UNKNOWN_OFFSET`` if it is not told, ``None`` if it may have failed."""

    def begin(self) -> None: ...

    def send_offsets(self, offsets: Mapping[str, int], consumer: Consumer) -> None: ...

    def commit(self, patience_s: float) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Library(Protocol):
    """Makes clients; all of them raise ``Failed`` when there is no broker for them in time."""

    name: str

    def producer(self, kind: str, transactional_id: str | None) -> Producer: ...

    def consumer(
        self, isolation: str, group: str | None, protocol: str, on_record: OnRecord, on_rebalance: OnRebalance
    ) -> Consumer: ...

    def rest(self, seconds: float) -> None:
        """Let time pass; what the library does in the background goes on."""
