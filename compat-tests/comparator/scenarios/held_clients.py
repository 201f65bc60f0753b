"""Clients over their quotas: at which request they are told to rest, and that their next one waits (KIP-219).

No two brokers tell the same time, so that what is compared of one is that there is any, and that it is within bounds.
A window is ten seconds whatever the time between a client's requests, as long as that is less than what it is over by.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.batches import batch

from comparator import users
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.client_quotas import BYTES, MUTATIONS, OTHER_BYTES, PERCENT, USER, entry, settle
from comparator.wire import Connection

TOPIC = "held"
BATCH = batch(b"x" * 10_000)
# With the second batch it is 11.8 seconds' worth, with the first one less than the ten of a window.
RATE = 1_710.0
LITTLE = 0.0001  # percent
PARTITIONS = 20  # nine more than may be made at once at a rate of one
LONGEST_MS, AWAITED_MS, EARLY_S = 12_000, 2_500, 0.01
QUOTAS = {"producer": BYTES, "consumer": OTHER_BYTES, "asker": PERCENT, "administrator": MUTATIONS, "older": MUTATIONS}
VALUES = {BYTES: RATE, OTHER_BYTES: RATE, PERCENT: LITTLE, MUTATIONS: 1.0}


@dataclass
class Resting:
    """A connection that was told to rest, and when the answer to its next request comes; None where that is late."""

    note: str
    asked_s: float
    told_ms: int
    connection: Connection
    answered_s: Future[float] | None

    def observed(self) -> str:
        """Counted from before the broker began to."""
        if self.answered_s is None:
            return "it is answered" if self.connection.has_reply() else "it waits"
        waited_s = self.answered_s.result() - self.asked_s
        return "it waits" if waited_s >= self.told_ms / 1_000 - EARLY_S else f"it waits for {waited_s:.3f} s alone"


@dataclass
class Rests:
    """All who rest at the same time."""

    broker: Broker
    threads: ThreadPoolExecutor
    resting: list[Resting] = field(default_factory=list)

    def ask(self, user: Broker, note: str, api: str, version: int, **fields: Any) -> None:
        """Ask over a connection of its own, and something else behind it where the reply tells to rest."""
        connection = user.connect()
        asked_s = time.monotonic()
        reply = user.begin(api, version, note, connection, **fields).reply()
        told_ms = reply["throttle_time_ms"]
        self.broker.note(f"{note}: told to rest", is_told(told_ms))
        if told_ms:
            connection.send("ApiVersions", 0, {})
            answered = self.threads.submit(arrival_s, connection) if told_ms <= AWAITED_MS else None
            self.resting.append(Resting(note, asked_s, told_ms, connection, answered))

    def end(self) -> None:
        """Those first that are waited for: others have longer to be answered too early."""
        for each in sorted(self.resting, key=lambda each: each.answered_s is None):
            self.broker.note(f"{each.note}: the next request", each.observed())


def arrival_s(connection: Connection) -> float:
    """When the next reply is there."""
    assert connection.receive_payload() is not None, "the connection has ended"
    return time.monotonic()


def is_told(throttle_ms: int) -> Tree:
    """What is compared of a time."""
    return throttle_ms > 0 if throttle_ms <= LONGEST_MS else f"{throttle_ms} ms"


@contextmanager
def held_users(broker: Broker) -> Iterator[dict[str, Broker]]:
    """Users who have logged in, each with a quota; their names are new, because brokers remember what was used."""
    names = {role: f"{role}-{uuid.uuid4().hex[:8]}" for role in QUOTAS}

    def set_quotas(*, are_there: bool) -> None:
        entries = [
            entry(((USER, names[role]),), (quota, VALUES[quota] if are_there else None))
            for role, quota in QUOTAS.items()
        ]
        broker.quietly("AlterClientQuotas", 1, entries=entries, validate_only=False)
        settle(broker)

    with users.made(broker, *names.values()), ExitStack() as stack:
        set_quotas(are_there=True)
        stack.callback(set_quotas, are_there=False)
        yield {role: stack.enter_context(users.logged_in(broker, users.by_scram(name))) for role, name in names.items()}


def produced() -> dict[str, Any]:
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": BATCH}]}]
    return {"acks": -1, "timeout_ms": 9_000, "topic_data": data}


def fetched() -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}  # one batch, which comes whole
    wanted = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": len(BATCH), "session_epoch": -1}
    return {**wanted, "topics": [{"topic": TOPIC, "partitions": [partition]}], "rack_id": ""}


def creation(name: str) -> dict[str, Any]:
    """So that nothing is made: what is counted is what would be."""
    topic = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "configs": []}
    return {"topics": [topic], "timeout_ms": 9_000, "validate_only": True}


@scenario
def who_is_over_a_quota_is_told_so_and_rests(broker: Broker) -> None:
    broker.prepare_topic(TOPIC)
    broker.wait_for_coordinator(TOPIC)  # a broker's first request for one is answered with an error, and at no cost
    broker.quietly("Produce", 9, **produced())
    with held_users(broker) as held, ThreadPoolExecutor(max_workers=16) as threads:
        rests = Rests(broker, threads)
        for role, api, version, fields in (
            ("producer", "Produce", 9, produced()),
            ("consumer", "Fetch", 12, fetched()),
            ("administrator", "CreateTopics", 7, creation("held-1")),
        ):
            for often in ("within", "over"):
                rests.ask(held[role], f"{role}, {often} its quota", api, version, **fields)
        rests.ask(held["older"], "an administrator of an older version", "CreateTopics", 5, **creation("held-2"))
        growth = {"topics": [{"name": TOPIC, "count": 2}], "timeout_ms": 9_000, "validate_only": True}
        rests.ask(held["administrator"], "more partitions", "CreatePartitions", 3, **growth)
        deletion = {"topics": [{"name": TOPIC}], "timeout_ms": 9_000}
        rests.ask(held["administrator"], "a deletion", "DeleteTopics", 6, **deletion)
        for api, version, fields in (
            ("Metadata", 9, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
            ("FindCoordinator", 3, {"key": TOPIC, "key_type": 0}),
            ("ListGroups", 4, {"states_filter": ["no such state"]}),
        ):
            rests.ask(held["asker"], f"{api} over its share of the broker's time", api, version, **fields)
        broker.note("somebody else", is_told(broker.quietly("Produce", 9, **produced())["throttle_time_ms"]))
        rests.end()
