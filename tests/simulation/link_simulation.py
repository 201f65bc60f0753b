"""A run with two clusters and a link: the one mirrors topics of the other until it takes writes itself.

Owns: the scenario that a seed stands for, and the invariants of a link.  Faults strike the brokers of both clusters,
and the ways between these.  At the source idempotent and transactional producers write as long as that goes on.  What
each cluster promises by itself is looked at as in any run (``cluster_observer``), a mirror's logs included.

The invariants
- What lies below a mirror's high watermark lies below the source's, at the same offset, byte by byte.
- A mirrored topic takes no writes; one that takes writes gets nothing more of its source.
- After a promotion at rest the mirror has all that its source has, with the same ends of transactions.
- No transaction of the source stays open where a topic takes writes.
- A producer id that one cluster has given is in no batch of a producer of the other's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

from pybroker.cluster import bootstrap
from pybroker.cluster.decisions.mirrored_topics import EPOCHS_AHEAD
from pybroker.cluster.image.link_states import FETCHED, STATES, WRITABLE
from pybroker_protocol.errors import ErrorCode
from tests.simulation import coordinator_replay
from tests.simulation.administrator import BROKER_RESOURCE, Administrator, config_request
from tests.simulation.client import Client, Disconnected
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.cluster_faults import FAULTS, between
from tests.simulation.cluster_observer import ClusterObserver, Partition, Replica
from tests.simulation.cluster_simulation import ClusterSimulation
from tests.simulation.model import REACHED, Batch, check
from tests.simulation.processes import PORT
from tests.simulation.producers import CarelessProducer, IdempotentProducer
from tests.simulation.run import OUTPUTS, PARTITIONS, STEPS_MAX, TOPIC
from tests.simulation.transactions import Reader, TransactionalProducer

if TYPE_CHECKING:
    from tests.simulation.run import Outcome

SAME_BYTES = "what is mirrored is the source's at the same offset, byte by byte"
READ_ONLY = "a mirrored topic takes no writes"
NOTHING_MORE = "a topic that takes writes gets nothing more of its source"
ALL_IS_HERE = "a promoted topic has all that its source has"
IDS = "producer ids of two clusters never meet"

LINK = "west"
MIRRORED = [(topic, index) for topic in (TOPIC, OUTPUTS) for index in range(PARTITIONS)]
FAIL_OVER, PROMOTE, PROMOTE_AT_REST = WAYS = ("failover", "promote", "promote at rest")
CUT_MS = (500, 1_500, 4_000)


class MirrorObserver(ClusterObserver):
    """Of the cluster that mirrors: also what it has committed is judged, by what the source has."""

    source: ClusterObserver
    is_writable: Callable[[str], bool]
    written_to: set[Partition]  # partitions that have a batch of this cluster's own

    def _commit(self, part: Partition, where: str, replica: Replica, high: int, epoch: int) -> None:
        end_offset = self._model.log(*part).end_offset
        super()._commit(part, where, replica, high, epoch)
        if part in MIRRORED:
            for batch in self._model.log(*part).batches_from(end_offset):
                self._check_batch(part, where, batch)

    def _check_batch(self, part: Partition, where: str, batch: Batch) -> None:
        told = f"{where}: at {batch.base_offset}, of epoch {batch.leader_epoch}"
        if batch.leader_epoch < EPOCHS_AHEAD:
            check(part not in self.written_to, NOTHING_MORE, told)
            there = next(iter(self.source._model.log(*part).batches_from(batch.base_offset)), None)
            check(there == batch, SAME_BYTES, f"{told}, and the source has {there}")
        else:
            check(self.is_writable(part[0]), READ_ONLY, told)
            self.written_to.add(part)
            if batch.producer_id >= 0 and not batch.is_control:
                given = {producer_id for _, producer_id in self.source._producers}
                check(batch.producer_id not in given, IDS, f"{told}: {batch.producer_id} is one of the source's")


class MirrorCluster(ClusterSimulation):
    """The cluster that mirrors: a part of the run that its source is."""

    BROKERS = "mirror"
    NETWORK = "10.0.4."
    OBSERVER: ClassVar[type[ClusterObserver]] = MirrorObserver

    def __init__(self, source: ClusterSimulation, **options: Any) -> None:
        self._source = source
        super().__init__(source.seed, world=source.world, **options)
        self.retried = {*self.retried, ErrorCode.TOPIC_AUTHORIZATION_FAILED}  # of a broker that has not heard of it yet
        assert isinstance(self.observer, MirrorObserver)
        self.observer.source = source.observer
        self.observer.written_to = set()
        self.observer.is_writable = lambda topic: self.state_of(topic) in WRITABLE

    def _settings(self) -> dict[str, str]:
        return {
            **super()._settings(),
            "auto.create.topics.enable": "false",
            f"pybroker.links.{LINK}.bootstrap.servers": ",".join(f"{p.host}:{PORT}" for p in self._source.processes),
            f"pybroker.links.{LINK}.topics": f"{TOPIC},{OUTPUTS[:3]}*",
            f"pybroker.links.{LINK}.refresh.interval.ms": "500",
        }

    def state_of(self, topic: str) -> str:
        """How a topic stands by the newest image; "" where it is not mirrored yet."""
        image = self.newest_image()
        mirror = None if image is None else image.mirrors.get(topic)
        return "" if mirror is None else mirror.state

    def are_all(self, states: Container[str]) -> bool:
        """Whether each mirrored topic is in one of these states."""
        return all(self.state_of(topic) in states for topic in (TOPIC, OUTPUTS))

    def end_of_run(self) -> None:
        """Nothing is left of it on the disk."""
        shutil.rmtree(self._root, ignore_errors=True)


class LinkSimulation(ClusterSimulation):
    """One run: the source, whose ``mirror`` is another cluster.

    ``way``: how the mirror comes to take writes, as the seed draws it when unset.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        active_ms: int = 20_000,
        faults: frozenset[str] = frozenset(FAULTS),
        way: str | None = None,
        write_trace: Callable[[str], None] | None = None,
        steps_max: int = 10 * STEPS_MAX,
    ) -> None:
        options: dict[str, Any] = {"brokers": brokers, "with_groups": False, "active_ms": active_ms, "faults": faults}
        super().__init__(seed, write_trace=write_trace, steps_max=steps_max, **options)
        self.mirror = MirrorCluster(self, **options)
        self.way = way or self.random.choice(WAYS)
        self._chance = self.new_random()
        self._mean_cut_ms = self._chance.choice((1_000, 4_000, 16_000))

    def run(self) -> Outcome:
        """See ``Run``."""
        try:
            return super().run()
        finally:
            self.mirror.end_of_run()

    @property
    def clusters(self) -> Sequence[ClusterSimulation]:
        return self, self.mirror

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(patch.object(bootstrap, "shared_store", lambda *_: self._ensemble().store()))
            stack.enter_context(coordinator_replay.watching(self._running_process))
            for cluster in self.clusters:
                stack.enter_context(cluster.observer.watching())
                stack.enter_context(cluster.peer_requests.watching())
            yield

    def _ensemble(self) -> Any:
        return self.cluster_of(self._running_process()).ensemble

    def _fault_counts(self) -> dict[str, int]:
        here, there = self.faults.counts, self.mirror.faults.counts
        return {kind: count + there[kind] for kind, count in here.items()}

    # --- what strikes the link ---------------------------------------------------------------------------------------

    def _cut_later(self) -> None:
        delay_us = int(self._chance.expovariate(1 / self._mean_cut_ms) * 1000)
        self.scheduler.after(delay_us, None, self._cut)

    def _cut(self) -> None:
        """A broker of the mirror loses some of the source's, or the whole source, both ways or one."""
        if self.calm:
            return
        random, sources = self._chance, self.processes
        here = random.choice(self.mirror.processes)
        there = random.sample(sources, random.randint(1, len(sources)))
        one_way = random.choice((slice(0, 2), slice(0, 2), slice(0, 1), slice(1, 2)))
        ways = [way for each in there for way in between(here.host, each.host)[one_way]]
        names = ", ".join(each.name for each in there)
        self.trace("FAULT", f"link cut {self.faults.cut_for_a_while(ways, f'{here.name} and {names}', CUT_MS)}")
        self._cut_later()

    def _hold_link(self, is_cut: bool) -> None:
        """No broker of the mirror reaches its source, so that it lags; or each does again."""
        act = self.network.cut if is_cut else self.network.heal
        for here in self.mirror.processes:
            for there in self.processes:
                for way in between(here.host, there.host):
                    act(*way)

    # --- the scenario ------------------------------------------------------------------------------------------------

    async def _scenario(self) -> None:
        admin, here = self.client("admin"), self.mirror.client("mirror-admin")
        await self._create_topics(admin)
        self._cut_later()
        intruder = CarelessProducer(self.mirror, "intruder", TOPIC, PARTITIONS, self._chance.randint(10, 40))
        writers = [self.scheduler.create_task(writer.run()) for writer in (*self._producers(), intruder)]
        readers = self._readers_of(self) + self._readers_of(self.mirror)
        reading = [self.scheduler.create_task(reader.run()) for reader in readers]
        busy = [self.scheduler.create_task(each.run()) for each in self._administrators()]
        await admin.sleep(self._active_ms * self._chance.uniform(0.2, 0.8))
        if self.way != PROMOTE_AT_REST:
            writers += await self._cut_over(here)
        await admin.sleep(self._active_ms * 0.3)
        await self._come_to_rest(admin, writers + busy)
        if self.way == PROMOTE_AT_REST:
            writers = await self._cut_over(here)
            self._check_all_is_here()
            await self._within(writers, "every producer's batches are acknowledged after the cut-over")
        await self.mirror._at_rest(here)  # who reads what is committed comes to the end then
        await self._until(lambda: self._have_read_all(readers[:2]), "every reader of the source has read everything")
        await self.mirror._until(lambda: self.mirror._have_read_all(readers[2:]), "and every reader of the mirror")
        self.leaving = self.mirror.leaving = True
        await self._within(reading, "every reader ends")
        for cluster in self.clusters:
            cluster.model.check_transactions()
        await self.mirror._restart_all(here)
        self._finished = True

    async def _come_to_rest(self, admin: Client, writers: list[Any]) -> None:
        """Faults end, everything is written, and no transaction of the source is open there."""
        self.calm = self.mirror.calm = True
        for cluster in self.clusters:
            cluster.faults.end()
        self.trace("CALM", "the faults have ended")
        if self.way == PROMOTE_AT_REST:
            await self._until(lambda: "" if self.mirror.are_all(FETCHED) else "not yet", "topics are mirrored")
            self._hold_link(True)
        await self._within(writers, "every producer's batches are acknowledged")
        for cluster in self.clusters:
            await cluster._until(cluster._all_in_sync, f"every replica of {cluster.BROKERS} is in sync again")
        await self._at_rest(admin)

    def _producers(self) -> list[IdempotentProducer | TransactionalProducer | CarelessProducer]:
        random, writers = self._chance, self._writers_of(self, "")
        writers.append(CarelessProducer(self, "careless", TOPIC, PARTITIONS, random.randint(10, 60)))
        return writers

    def _writers_of(
        self, cluster: ClusterSimulation, suffix: str
    ) -> list[IdempotentProducer | TransactionalProducer | CarelessProducer]:
        """Idempotent producers, and transactional ones whose ids are the same in both clusters."""
        random = self._chance
        writers: list[IdempotentProducer | TransactionalProducer | CarelessProducer] = []
        for i in range(random.randint(1, 2)):
            producer = IdempotentProducer(cluster, f"producer{suffix}-{i}", TOPIC, PARTITIONS, random.randint(20, 80))
            producer.pauses_ms = (1, 200, 1_000)
            writers.append(producer)
        for i, topic in enumerate((TOPIC, OUTPUTS)):
            count = random.randint(4, 12)
            transactor = TransactionalProducer(
                cluster, f"transactor{suffix}-{i}", topic, PARTITIONS, second_protocol=True, count=count
            )
            transactor.transactional_id = f"transactor-{i}"
            writers.append(transactor)
        return writers

    def _readers_of(self, cluster: ClusterSimulation) -> list[Reader]:
        return [Reader(cluster, f"{cluster.BROKERS}-{careful}", MIRRORED, careful) for careful in (False, True)]

    def _administrators(self) -> list[Administrator]:
        """Some runs have them: replicas move, and leaders change, on either side."""
        partitions = dict.fromkeys((TOPIC, OUTPUTS), PARTITIONS)
        return [
            Administrator(cluster, f"administrator of {cluster.BROKERS}", partitions)
            for cluster in self.clusters
            if self._chance.random() < 0.5
        ]

    # --- the cut-over ------------------------------------------------------------------------------------------------

    async def _cut_over(self, here: Client) -> list[Any]:
        """The mirror is to take writes; who writes to it begins."""
        await self._until(lambda: "" if self.mirror.are_all(STATES) else "not yet", "topics are mirrored")
        setting = FAIL_OVER if self.way == FAIL_OVER else PROMOTE
        self.trace("LINK", self.way)
        await self._set(here, f"pybroker.links.{LINK}.{setting}", f"{TOPIC},{OUTPUTS}")
        if self.way == PROMOTE_AT_REST:
            self._hold_link(False)
        REACHED[f"a {self.way}"] += 1
        open_now = sum(bool(self.mirror.model.log(*part).open_transactions) for part in MIRRORED)
        REACHED[f"a {self.way} under an open transaction of the source"] += bool(open_now)
        if self.calm:
            await self._until(lambda: "" if self.mirror.are_all(WRITABLE) else "not yet", "the mirror takes writes")
        return [self.scheduler.create_task(writer.run()) for writer in self._writers_of(self.mirror, "-here")]

    @staticmethod
    async def _set(client: Client, name: str, value: str) -> None:
        assert isinstance(client, ClusterClient)
        while True:
            with suppress(Disconnected):
                response = await client.ask(config_request(BROKER_RESOURCE, "", name, value), 1)
                if response.responses[0].error_code == 0:
                    return
            client.disconnect()
            await client.sleep(100)

    def _check_all_is_here(self) -> None:
        for part in MIRRORED:
            original, mirrored = self.model.log(*part).batches, self.mirror.model.log(*part).batches
            check(mirrored[: len(original)] == original, ALL_IS_HERE, f"{part}: {len(mirrored)} of {len(original)}")
