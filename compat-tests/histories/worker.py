"""One client at work, in an operating system process of its own: ``python -m histories.worker SPECIFICATION``.

Owns: what each role does again and again, and that all of it is in the journal, before and after.  A client that fails
is given up and another one opened, a new process of the history.  SIGTERM ends a worker between two operations; a
kill -9 may end it anywhere, and that is meant.
"""

from __future__ import annotations

import faulthandler
import json
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from harness.client_access import access_from_json

from histories.clients import CALL_S, Consumer, Failed, Library, Names, Producer
from histories.history import Client, EventType, Journal
from pybroker.security.client_access import ClientAccess

if TYPE_CHECKING:
    from histories.wire_clients import ProbingConnection

RECORDS_MAX, POLL_S = 50, 0.1
REST_S = 0.06
ABORTS, COMMITS, NEW_STARTS, RELAYED, IMPATIENCE = 0.15, 0.5, 0.003, 0.4, 0.02  # how often
COMMITTING = 0.5  # of connections that ask small things
IMPATIENT_S = 0.001
AGAIN = "again"
RENEWED = (0.5, 0.9)  # at which part of a session
PROCESSES_OF_A_WORKER, VALUES_OF_A_WORKER = 1_000, 1_000_000_000


@dataclass(frozen=True)
class Specification:
    """What a worker is to be and where; ``number`` is another one for each operating system process of a history."""

    role: str
    client: Client
    protocol: str
    reads: tuple[str, ...]  # topics
    writes: tuple[str, ...]
    access: dict[str, str]  # of a ClientAccess, what is given
    prefix: str
    partitions: dict[str, int]
    journal: str
    number: int
    seed: int
    rest_s: float  # at most, between two steps

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "client": self.client._asdict()})

    @classmethod
    def from_json(cls, text: str) -> Specification:
        found = json.loads(text)
        return cls(**{**found, "client": Client(**found["client"])})


class Session:
    """One client from its start to its end; the roles say what a step of it is."""

    def __init__(self, worker: Worker, process: int) -> None:
        self.specification = worker.specification
        self.client = worker.specification.client
        self.library = worker.library
        self.names = worker.names
        self.random = worker.random
        self.values = worker.values
        self._journal = worker.journal
        self._process = process

    def record(self, event_type: EventType, kind: str, value: Any = None) -> None:
        self._journal.record(self._process, event_type, kind, value)

    def open(self) -> None:
        """Make the client; raises ``Failed``."""
        raise NotImplementedError

    def step(self) -> None:
        """Do one thing; raises ``Failed`` when the client is of no further use."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def some_sends(self, keys: Sequence[str], records_max: int) -> list[list[Any]]:
        return [[self.random.choice(keys), next(self.values), None] for _ in range(self.random.randint(1, records_max))]


class Sending(Session):
    """A producer without transactions."""

    producer: Producer | None = None

    def open(self) -> None:
        assert self.client.producer is not None
        self.producer = self.library.producer(self.client.producer, self.client.transactional_id)
        self.keys = self.names.keys_of(*self.specification.writes)

    def step(self) -> None:
        assert self.producer is not None
        sends = self.some_sends(self.keys, 6)
        self.record("invoke", "send", sends)
        try:
            offsets = self.producer.send([(key, value) for key, value, _ in sends])
        except Failed as failure:
            self.record("info" if failure.unknown else "fail", "send", sends)
            raise
        answered = [[key, value, offset] for (key, value, _), offset in zip(sends, offsets, strict=True)]
        self.record("info" if None in offsets else "ok", "send", answered)

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()


class Transacting(Sending):
    """A producer whose every step is a transaction, some of them aborted at will."""

    def step(self) -> None:
        self.transact(self.some_sends(self.keys, 5), [], {}, None)

    def transact(
        self, sends: list[list[Any]], consumed: list[Any], offsets: dict[str, int], consumer: Consumer | None
    ) -> bool:
        """One transaction; returns whether it was committed, raises ``Failed`` when nobody knows."""
        assert self.producer is not None
        group = self.client.group if consumer is not None else None
        value: dict[str, Any] = {"sends": sends, "consumed": consumed, "group": group, "commit": None}
        self.record("invoke", "txn", value)
        try:
            self.producer.begin()
            # In two parts, so that transactions interleave.
            half = len(sends) // 2
            for part in (sends[:half], sends[half:]):
                self._send(part)
                self.library.rest(self.random.uniform(0, self.specification.rest_s))
            if consumer is not None:
                self.producer.send_offsets(offsets, consumer)
            if self.random.random() < ABORTS:
                raise Failed("as it happens")
        except Failed:
            # The commit has not been asked for and will not be, whatever comes of the abort.
            try:
                self.producer.abort()
            finally:
                self.record("fail", "txn", value)
            return False
        value["commit"] = time.monotonic_ns()
        try:
            self.producer.commit(IMPATIENT_S if self.random.random() < IMPATIENCE else CALL_S)
        except Failed:
            self.record("info", "txn", value)
            raise
        self.record("ok", "txn", value)
        return True

    def _send(self, sends: list[list[Any]]) -> None:
        """Send and note the offsets; raises ``Failed`` when one is not answered."""
        assert self.producer is not None
        for send, offset in zip(sends, self.producer.send([(key, sent) for key, sent, _ in sends]), strict=True):
            send[2] = offset
        if any(offset is None for _, _, offset in sends):
            raise Failed("not delivered", unknown=True)


class Reading(Session):
    """A consumer; what a poll brings is recorded in pieces, with the rebalances between them."""

    consumer: Consumer | None = None

    def open(self) -> None:
        self.positions: dict[str, int] = {}
        self._brought: dict[str, list[list[int]]] | None = None  # while polling
        assert self.client.isolation is not None
        self.consumer = self.library.consumer(
            self.client.isolation, self.client.group, self.specification.protocol, self.on_record, self.on_rebalance
        )

    def poll(self) -> None:
        assert self.consumer is not None
        self._begin_poll()
        self.consumer.poll(RECORDS_MAX, POLL_S)
        self._end_poll()

    def _begin_poll(self) -> None:
        self.record("invoke", "poll")
        self._brought = {}

    def _end_poll(self) -> None:
        assert self._brought is not None
        self.record("ok", "poll", list(self._brought.items()))
        self._brought = None

    def on_record(self, key: str, offset: int, value: int) -> None:
        assert self._brought is not None
        self._brought.setdefault(key, []).append([offset, value])
        self.positions[key] = offset + 1

    def on_rebalance(self, kind: str, keys: list[str]) -> None:
        is_polling = self._brought is not None
        if is_polling:
            self._end_poll()
        self.record("ok", kind, keys)
        for key in keys:
            self.positions.pop(key, None)
        if is_polling:
            self._begin_poll()

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()


class AssignedReading(Reading):
    """A reader of everything, which starts again at the beginning now and then."""

    def open(self) -> None:
        super().open()
        self._start()

    def _start(self) -> None:
        assert self.consumer is not None
        keys = self.names.keys_of(*self.specification.reads)
        self.record("ok", "assign", keys)
        self.consumer.assign_from_the_beginning(keys)

    def step(self) -> None:
        if self.random.random() < NEW_STARTS:
            self._start()
        self.poll()


class Subscribed(Reading):
    """A member of a group that commits where it stands."""

    def open(self) -> None:
        super().open()
        assert self.consumer is not None
        self.record("ok", "subscribe", list(self.specification.reads))
        self.consumer.subscribe(self.specification.reads)

    def step(self) -> None:
        self.poll()
        if self.positions and self.random.random() < COMMITS:
            self._commit()

    def _commit(self) -> None:
        assert self.consumer is not None
        self.record("invoke", "commit", dict(self.positions))
        try:
            self.consumer.commit(self.positions)
        except Failed as failure:
            self.record("info" if failure.unknown else "fail", "commit")
        else:
            self.record("ok", "commit")


class Transforming(Subscribed, Transacting):
    """A member of a group that consumes, writes and commits its offsets in one transaction."""

    def open(self) -> None:
        self._unprocessed: dict[str, list[list[int]]] = {}
        # The producer first: once it is there, what its predecessor has left open is over.
        Transacting.open(self)
        Subscribed.open(self)

    def on_record(self, key: str, offset: int, value: int) -> None:
        super().on_record(key, offset, value)
        self._unprocessed.setdefault(key, []).append([offset, value])

    def on_rebalance(self, kind: str, keys: list[str]) -> None:
        super().on_rebalance(kind, keys)
        for key in keys:
            self._unprocessed.pop(key, None)

    def step(self) -> None:
        assert self.consumer is not None
        self.poll()
        if not self._unprocessed:
            return
        consumed = list(self._unprocessed.items())
        offsets = {key: records[-1][0] + 1 for key, records in consumed}
        self._unprocessed = {}
        if not self.transact(self._outputs(), consumed, offsets, self.consumer):
            self.record("ok", "assign", list(offsets))
            self.consumer.return_to_committed(list(offsets))

    def _outputs(self) -> list[list[Any]]:
        """Most go on to another topic, some back to where they came from, so that transactions feed on each other."""
        back, onward = (self.names.keys_of(topic) for topic in self.specification.writes)
        return self.some_sends(back if self.random.random() < RELAYED else onward, 3)

    def close(self) -> None:
        Transacting.close(self)
        Subscribed.close(self)


class Asking(Session):
    """A connection that asks small things all the time, and logs in anew or does not; it goes when it is sent away."""

    connection: ProbingConnection | None = None

    def open(self) -> None:
        from histories.wire_clients import WireClients

        assert isinstance(self.library, WireClients)
        self.connection = self.library.connection(commits=self.random.random() < COMMITTING)
        self._log_in()

    def _log_in(self) -> None:
        assert self.connection is not None
        self._renews_at_s = math.inf
        self.record("invoke", "login")
        try:
            lifetime_ms = self.connection.log_in()
        except Failed:
            self.record("info", "login")
            raise
        self.record("ok", "login", lifetime_ms)
        if self.client.login == AGAIN and lifetime_ms:
            self._renews_at_s = time.monotonic() + self.random.uniform(*RENEWED) * lifetime_ms / 1_000

    def step(self) -> None:
        assert self.connection is not None
        if time.monotonic() > self._renews_at_s:
            self._log_in()
        self.record("invoke", "ask")
        try:
            self.connection.ask_a_little()
        except Failed:
            self.record("fail", "ask")
            raise
        self.record("ok", "ask")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


ROLES: dict[str, type[Session]] = {
    "send": Sending,
    "transact": Transacting,
    "read": AssignedReading,
    "subscribe": Subscribed,
    "transform": Transforming,
    "ask": Asking,
}


class Worker:
    """Opens one client after another until it is told to stop."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        self.names = Names(specification.prefix, specification.partitions)
        self.library = library_of(specification.client.library, access_from_json(specification.access), self.names)
        self.random = Random(f"{specification.seed}/{specification.number}")
        self.values: Iterator[int] = count(specification.number * VALUES_OF_A_WORKER)
        self.journal = Journal(Path(specification.journal))
        self._is_stopping = False

    def stop(self, *_: object) -> None:
        self._is_stopping = True

    def run(self) -> None:
        first = self.specification.number * PROCESSES_OF_A_WORKER
        for process in range(first, first + PROCESSES_OF_A_WORKER):
            self._run_session(process)
            if self._is_stopping:
                return
            self.library.rest(self.random.uniform(0, 0.3))
        raise RuntimeError(f"{PROCESSES_OF_A_WORKER} clients have failed")

    def _run_session(self, process: int) -> None:
        session = ROLES[self.specification.role](self, process)
        session.record("ok", "open", self.specification.client._asdict())
        is_ready = False
        try:
            session.open()
            session.record("ok", "ready")
            is_ready = True
            while not self._is_stopping:
                session.step()
                self.library.rest(self.random.uniform(0, self.specification.rest_s))
        except Failed as failure:
            sys.stderr.write(f"process {process} is given up: {failure}\n")
            if is_ready:
                session.record("info", "crash")
        with suppress(Failed):
            session.close()


def library_of(name: str, access: ClientAccess, names: Names) -> Library:
    """The library of that name; only that one is imported."""
    if name == "aiokafka":
        from histories.aiokafka_clients import Aiokafka

        return Aiokafka(access, names)
    if name == "wire":
        from histories.wire_clients import WireClients

        return WireClients(access, names)
    from histories.librdkafka_clients import Librdkafka

    return Librdkafka(access, names)


def main() -> None:
    worker = Worker(Specification.from_json(sys.argv[1]))
    signal.signal(signal.SIGTERM, worker.stop)
    faulthandler.register(signal.SIGUSR1)  # asked for where a worker does not end
    worker.run()


if __name__ == "__main__":
    main()
