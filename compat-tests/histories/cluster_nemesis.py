"""Faults of a cluster: what can befall brokers, links, clocks, disks and the store, and how each is mended.

Owns: the kinds, which of them can be had here, the plan that follows from a seed, and whom a fault strikes.  No broker
is struck by two faults at once, and two brokers at most are in trouble but where all are killed together; so there are
times at which nothing can be acknowledged, and nothing that was may get lost in them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from random import Random
from typing import NamedTuple

from harness.waiting import wait_until

from histories.cluster import SESSION_MS, START_S, Cluster, ClusterBroker
from histories.history import FAULTS, Journal
from histories.hosts import CLIENTS, why_no_namespaces
from histories.nemesis import Fault, Mend, client_faults

SESSION_S = SESSION_MS / 1000
# A broker that is stopped is given up after three times ``pybroker.liveness.timeout.ms``, which is 1.5 s.
PAUSE_S_MAX = 1.3
FAULT_EVERY_S = 8.0
# A new client takes half a second of a processor to start, which brokers need in a cluster.
CLIENT_FAULT_EVERY_S = 12.0
IN_TROUBLE_MAX = 2
MENDERS = 6
START_AGAIN_S = 0.5
# So far clocks jump: further ahead, a broker may refuse the timestamps of clients.
CLOCK_JUMP_S_MAX = 3_000
LEADER, CONTROLLER, ANY = "leader", "controller", "any"


class Kind(NamedTuple):
    """``lasts_s``: at least and at most.  ``weight``: how often, against the others."""

    meaning: str
    lasts_s: tuple[float, float]
    weight: int
    needs: str = ""


KINDS = {
    "kill": Kind("kill -9 of a broker, which starts again on its data", (0, 6), 4),
    "kill-all": Kind("kill -9 of all brokers at once", (0, 2), 1),
    "forget": Kind("a broker is stopped, cleanly or not, and unregistered; it starts again on its data", (0, 6), 2),
    "pause": Kind("SIGSTOP of a broker for less time than it is given up after", (0.1, PAUSE_S_MAX), 2),
    "freeze": Kind("SIGSTOP of a broker for longer than its session", (1.3 * SESSION_S, 3 * SESSION_S), 2),
    "partition": Kind("a broker and the other brokers lose what they send each other", (1, 12), 3, "links"),
    "one-way": Kind("one broker loses what it sends to another", (1, 12), 3, "links"),
    "no-clients": Kind("a broker and its clients lose what they send each other", (1, 8), 1, "links"),
    "alone": Kind("a broker loses all that it sends to brokers and to the store", (1, 12), 2, "links"),
    "no-store": Kind("a broker and the store lose what they send each other", (1, 10), 2, "links and ZooKeeper"),
    "slow": Kind("all that a broker sends and receives goes through a narrow link", (2, 12), 2, "links"),
    "clock": Kind("a broker's wall clock jumps, and jumps back", (1, 10), 2),
    "disk": Kind("a broker's disk is full; a broker that gave up starts again", (1, 8), 2, "disks"),
    "store": Kind("kill -9 of one server of ZooKeeper or of all", (0.5, 8), 2, "ZooKeeper"),
}


def missing(cluster: Cluster) -> dict[str, str]:
    """What kinds may need that is not to be had, with the reason."""
    found = {}
    if not cluster.hosts.has_links:
        found["links"] = f"there are no network namespaces: {why_no_namespaces() or 'they were not asked for'}"
    if not cluster.has_own_disks:
        found["disks"] = "brokers have disks of their own in namespaces only"
    if not cluster.store.hosts:
        found["ZooKeeper"] = "the store is a file"
    elif not cluster.hosts.has_links:
        found["links and ZooKeeper"] = found["links"]
    found.setdefault("links and ZooKeeper", found.get("ZooKeeper", ""))
    return {need: reason for need, reason in found.items() if reason}


class ClusterNemesis:
    """Strikes a cluster.  ``kinds`` are names of ``KINDS`` that can be had."""

    def __init__(self, cluster: Cluster, kinds: Iterable[str], every_s: float) -> None:
        self._cluster = cluster
        self._kinds = list(kinds)
        self._every_s = every_s
        self._in_trouble: set[int] = set()
        self._store_is_in_trouble = False
        self._struck = 0
        # What takes time to mend must not keep other faults from being mended: a start may wait for the store.
        self._menders = ThreadPoolExecutor(MENDERS)
        self._mending: list[Future[None]] = []

    def plan(self, random: Random, seconds: float) -> list[Fault]:
        """One every so often, at random times; the last is mended before the last tenth of the time."""
        number = round(0.8 * seconds / self._every_s)
        weights = [KINDS[kind].weight for kind in self._kinds]
        faults = client_faults(random, seconds, CLIENT_FAULT_EVERY_S)
        for _ in range(number if self._kinds else 0):
            kind = random.choices(self._kinds, weights)[0]
            at_s = random.uniform(0.08, 0.88) * seconds
            lasts_s = min(random.uniform(*KINDS[kind].lasts_s), max(0.0, 0.92 * seconds - at_s))
            faults.append(Fault(at_s, kind, lasts_s))
        return sorted(faults)

    def strike(self, fault: Fault, journal: Journal, random: Random) -> Mend | None:
        """Let it happen; what mends it, None where there is nobody left to strike."""
        struck = self._strike(fault.kind, random)
        if struck is None:
            return None
        whom, mend = struck
        self._struck += 1
        process = FAULTS - self._struck
        journal.record(process, "invoke", "fault", {"kind": fault.kind, "whom": whom})

        def mended() -> None:
            mend()
            self._in_trouble.difference_update(whom)
            journal.record(process, "ok", "fault")

        return lambda: self._mending.append(self._menders.submit(mended))

    def check(self) -> None:
        for mending in self._mending:
            if mending.done() and (failure := mending.exception()) is not None:
                raise RuntimeError(f"a fault cannot be mended: {failure}") from failure
        for number, broker in self._cluster.brokers.items():
            if not broker.is_alive and number not in self._in_trouble:
                raise RuntimeError(f"broker {number} has ended by itself; see {broker.log_path}")

    def come_to_rest(self) -> None:
        wait(self._mending)
        self.check()

    def close(self) -> None:
        """Wait for the threads that mend; those that wait for a broker come to an end when that is killed."""
        self._menders.shutdown(cancel_futures=True)

    def _strike(self, kind: str, random: Random) -> tuple[list[int], Callable[[], None]] | None:
        if kind == "store":
            return self._strike_the_store(random)
        if kind == "kill-all":
            return self._kill_all()
        whom = self._victim(random)
        if whom is None:
            return None
        broker = self._cluster.brokers[whom]
        self._in_trouble.add(whom)
        if kind == "kill":
            broker.kill()
            return [whom], lambda: self._start(broker)
        if kind == "forget":
            return [whom], self._forget(broker, cleanly=random.random() < 0.5)
        if kind in {"pause", "freeze"}:
            broker.signal(signal.SIGSTOP)
            return [whom], lambda: broker.signal(signal.SIGCONT)
        if kind == "clock":
            broker.set_clock(random.randint(-CLOCK_JUMP_S_MAX, CLOCK_JUMP_S_MAX))
            return [whom], lambda: broker.set_clock(0)
        if kind == "disk":
            broker.fill_disk()
            return [whom], lambda: self._free_disk(broker)
        if kind == "slow":
            self._cluster.hosts.slow(broker.host_name, random.choice([64, 256, 1_000]))
            return [whom], lambda: self._cluster.hosts.quicken(broker.host_name)
        return [whom], self._cut(self._links(kind, whom, random))

    def _victim(self, random: Random) -> int | None:
        """A leader, the controller or any other, as it comes, that is not in trouble yet."""
        candidates = [number for number in self._cluster.brokers if number not in self._in_trouble]
        if len(self._in_trouble) >= IN_TROUBLE_MAX or not candidates:
            return None
        aim = random.choice([LEADER, CONTROLLER, ANY])
        position, other = random.random(), random.choice(candidates)
        found = None
        if aim == LEADER:
            leaders = self._cluster.leaders()
            found = leaders[int(position * len(leaders))] if leaders else None
        elif aim == CONTROLLER:
            found = self._cluster.controller()
        return found if found in candidates else other

    def _kill_all(self) -> tuple[list[int], Callable[[], None]] | None:
        if self._in_trouble:
            return None
        brokers = list(self._cluster.brokers.values())
        self._in_trouble.update(self._cluster.brokers)
        for broker in brokers:
            broker.signal(signal.SIGKILL)
        for broker in brokers:
            broker.kill()

        def start() -> None:
            for broker in brokers:
                self._start(broker)

        return list(self._cluster.brokers), start

    def _strike_the_store(self, random: Random) -> tuple[list[int], Callable[[], None]] | None:
        if self._store_is_in_trouble:
            return None
        self._store_is_in_trouble = True
        servers = self._cluster.store.kill_some(random)

        def restart() -> None:
            self._cluster.store.restart(servers)
            self._store_is_in_trouble = False

        return [], restart

    def _forget(self, broker: ClusterBroker, *, cleanly: bool) -> Callable[[], None]:
        """The others forget it once they know that it is gone, and have a controller; it stays away until then."""

        def forget() -> None:
            if cleanly:
                broker.stop()
            else:
                broker.kill()
            wait_until(lambda: self._cluster.unregister(broker.number), f"broker {broker.number} is forgotten", START_S)

        forgetting = self._menders.submit(forget)

        def start() -> None:
            forgetting.result()
            self._start(broker)

        return start

    def _start(self, broker: ClusterBroker) -> None:
        """Again where it has ended because its store was away, as whoever keeps a service running does."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                broker.start(START_S)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(START_AGAIN_S)
            else:
                return

    def _free_disk(self, broker: ClusterBroker) -> None:
        """A log dir that has failed stays away until the broker starts again, as in Kafka."""
        broker.free_disk()
        broker.kill()
        self._start(broker)

    def _links(self, kind: str, whom: int, random: Random) -> list[tuple[str, str]]:
        """(sender, receiver) of each link that is cut."""
        name = self._cluster.brokers[whom].host_name
        others = [broker.host_name for number, broker in self._cluster.brokers.items() if number != whom]
        stores = list(self._cluster.store.hosts)
        if kind == "one-way":
            return [(name, random.choice(others))]
        if kind == "alone":
            return [(name, other) for other in (*others, *stores)]
        cut_from = {"partition": others, "no-clients": [CLIENTS], "no-store": stores}[kind]
        return [link for other in cut_from for link in ((name, other), (other, name))]

    def _cut(self, links: list[tuple[str, str]]) -> Callable[[], None]:
        for sender, receiver in links:
            self._cluster.hosts.block(sender, receiver)

        def mend() -> None:
            for sender, receiver in links:
                self._cluster.hosts.unblock(sender, receiver)

        return mend
