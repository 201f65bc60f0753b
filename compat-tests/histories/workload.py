"""The workload: who works on a broker at the same time, with faults among them, and the history that comes of it.

Owns: the cast, the topics, starting and ending workers, and the order of a run: topics, workers and faults, rest, the
final reading.  The history is in ``history.jsonl`` of the run's directory, beside the journals and logs that it is of.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from harness.child_process import ChildProcess
from harness.client_access import access_to_json
from harness.termination import not_interrupted

from histories.clients import CALL_S, Failed, Names
from histories.final_reading import PATIENCE_S, committed_offsets, end_transaction, read_to_the_end
from histories.history import CLIENT_FAULTS, Client, Journal, merge_journals
from histories.librdkafka_clients import common_settings
from histories.nemesis import CLIENT_KINDS, KILL_A_CLIENT, Fault, Mend, Nemesis
from histories.worker import AGAIN, PROCESSES_OF_A_WORKER, REST_S, Specification
from pybroker.security.client_access import ClientAccess

PARTITIONS = {"events": 3, "ledger": 2, "relay": 2, "output": 2}
EVERYTHING = tuple(PARTITIONS)
STOP_S = 60.0
TO_SAY_WHERE_S = 0.5
# A broker of our own forgets the dead sooner than by default, and loads and rolls more than one of each.
BROKER_PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.segment.bytes": "1048576",
}
LIBRDKAFKA, AIOKAFKA, WIRE = "librdkafka", "aiokafka", "wire"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True)
class Part:
    """One of the cast; ``can_go`` says that it may be killed and sent away."""

    role: str
    client: Client
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    protocol: str = "classic"
    can_go: bool = False


def producers() -> list[Part]:
    everywhere = ("events", "ledger", "relay")
    cast = []
    for library in (LIBRDKAFKA, AIOKAFKA):
        cast += [Part("send", Client(library, kind), writes=everywhere) for kind in ("plain", "idempotent")]
        client = Client(library, "transactional", transactional_id=f"transactions of {library}")
        cast.append(Part("transact", client, writes=("ledger", "relay"), can_go=True))
    return cast


def consumers() -> list[Part]:
    topics = ("events", "ledger")
    classic, newer = (Client(LIBRDKAFKA, isolation=COMMITTED, group=group) for group in ("classic", "newer"))
    return [
        Part("read", Client(LIBRDKAFKA, isolation=COMMITTED), reads=EVERYTHING),
        Part("read", Client(AIOKAFKA, isolation=COMMITTED), reads=EVERYTHING),
        Part("read", Client(AIOKAFKA, isolation=UNCOMMITTED), reads=EVERYTHING),
        Part("subscribe", classic, reads=topics, can_go=True),
        Part("subscribe", classic._replace(library=AIOKAFKA), reads=topics, can_go=True),
        *[Part("subscribe", newer, reads=topics, protocol="consumer", can_go=True) for _ in range(2)],
    ]


def transformers() -> list[Part]:
    return [
        Part(
            "transform",
            Client(LIBRDKAFKA, "transactional", f"{group} {number}", COMMITTED, group),
            reads=("relay",),
            writes=("relay", "output"),
            protocol=protocol,
            can_go=True,
        )
        for group, protocol in (("transform", "classic"), ("transform anew", "consumer"))
        for number in range(2)
    ]


def asking_clients() -> list[Part]:
    """Connections that log in anew before their session is over, and such that do not."""
    return [Part("ask", Client(WIRE, login=login)) for login in ("once", AGAIN) for _ in range(2)]


CAST = (*producers(), *consumers(), *transformers())
SECURE_CAST = (*CAST, *asking_clients())


@dataclass
class Workload:
    """One run.  Clients rest for ``rest_s`` at most between two things that they do."""

    directory: Path
    access: ClientAccess
    nemesis: Nemesis
    seconds: float
    seed: int
    rest_s: float = REST_S
    cast: Sequence[Part] = CAST
    say: Callable[[str], object] = lambda _: None
    workers: list[tuple[Part, ChildProcess]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefix = f"histories-{uuid.uuid4().hex[:8]}-"
        self.names = Names(self.prefix, PARTITIONS)
        self._leaving: dict[int, float] = {}  # position of a worker that was told to go -> until when it may take
        self.random = Random(self.seed)
        self._journals: list[Path] = []
        self._journal = Journal(self._new_journal("faults"))

    @property
    def history(self) -> Path:
        return self.directory / "history.jsonl"

    def run(self) -> Path:
        """Returns where the history is."""
        self._create_topics()
        try:
            for part in self.cast:  # one by one, so that those that are there are ended when the next does not come
                with not_interrupted():
                    self.workers.append((part, self._start_worker(part)))
            self._await_workers()
            self._let_faults_happen()
            self._stop_workers()
        finally:
            for _, worker in self.workers:
                worker.kill()
        self._read_everything()
        self._journal.close()
        merge_journals(self._journals, self.history)
        return self.history

    def _new_journal(self, name: str) -> Path:
        path = self.directory / f"{name}.journal"
        self._journals.append(path)
        return path

    def _create_topics(self) -> None:
        """Again where nobody answers: on a busy machine, brokers that have just begun may lose each other."""
        admin = AdminClient(common_settings(self.access))
        deadline = time.monotonic() + PATIENCE_S
        missing = dict(PARTITIONS)
        while missing:
            topics = [NewTopic(self.names.topic(topic), number) for topic, number in missing.items()]
            for name, created in admin.create_topics(topics, operation_timeout=CALL_S).items():
                try:
                    created.result(CALL_S)
                except KafkaException as failure:
                    if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        if time.monotonic() > deadline:
                            raise
                        continue
                del missing[name.removeprefix(self.prefix)]

    def _start_worker(self, part: Part) -> ChildProcess:
        number = len(self._journals)
        name = f"{number}-{part.role}-{part.client.library}"
        path = self._new_journal(name)
        path.touch()
        client = part.client
        specification = Specification(
            role=part.role,
            # Groups and transactional ids of a broker that is not ours are kept apart like topics.
            client=client._replace(
                group=client.group and self.prefix + client.group,
                transactional_id=client.transactional_id and self.prefix + client.transactional_id,
            ),
            protocol=part.protocol,
            reads=part.reads,
            writes=part.writes,
            access=access_to_json(self.access),
            prefix=self.prefix,
            partitions=PARTITIONS,
            journal=str(path),
            number=number,
            seed=self.seed,
            rest_s=self.rest_s,
        )
        command = [sys.executable, "-m", "histories.worker", specification.to_json()]
        return ChildProcess(command, self.directory / f"{name}.log")

    def _await_workers(self) -> None:
        """On a busy machine it takes long until all of them are at work."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(b'"ready"' in path.read_bytes() for path in self._journals[1:]):
            self._check_workers()
            if time.monotonic() > deadline:
                raise TimeoutError(f"workers are not ready within {PATIENCE_S} s; see {self.directory}")
            time.sleep(0.1)

    # Faults

    def _let_faults_happen(self) -> None:
        started = time.monotonic()
        numbers = count()
        moments: list[tuple[float, int, Fault | Mend]] = [
            (fault.at_s, next(numbers), fault) for fault in self.nemesis.plan(self.random, self.seconds)
        ]
        while moments:
            self._replace_those_that_went()
            at_s, _, what = heapq.heappop(moments)
            time.sleep(max(0.0, started + at_s - time.monotonic()))
            self._check_workers()
            self.nemesis.check()
            if not isinstance(what, Fault):
                what()
                continue
            self.say(f"{time.monotonic() - started:6.1f} s: {what.kind}")
            if what.kind in CLIENT_KINDS:
                self._trouble_a_client(what.kind)
            elif (mend := self.nemesis.strike(what, self._journal, self.random)) is not None:
                mend_at_s = time.monotonic() - started + what.lasts_s
                heapq.heappush(moments, (mend_at_s, next(numbers), mend))
        self.nemesis.come_to_rest()
        time.sleep(max(0.0, started + self.seconds - time.monotonic()))
        self._replace_those_that_went()
        self._check_workers()
        self.nemesis.check()

    def _trouble_a_client(self, kind: str) -> None:
        """One that is sent away goes when it has done what it is at; its successor comes then."""
        there = [position for position, (part, _) in enumerate(self.workers) if part.can_go]
        if not (there := [position for position in there if position not in self._leaving]):
            return
        position = self.random.choice(there)
        _, worker = self.workers[position]
        if kind == KILL_A_CLIENT:
            worker.kill()
            self._replace(position)
        else:
            os.kill(worker.pid, signal.SIGTERM)
            self._leaving[position] = time.monotonic() + STOP_S

    def _replace_those_that_went(self) -> None:
        for position, until in list(self._leaving.items()):
            part, worker = self.workers[position]
            if worker.exit_code is not None or time.monotonic() > until:
                del self._leaving[position]
                self._await_end(part, worker, 0)
                self._replace(position)

    def _replace(self, position: int) -> None:
        self._journal.record(CLIENT_FAULTS, "info", "crash")
        part, _ = self.workers[position]
        with not_interrupted():
            self.workers[position] = (part, self._start_worker(part))

    def _check_workers(self) -> None:
        """A worker that ended by itself has met what it was not made for."""
        for position, (part, worker) in enumerate(self.workers):
            if worker.exit_code is not None and position not in self._leaving:
                raise RuntimeError(f"a worker ({part}) exited with {worker.exit_code}\n{worker.log_tail()}")

    def _stop_workers(self) -> None:
        # Told once is enough: a second signal would hit an interpreter that is about to end.
        for position, (_, worker) in enumerate(self.workers):
            if position not in self._leaving:
                os.kill(worker.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for part, worker in self.workers:
            self._await_end(part, worker, max(0.0, deadline - time.monotonic()))

    def _await_end(self, part: Part, worker: ChildProcess, patience_s: float) -> None:
        """Wait for a worker that was told to go."""
        try:
            exit_code = worker.wait(patience_s)
        except TimeoutError:
            # Some client libraries do not always come back; what this one was about to do, nobody knows.
            self.say(f"a worker ({part}) does not end, and is killed; where it stands is in {worker.log_path.name}")
            os.kill(worker.pid, signal.SIGUSR1)
            time.sleep(TO_SAY_WHERE_S)
            worker.kill()
            return
        # One that was only about to start has not minded the signal yet.
        if exit_code not in {0, -signal.SIGTERM}:
            raise RuntimeError(f"a worker ({part}) exited with {exit_code}\n{worker.log_tail()}")

    # The end

    def _read_everything(self) -> None:
        self.say("reading everything")
        process = len(self._journals) * PROCESSES_OF_A_WORKER
        ids = {part.client.transactional_id for part in self.cast if part.client.transactional_id is not None}
        for transactional_id in sorted(ids):
            self._at_the_end(process, "end", end_transaction, self.access, self.prefix + transactional_id)
        for isolation in (COMMITTED, UNCOMMITTED):
            process += 1
            self._at_the_end(process, "final", self._read_all, isolation, process)
        groups = {(part.client.group, part.reads) for part in self.cast if part.client.group is not None}
        for group, topics in sorted(groups):
            self._at_the_end(process, "committed", self._committed, self.prefix + group, topics)

    def _read_all(self, isolation: str, process: int) -> dict[str, int]:
        return read_to_the_end(self.access, self.names, isolation, self._journal, process)

    def _committed(self, group: str, topics: tuple[str, ...]) -> dict[str, Any]:
        offsets = committed_offsets(self.access, self.names, group, self.names.keys_of(*topics))
        return {"group": group, "offsets": offsets}

    def _at_the_end(self, process: int, kind: str, step: Callable[..., Any], *arguments: Any) -> None:
        """Do it and record what it says; that it cannot be done is for the checker to judge."""
        try:
            found = step(*arguments)
        except (Failed, KafkaException, TimeoutError) as failure:
            self._journal.record(process, "fail", kind, f"{arguments}: {failure}")
        else:
            self._journal.record(process, "ok", kind, found)
