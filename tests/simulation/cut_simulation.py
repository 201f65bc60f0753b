"""A run in which one way after another between brokers, and between a broker and the store, is cut: and a rule of time.

Owns: the cuts that a seed stands for (every pair, both ways or one, and one broker from all others), and who watches
that no partition stands still.  All brokers run, and most of them reach each other and the store, at any time.

The rule: every partition takes records with acks=all, and shows them, with pauses of ``bound_ms`` at most.  That is the
session (of a broker with the controller, or with the store) and what stands in the constructor beside it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.client import Disconnected
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.cluster_simulation import ClusterSimulation
from tests.simulation.consuming import Consuming
from tests.simulation.model import check
from tests.simulation.processes import PORT
from tests.simulation.run import PARTITIONS, TOPIC
from tests.simulation.store import BEATS_PER_SESSION
from tests.simulation.store import HOST as STORE_HOST
from tests.storage.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.network import Address
    from tests.simulation.processes import Process

STANDS_STILL = "no partition stands still for longer than a session"
BROKER_SESSION_MS = 3_000
HEARTBEAT_MS = 500
CLIENT_TIMEOUT_MS = 1_000
# Of a client that asks one broker after another: a request that is not answered, and leaders asked for again.
CLIENT_MS = 3_000
PULSE_MS = 100
LOOK_MS = 20
LAG_MS = 30_000
# Longer than a session, as by default: else a leader that is cut off from all others takes them out of the ISR before
# it is fenced, and is then the only one that may lead.
DEAF_LAG_MS = 4_000


CONTROLLER, BROKER, STORE, ALL = "the controller", "a broker", "the store", "all brokers"
BOTH_WAYS, FROM_IT, TO_IT = DIRECTIONS = ("both ways", "from it", "to it")


class Aim(NamedTuple):
    """One kind of cut, in place of what the seed draws: whose way (the controller's, or another broker's) to whom."""

    whose: str
    target: str
    direction: str


class _InTurn:
    """What a client chooses by: one broker after another, so that its luck is no part of the rule."""

    def __init__(self) -> None:
        self._count = 0

    def choice(self, options: Sequence[Address]) -> Address:
        self._count += 1
        return options[self._count % len(options)]


class Pulse:
    """Writes to one partition with acks=all, and reads it, at every moment of the run."""

    def __init__(self, simulation: CutSimulation, index: int) -> None:
        self.simulation = simulation
        self.index = index
        self.written_ms = self.read_ms = simulation.now_ms
        self.longest_ms = 0

    def begin(self) -> list[Any]:
        """The tasks."""
        scheduler = self.simulation.scheduler
        return [scheduler.create_task(self._write()), scheduler.create_task(self._read())]

    def look(self) -> None:
        """Apply the rule, after any event."""
        now_ms, bound_ms = self.simulation.now_ms, self.simulation.bound_ms
        still_ms = now_ms - min(self.written_ms, self.read_ms)
        self.longest_ms = max(self.longest_ms, still_ms)
        if still_ms > bound_ms:
            what = "took nothing" if self.written_ms <= self.read_ms else "showed nothing"
            detail = f"{TOPIC}-{self.index} {what} for {still_ms} ms, {bound_ms} are allowed; {self.simulation.cut_now}"
            check(False, STANDS_STILL, detail)

    async def _write(self) -> None:
        client, number = self.simulation.patient_client(f"pulse-{self.index}"), 0
        while not self.simulation.leaving:
            number += 1
            records = bytes(
                batch([b"pulse:%d:%d" % (self.index, number)], timestamp=self.simulation.scheduler.now_ms())
            )
            topic = TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=self.index, records=records)]
            )
            request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[topic])
            with suppress(Disconnected):
                response = await client.ask(request, 9, CLIENT_TIMEOUT_MS)
                if not response.responses[0].partition_responses[0].error_code:
                    self.written_ms = self.simulation.now_ms
            await client.sleep(PULSE_MS)

    async def _read(self) -> None:
        client, part = self.simulation.patient_client(f"reader-{self.index}"), (TOPIC, self.index)
        data = Consuming(self.simulation, client, f"reader-{self.index}", read_committed=False)
        data.positions = {part: 0}
        while not self.simulation.leaving:
            before = data.positions[part]
            with suppress(Disconnected):
                await data.poll(PULSE_MS)
            if data.positions[part] > before:
                self.read_ms = self.simulation.now_ms
            elif self.simulation.now_ms - self.read_ms > CLIENT_TIMEOUT_MS:
                client.lost_leader(part)  # as a client's metadata.max.age.ms does, later
            await client.sleep(PULSE_MS / 2)


class CutSimulation(ClusterSimulation):
    """One run with cuts.  ``aim`` has one cut of that kind, and ``hears`` says whether there are datagrams."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        active_ms: int = 90_000,
        aim: Aim | None = None,
        hears: bool | None = None,
        **rest: Any,
    ) -> None:
        self.aim = aim
        self._wants_hearing = hears
        super().__init__(seed, brokers=brokers, with_groups=False, active_ms=active_ms, faults=frozenset(), **rest)
        self.cut_now = "nothing was cut"
        self.counts: dict[str, int] = {}
        self.pulses: list[Pulse] = []
        self._looked_ms = 0
        store_ms = self.session_timeout_ms * (BEATS_PER_SESSION + 1) // BEATS_PER_SESSION
        # A leader looks four times in a session which followers are late; without datagrams their lag alone counts.
        leader_ms = BROKER_SESSION_MS * 5 // 4 if self._hears else self._lag_ms * 3 // 2
        self.bound_ms = max(store_ms, BROKER_SESSION_MS + HEARTBEAT_MS, leader_ms) + CLIENT_MS

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        if self._wants_hearing is not None:
            settings["pybroker.liveness.timeout.ms"] = "500" if self._wants_hearing else "0"
        self._hears = settings["pybroker.liveness.timeout.ms"] != "0"
        self._lag_ms = LAG_MS if self._hears else DEAF_LAG_MS
        return {
            **settings,
            "broker.session.timeout.ms": str(BROKER_SESSION_MS),
            "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
            "replica.lag.time.max.ms": str(self._lag_ms),
            "leader.imbalance.check.interval.seconds": "5",
        }

    @property
    def now_ms(self) -> int:
        """Virtual time."""
        return self.scheduler.now_us // 1000

    def patient_client(self, name: str) -> ClusterClient:
        """A client that asks every broker in turn."""
        addresses = [(process.host, PORT) for process in self.processes]
        return ClusterClient(name, self.network, addresses, _InTurn())  # type: ignore[arg-type]

    def _fault_counts(self) -> dict[str, int]:
        return self.counts

    def _check_step(self) -> None:
        super()._check_step()
        if self.now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = self.now_ms
            for pulse in self.pulses:
                pulse.look()

    # --- the scenario ------------------------------------------------------------------------------------------------

    async def _scenario(self) -> None:
        admin = self.client("admin")
        await self._create_topics(admin)
        await self._until(self._all_in_sync, "every replica is in sync")
        self.pulses = [Pulse(self, index) for index in range(PARTITIONS)]
        tasks = [task for pulse in self.pulses for task in pulse.begin()]
        end_ms = self.now_ms + (1 if self.aim is not None else self._active_ms)
        while self.now_ms < end_ms:
            await admin.sleep(self.random.randrange(100, 8_000))
            await self._cut(admin.sleep)
            await self._until(self._all_in_sync, f"every replica is in sync again after {self.cut_now}")
        self.calm = self.leaving = True
        await self._within(tasks, "every client ends")
        self._finished = True

    async def _cut(self, sleep: Callable[[float], Any]) -> None:
        """Cut one way, or several of one broker's, for a while."""
        one, hosts, direction = self._aimed(self.aim) if self.aim is not None else self._drawn()
        ways = [(one, each) for each in hosts if direction != TO_IT]
        ways += [(each, one) for each in hosts if direction != FROM_IT]
        lasts_ms = int(self.bound_ms * (1.5 if self.aim is not None else self.random.choice((0.3, 1.5, 3))))
        names = {process.host: process.name for process in self.processes} | {STORE_HOST: "the store"}
        names[self._controller().host] += " (controller)"
        to = ", ".join(names[each] for each in hosts)
        self.cut_now = f"{names[one]} cut from {to}, {direction}, for {lasts_ms} ms"
        self.counts[direction] = self.counts.get(direction, 0) + 1
        self.trace("FAULT", self.cut_now)
        for way in ways:
            self.network.cut(*way)
        await sleep(lasts_ms)
        for way in ways:
            self.network.heal(*way)
        self.trace("FAULT", "healed")

    def _drawn(self) -> tuple[str, list[str], str]:
        """Whose way, to whom, and in which direction."""
        random, processes = self.random, self.processes
        one, other = random.sample(processes, 2)
        kind = random.choice(("broker", "broker", "store", "all"))
        rest = [each.host for each in processes if each is not one]
        hosts = {"broker": [other.host], "store": [STORE_HOST], "all": rest}[kind]
        return one.host, hosts, random.choice(DIRECTIONS)

    def _aimed(self, aim: Aim) -> tuple[str, list[str], str]:
        controller = self._controller()
        others = self.random.sample([each for each in self.processes if each is not controller], 2)
        one, rest = (controller, others) if aim.whose == CONTROLLER else (others[0], [others[1], controller])
        hosts = {CONTROLLER: [controller.host], BROKER: [rest[0].host], STORE: [STORE_HOST]}
        return one.host, hosts.get(aim.target, [each.host for each in rest]), aim.direction

    def _controller(self) -> Process:
        image = self.newest_image()
        return self.processes[0 if image is None else max(image.controller_id, 0)]
