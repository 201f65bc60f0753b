"""Kill a broker while clients work, and see how long they wait; then start it again, and so on.

Owns: one kill with all its times, and a run of several.  Every second kill is of the active controller; every broker
leads a partition when it is killed, and clients work with all partitions.  No broker is killed twice within
``REST_S``: librdkafka lets a broker whose connection broke twice within ten seconds be for up to ten seconds, also when
that leads again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from harness.child_process import ChildProcess
from harness.waiting import wait_until

from failover.brokers import OFFSETS, TOPIC, Brokers, Leadership, ask_leaderships
from failover.clients import GROUP
from failover.events import ACKNOWLEDGED, COMMITTED, FAILED, READ, Account, Journal, account

# Between a kill and what was before it, so that clients and timers are anywhere in their rounds.
CALM_S: Final = (0.2, 1.0)
REST_S: Final = 11.0
# Clients go on for so long before the dead broker comes back.
AFTERWARDS_S: Final = 0.3
PATIENCE_S: Final = 60.0
_ASK_EVERY_S: Final = 0.005


class Kill(NamedTuple):
    """What one kill cost, in milliseconds from the kill on; -1 where it was not seen.

    ``acknowledgements``, ``reading``: the longest gap on the partition that the dead broker led; ``elsewhere``: the
    longest gap of acknowledgements on the other partitions; ``commits``: of the group's commits.  ``fencing``: until
    a broker's log says that the dead one is given up.  ``metadata``: until every living broker's Metadata named a new
    leader; ``first_metadata``: the first one's.
    """

    was_controller: bool
    was_coordinator: bool
    acknowledgements: float
    reading: float
    elsewhere: float
    commits: float
    fencing: float
    first_metadata: float
    metadata: float


class Clients:
    """A producer and a consumer as processes, and what they told."""

    def __init__(self, directory: Path, library: str, bootstrap: str, partitions: int) -> None:
        self._partitions = partitions
        self._processes: list[ChildProcess] = []
        self.journals: dict[str, Journal] = {}
        directory.mkdir(parents=True, exist_ok=True)
        for role in ("write", "read"):
            path = directory / f"{role}.log"
            self._processes.append(ChildProcess(client_command(role, library, bootstrap, partitions), path))
            self.journals[role] = Journal(path)

    def wait_until_at_work(self) -> None:
        """Until records are acknowledged, read and committed."""
        now_ns = time.monotonic_ns()
        wait_until(lambda: self.go_on_everywhere_since(now_ns), "clients at work", PATIENCE_S)
        wait_until(lambda: self.counted("read", COMMITTED) > 0, "commits", PATIENCE_S)

    def goes_on_since(self, partition: int, at_ns: int) -> bool:
        """Whether records of the partition were both acknowledged and read after that."""
        self.read()
        return self.journals["write"].has_after(ACKNOWLEDGED, partition, at_ns) and self.journals["read"].has_after(
            READ, partition, at_ns
        )

    def go_on_everywhere_since(self, at_ns: int) -> bool:
        """Whether that is so of every partition."""
        return all(self.goes_on_since(partition, at_ns) for partition in range(self._partitions))

    def counted(self, role: str, kind: str) -> int:
        self.read()
        return self.journals[role].count(kind)

    def read(self) -> None:
        for journal in self.journals.values():
            journal.read()

    def stop(self) -> None:
        """The producer first: it waits for what it sent."""
        for process in self._processes:
            process.terminate(40)
        self.read()

    def kill(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()


def client_command(role: str, library: str, bootstrap: str, partitions: int) -> list[str]:
    """The command line of a client."""
    return [sys.executable, "-m", "failover.clients", role, library, bootstrap, TOPIC, str(partitions)]


class MetadataWatch:
    """Asks one broker all the time who leads a partition, until that is another one than before."""

    def __init__(self, brokers: Brokers, broker_id: int, index: int, dead: int) -> None:
        self.changed_ns = 0
        self._client = brokers.client(broker_id)
        self._key = (TOPIC, index)
        self._dead = dead
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _watch(self) -> None:
        with suppress(OSError):
            while not self._stopped.wait(_ASK_EVERY_S):
                leadership: Leadership = ask_leaderships(self._client, TOPIC)[self._key]
                if leadership.leader not in {-1, self._dead}:
                    self.changed_ns = time.monotonic_ns()
                    return


class Run:
    """A cluster with clients at work."""

    def __init__(self, brokers: Brokers, clients: Clients, random: Random) -> None:
        self.brokers = brokers
        self.clients = clients
        self._random = random
        self._killed_s = dict.fromkeys(brokers.processes, -REST_S)

    def _choose(self, controller: int, *, is_controllers_turn: bool) -> int:
        """The controller, or whoever of the others was killed longest ago; once it has rested."""
        others = [broker_id for broker_id in self.brokers.alive if broker_id != controller]
        victim = controller if is_controllers_turn else min(others, key=self._killed_s.__getitem__)
        time.sleep(max(self._killed_s[victim] + REST_S - time.monotonic(), 0))
        return victim

    def kill_one(self, number: int) -> Kill:
        """Wait for calm, kill the controller or another one, wait until clients go on, bring it back."""
        self.brokers.wait_in_sync()
        controller = self.brokers.controller()
        victim = self._choose(controller, is_controllers_turn=number % 2 == 1)
        was_coordinator = self.brokers.coordinator(GROUP) == victim
        leaderships = self.brokers.leaderships(TOPIC)
        (index,) = [index for (_, index), each in leaderships.items() if each.leader == victim]
        now_ns = time.monotonic_ns()
        wait_until(lambda: self.clients.go_on_everywhere_since(now_ns), "clients at work everywhere", PATIENCE_S)
        time.sleep(self._random.uniform(*CALM_S))
        watches = [MetadataWatch(self.brokers, each, index, victim) for each in self.brokers.alive if each != victim]
        positions = self.brokers.log_positions()
        self._killed_s[victim] = time.monotonic()
        killed_ns, killed_s = time.monotonic_ns(), time.time()
        for watch in watches:
            watch.start()
        self.brokers.kill(victim)
        try:
            wait_until(lambda: all(watch.changed_ns for watch in watches), "a new leader", PATIENCE_S)
            changed = [watch.changed_ns for watch in watches]
            wait_until(lambda: self.clients.goes_on_since(index, max(changed)), "clients that go on", PATIENCE_S)
            if was_coordinator:
                wait_until(lambda: self._commits_after(max(changed)), "commits that go on", PATIENCE_S)
            time.sleep(AFTERWARDS_S)
        finally:
            for watch in watches:
                watch.stop()
        end_ns = time.monotonic_ns()
        fencing_s = self.brokers.fencing_since(positions)
        self.clients.read()
        gap_ms = self._gaps(killed_ns, end_ns)
        kill = Kill(
            was_controller=victim == controller,
            was_coordinator=was_coordinator,
            acknowledgements=gap_ms("write", ACKNOWLEDGED, index),
            reading=gap_ms("read", READ, index),
            elsewhere=max(gap_ms("write", ACKNOWLEDGED, each) for _, each in leaderships if each != index),
            commits=gap_ms("read", COMMITTED, -1),
            fencing=_since(killed_s, fencing_s),
            first_metadata=(min(changed) - killed_ns) / 1e6,
            metadata=(max(changed) - killed_ns) / 1e6,
        )
        self.brokers.restart(victim)
        return kill

    def _commits_after(self, at_ns: int) -> bool:
        self.clients.read()
        return self.clients.journals["read"].has_after(COMMITTED, -1, at_ns)

    def _gaps(self, from_ns: int, to_ns: int) -> Callable[[str, str, int], float]:
        def gap_ms(role: str, kind: str, partition: int) -> float:
            return self.clients.journals[role].longest_gap_ms(kind, partition, from_ns, to_ns)

        return gap_ms

    def finish(self) -> tuple[Account, int]:
        """Stop the clients; what became of all records, and how many the producer gave up."""
        self.brokers.wait_in_sync()
        self.clients.stop()
        acknowledged = _values(self.clients.journals["write"], ACKNOWLEDGED)
        in_log = read_log(self.brokers.bootstrap, len(self.brokers.processes))
        return account(acknowledged, in_log), self.clients.counted("write", FAILED)


def _since(began_s: float, at_s: float | None) -> float:
    return -1 if at_s is None else (at_s - began_s) * 1e3


def _values(journal: Journal, kind: str) -> dict[int, Counter[int]]:
    return {partition: values for (each, partition), values in journal.values.items() if each == kind}


def read_log(bootstrap: str, partitions: int) -> dict[int, Counter[int]]:
    """Every value in the topic, by partition, and how often it is there."""
    import confluent_kafka

    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(partitions)])
    found: dict[int, Counter[int]] = {index: Counter() for index in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError("the topic could not be read to its end")
        message: Any = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            continue
        found[message.partition()][int(message.value())] += 1
    consumer.close()
    return found


@contextmanager
def at_work(directory: Path, brokers: Brokers, library: str, seed: int) -> Iterator[Run]:
    """The topic, and clients that work with it; they are killed at the end if they still run."""
    brokers.create_topic()
    clients = Clients(directory, library, brokers.bootstrap, len(brokers.processes))
    try:
        clients.wait_until_at_work()
        wait_until(lambda: brokers.leaderships(OFFSETS), "the group's topic")
        yield Run(brokers, clients, Random(seed))
    finally:
        clients.kill()
