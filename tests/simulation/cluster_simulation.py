"""A run with several brokers of one cluster: clients and faults under one seed, invariants checked after every event.

Owns: the scenario that a seed stands for.  At its end every replica is in sync again, whatever befell its broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar
from unittest.mock import patch

from pybroker.cluster import bootstrap
from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.cluster.image.coordinator_table import GROUPS, TRANSACTIONS
from pybroker.coordinators.partitioning import partition_for
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.describe_transactions import DescribeTransactionsRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation import coordinator_replay
from tests.simulation.administrator import Administrator, set_config
from tests.simulation.client import Client, Disconnected
from tests.simulation.cluster_client import LEADER_IS_ELSEWHERE, ClusterClient
from tests.simulation.cluster_faults import FAULTS, ClusterFaults
from tests.simulation.cluster_observer import ClusterObserver
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.consuming import GROUP_IS_ELSEWHERE, find_coordinator
from tests.simulation.fleeting import FleetingReader, FleetingWriter
from tests.simulation.full_disks import FullDisks
from tests.simulation.lost_disks import give_up_lost_disks
from tests.simulation.members import ClassicMember
from tests.simulation.model import check
from tests.simulation.network import Address
from tests.simulation.old_reader import OldReader
from tests.simulation.peer_requests import PeerRequests
from tests.simulation.processes import PORT, Process, World
from tests.simulation.producers import RETRIED, CarelessProducer, IdempotentProducer
from tests.simulation.run import CALM_MS_MAX, OUTPUTS, PARTITIONS, STEPS_MAX, TOPIC, Run
from tests.simulation.store import Ensemble
from tests.simulation.switching_members import SwitchingMember
from tests.simulation.topic_administrator import TopicAdministrator
from tests.simulation.transactions import Reader, TransactionalProducer
from tests.simulation.watermark_watcher import WatermarkWatcher
from tests.simulation.workload import (
    CLEANING,
    COORDINATORS_SEGMENT_BYTES,
    TABLE,
    classic_members,
    consumer_members,
    coordinator_settings,
    readers_of,
    table_writers,
    topic_settings,
    transactional_producers,
)

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage

COORDINATORS_PARTITIONS = 2
ENDED = {"Empty", "CompleteCommit", "CompleteAbort"}
METADATA_URL = "sqlite:////simulated"  # of whatever kind: the store is made here

Member = ClassicMember | ConsumerMember | SwitchingMember


class ClusterSimulation(Run):
    """See the module's docstring.  ``active_ms`` is virtual time; ``replication_factor`` None: as many as brokers.

    ``with_groups``: there are groups and transactions, too; without them a run is short.  ``with_old_readers``: there
    are readers that know no leader epochs: where no broker is cut off they are told nothing wrong all the same.
    ``aim_share``: how often a fault is aimed at an election or a request, from 0 to 1; the seed draws it when unset.
    ``first_protocol_share``: how many of the transactional clients speak the first protocol; the seed draws that, too.
    """

    BROKERS: ClassVar[str] = "broker"  # what they are called
    NETWORK: ClassVar[str] = "10.0.1."
    OBSERVER: ClassVar[type[ClusterObserver]] = ClusterObserver

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        replication_factor: int | None = None,
        with_groups: bool = True,
        with_old_readers: bool = False,
        active_ms: int = 20_000,
        faults: frozenset[str] = frozenset(FAULTS),
        aim_share: float | None = None,
        first_protocol_share: float | None = None,
        write_trace: Callable[[str], None] | None = None,
        steps_max: int = 5 * STEPS_MAX,
        world: World | None = None,
    ) -> None:
        super().__init__(seed, active_ms, write_trace, steps_max, world)
        random = self.random
        self._with_groups = with_groups
        self._with_old_readers = with_old_readers
        self.fsync_before_ack = random.random() < 0.5
        self.large_batches = random.random() < 0.5  # else many small segments
        self.replication_factor = replication_factor or brokers
        self.min_insync_replicas = random.randint(1, max(self.replication_factor - 1, 1))
        self._coordinators: dict[str, dict[tuple[int, str], Address]] = {}
        self.late_requests_ms = 20_000  # a partition may hold them as long
        self.retried = RETRIED | LEADER_IS_ELSEWHERE | {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
        self.session_timeout_ms = random.choice((2_000, 6_000))
        self._is_administered = random.random() < 0.5
        self.cleans = with_groups and random.random() < 0.4  # a cleaner, with a topic and the coordinators' to clean
        self._deletions_go = random.random() < 0.5
        if self.cleans:
            self.model.compacted_topics = {
                TABLE: self._deletions_go,
                **dict.fromkeys(COORDINATORS_SEGMENT_BYTES, False),
            }
        drawn = 0.5 if with_groups and random.random() < 0.3 else 0.0
        self._first_protocol_share = drawn if first_protocol_share is None else first_protocol_share
        self.ensemble = Ensemble(self.world, self.session_timeout_ms)
        self.ensemble.tears_snapshots = False  # as SQLite: brokers do not take them as they may be yet
        common = self._settings()
        log_dirs = random.choice((("a",), ("a", "b"))) if self._is_administered else ("a",)
        for broker_id in range(brokers):
            data_dir = self._root / str(broker_id)
            dirs = [data_dir / name for name in log_dirs]
            for directory in dirs:
                directory.mkdir(parents=True)
            settings = {**common, "node.id": str(broker_id)}
            name, host = f"{self.BROKERS}-{broker_id}", f"{self.NETWORK}{broker_id}"
            process = self.world.broker(host, data_dir, settings, name, dirs)
            process.monotonic_origin_ms = random.randrange(1 << 32)
            self.processes.append(process)
        self.observer = self.OBSERVER(self.model, self.scheduler, self.processes, self.ensemble)
        self.faults = ClusterFaults(self, faults, aim_share)
        self.peer_requests = PeerRequests(self)
        self.observer.on_election = self.faults.elected
        self.full_disks = FullDisks(self)

    def _settings(self) -> dict[str, str]:
        random = self.random
        return {
            **coordinator_settings(random),
            "offsets.topic.replication.factor": str(self.replication_factor),
            "transaction.state.log.replication.factor": str(self.replication_factor),
            "transaction.state.log.min.isr": str(self.min_insync_replicas),
            "pybroker.metadata": METADATA_URL,
            "pybroker.metadata.session.timeout.ms": str(self.session_timeout_ms),
            "pybroker.liveness.timeout.ms": random.choice(("0", "500")),
            "pybroker.fsync.before.ack": str(self.fsync_before_ack).lower(),
            "default.replication.factor": str(self.replication_factor),
            "min.insync.replicas": str(self.min_insync_replicas),
            "replica.lag.time.max.ms": random.choice(("1500", "4000")),
            "transaction.partition.verification.enable": random.choice(("true", "true", "true", "false")),
            "log.retention.check.interval.ms": "1000",
            "log.cleaner.enable": str(self.cleans).lower(),
            **(CLEANING if self.cleans else {}),
            "replica.high.watermark.checkpoint.interval.ms": "2000",
            "log.flush.offset.checkpoint.interval.ms": random.choice(("3000", "60000")),
        }

    def client(self, name: str) -> Client:
        addresses = [(process.host, PORT) for process in self.processes]
        shared = self._coordinators.setdefault(name.partition("/")[0], {})
        return ClusterClient(name, self.network, addresses, self.new_random(), shared)

    def may_be_fenced(self) -> bool:
        return True

    def newest_image(self) -> ClusterImage | None:
        """The newest that any broker has; None where none runs."""
        services = [process.server.services for process in self.processes if process.server]
        images = [each.metadata.image for each in services if getattr(each, "metadata", None)]  # one may just begin
        return max(images, key=lambda image: image.epoch, default=None)

    def _coordinator(self, group: str) -> Process | None:
        """As the newest image has it: one that is cut off may not know that it was deposed."""
        image = self.newest_image()
        topic = None if image is None else image.topics_by_name.get(GROUPS.topic)
        leader = NO_LEADER if topic is None else topic.partitions[partition_for(group, len(topic.partitions))].leader
        return None if leader == NO_LEADER else self.processes[leader]

    def is_current(self, client: Client, group: str) -> bool:
        assert isinstance(client, ClusterClient)
        process = self._coordinator(group)
        return process is not None and client.coordinator is not None and process.life is client.coordinator

    def knows_members(self, client: Client, group: str) -> bool:
        return self.is_current(client, group)

    def members_of(self, group: str) -> set[str]:
        process = self._coordinator(group)
        return set() if process is None else self._members_at([process], group)

    def serves(self, process: Process) -> bool:
        """Whether the broker has started and accepts connections."""
        return (process.host, PORT) in self.network.listeners

    # --- the run -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        with (
            patch.object(bootstrap, "shared_store", lambda *_: self.ensemble.store()),
            self.observer.watching(),
            coordinator_replay.watching(self._running_process),
            self.peer_requests.watching(),
        ):
            yield

    def _running_process(self) -> Process:
        """The process whose event runs."""
        life = self.scheduler.life
        assert life is not None
        assert life.process is not None
        return life.process

    @property
    def clusters(self) -> Sequence[ClusterSimulation]:
        """All of the run's, this one at first."""
        return (self,)

    def cluster_of(self, process: Process) -> ClusterSimulation:
        """That of the run which a broker belongs to."""
        return next(cluster for cluster in self.clusters if process in cluster.processes)

    def begin(self) -> None:
        """Start all brokers, and let faults strike."""
        for process in self.processes:
            process.disk.adopt()
        self.trace(
            "CLUSTER",
            f"{len(self.processes)} brokers, replication factor {self.replication_factor}, "
            f"min.insync.replicas {self.min_insync_replicas}, fsync before ack: {self.fsync_before_ack}",
        )
        self.faults.start_all()
        self.faults.begin()
        self.full_disks.begin()

    def _run(self) -> None:
        self.scheduler.create_task(self._scenario())
        for cluster in self.clusters:
            cluster.begin()
        promise_ended = ""
        while not self._finished and not promise_ended:
            went_on, dead = self.world.step()
            check(went_on, "everything comes to rest", "no event is left, and not everybody has finished")
            for process in dead:
                cluster = self.cluster_of(process)
                cluster.observer.look(process, is_dead=True)  # what it had committed may be acknowledged already
                cluster.faults.died(process, "died in a system call", power_failed=False)
            self._check_step()
            life = self.scheduler.last_life
            for cluster in self.clusters:
                if life is not None and life.process in cluster.processes:
                    cluster.observer.look(life.process)
                promise_ended = promise_ended or cluster.observer.promise_ended
        if promise_ended:
            self.trace("PROMISE", f"has ended: {promise_ended}")

    def _fault_counts(self) -> dict[str, int]:
        return self.faults.counts

    # --- the scenario ------------------------------------------------------------------------------------------------

    async def _scenario(self) -> None:
        admin = self.client("admin")
        await self._create_topics(admin)
        writers, readers = self._clients()
        transactional = self._transactional_producers() if self._with_groups else []
        tables = table_writers(self, self.random) if self.cleans else []
        readers += readers_of(self, [TABLE]) if self.cleans else []
        transformers = [client for client in transactional if client.inputs]
        members = self._members() if self._with_groups else []
        groups: list[Member | TransactionalProducer] = [*members, *transformers]
        all_writers = [*writers, *tables, *(client for client in transactional if not client.inputs)]
        writer_tasks = [self.scheduler.create_task(writer.run()) for writer in all_writers]
        reader_tasks = [self.scheduler.create_task(reader.run()) for reader in (*readers, *groups)]
        fleeting = self._fleeting_readers()
        reader_tasks += [self.scheduler.create_task(reader.run()) for reader in fleeting]
        if self._is_administered:
            administrators: list[Administrator] = [
                self._administrator(),
                TopicAdministrator(self, "topic-administrator"),
            ]
            busy: list[Administrator | FleetingWriter] = [
                *administrators,
                *(FleetingWriter(self, f"fleeting-writer-{i}") for i in range(2)),
            ]
            writer_tasks += [self.scheduler.create_task(each.run()) for each in busy]
        await admin.sleep(self._active_ms)
        self.calm = True
        self.faults.end()
        self.trace("CALM", "the faults have ended")
        if self.faults.counts["wiped disk"]:
            reader_tasks.append(self.scheduler.create_task(give_up_lost_disks(self)))
        await self._within(writer_tasks, "every producer's batches are acknowledged")
        await self._until(self._all_in_sync, "every replica is in sync again")
        await self._until(lambda: self._have_read_all(readers), "every reader has read everything")
        for reader in fleeting:
            await self._until(reader.has_read_all, "what is left of what was deleted is read")
        await self._at_rest(admin, TOPIC)  # what is committed is to be seen before groups can have read everything
        for group in dict.fromkeys(client.group for client in groups):
            await self._caught_up(admin, group)
        self.leaving = True
        await self._within(reader_tasks, "every reader ends, and every member leaves its group")
        await self._at_rest(admin)
        for process in self.processes:
            coordinator_replay.check_at_rest(process)
        self._check_processed()
        self.model.check_transactions()
        for transformer in transformers:
            self._check_transformed(transformer.group)
        await self._restart_all(admin)
        for group in dict.fromkeys(client.group for client in groups):
            await self._caught_up(admin, group)
        for producer in transactional:
            await self._has_no_open_transaction(admin, producer.transactional_id)
        self._finished = True

    async def _has_no_open_transaction(self, admin: Client, transactional_id: str) -> None:
        """A coordinator that has just started says that the last transaction has ended."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        while True:
            (found,) = (await admin.insist(request, 0)).transaction_states
            if found.error_code not in GROUP_IS_ELSEWHERE:
                break
            await admin.sleep(200)
        told = f"{transactional_id}: error {found.error_code}, {found.transaction_state}, {found.topics}"
        ended = found.transaction_state in ENDED and not found.topics
        check(not found.error_code and ended, "no transaction hangs", told)

    async def _create_topics(self, admin: Client) -> None:
        wanted = topic_settings(self.cleans, self.large_batches, self._deletions_go)
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=PARTITIONS,
                replication_factor=self.replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in own.items()],
            )
            for name, own in wanted.items()
        ]
        while True:
            request = CreateTopicsRequest(topics=topics, timeout_ms=5_000, validate_only=False)
            response = await admin.insist(request, 5, 6_000)
            if all(result.error_code in {0, ErrorCode.TOPIC_ALREADY_EXISTS} for result in response.topics):
                break
            admin.disconnect()  # another broker may know better
            await admin.sleep(200)
        asked = [MetadataRequestTopic(topic_id=bytes(16), name=name) for name in wanted]
        described = await admin.insist(MetadataRequest(topics=asked), 12)
        while any(topic.error_code for topic in described.topics):  # of a broker that has not heard of them yet
            await admin.sleep(100)
            described = await admin.insist(MetadataRequest(topics=asked), 12)
        self.topic_ids = {topic.name: topic.topic_id for topic in described.topics}
        if self.cleans:
            for key_type, (topic, segment_bytes) in enumerate(COORDINATORS_SEGMENT_BYTES.items()):
                await find_coordinator(admin, "any", key_type)
                await self._set_segment_bytes(admin, topic, segment_bytes)

    @staticmethod
    async def _set_segment_bytes(admin: Client, topic: str, segment_bytes: str) -> None:
        while True:
            with suppress(Disconnected):
                if await set_config(admin, topic, "internal.segment.bytes", segment_bytes) == 0:
                    return
            await admin.sleep(100)

    def _clients(self) -> tuple[list[IdempotentProducer | CarelessProducer], list[Reader | WatermarkWatcher]]:
        """Who writes until everything is written, and who reads until told to leave."""
        random = self.random
        writers: list[IdempotentProducer | CarelessProducer] = []
        for i in range(random.randint(1, 3)):
            producer = IdempotentProducer(self, f"producer-{i}", TOPIC, PARTITIONS, random.randint(30, 150))
            producer.pauses_ms = (1, 200, 1_000)  # there is something to do as long as faults strike
            writers.append(producer)
        if random.random() < 0.5:
            writers.append(CarelessProducer(self, "careless", TOPIC, PARTITIONS, random.randint(20, 80)))
        partitions = [(TOPIC, index) for index in range(PARTITIONS)]
        readers: list[Reader | WatermarkWatcher] = [
            Reader(self, f"reader-{i}", partitions, read_committed=bool(i % 2)) for i in range(random.randint(1, 2))
        ]
        readers.append(WatermarkWatcher(self, "watcher", partitions))
        for i in range(3 if self._with_old_readers else 0):
            readers.append(OldReader(self, f"old-reader-{i}", partitions, read_committed=False))
        return writers, readers

    @property
    def speaks_first_protocol(self) -> bool:
        """Whether there are clients of the first transaction protocol."""
        return self._first_protocol_share > 0

    def _transactional_producers(self) -> list[TransactionalProducer]:
        random, share = self.random, self._first_protocol_share
        return transactional_producers(self, random, lambda: not share or random.random() < 1 - share)

    def _members(self) -> list[Member]:
        random = self.random
        return [*classic_members(self, random), *(consumer_members(self, random) if random.random() < 0.5 else ())]

    def _fleeting_readers(self) -> list[FleetingReader]:
        return [FleetingReader(self, f"fleeting-reader-{i}") for i in range(2)] if self._is_administered else []

    def _administrator(self) -> Administrator:
        partitions = dict.fromkeys((TOPIC, OUTPUTS), PARTITIONS)
        if self._with_groups:
            partitions |= dict.fromkeys([TABLE] if self.cleans else [], PARTITIONS)
            partitions |= dict.fromkeys((GROUPS.topic, TRANSACTIONS.topic), COORDINATORS_PARTITIONS)
        return Administrator(self, "administrator", partitions)

    # --- at rest -----------------------------------------------------------------------------------------------------

    async def _until(self, reached: Callable[[], str], what: str) -> None:
        """Wait until ``reached`` has nothing to complain of; it must not take longer than a calm time may."""
        deadline_us = self.scheduler.now_us + CALM_MS_MAX * 1000
        watch = self.client("watch")
        while complaint := reached():
            check(self.scheduler.now_us < deadline_us, "everything comes to rest", f"not in time: {what}: {complaint}")
            await watch.sleep(200)

    def _all_in_sync(self) -> str:
        for process in self.processes:
            if process.server is None or not self.serves(process):
                return f"{process.name} does not serve"
            for topic in process.server.services.metadata.image.topics_by_name.values():
                for index, partition in enumerate(topic.partitions):
                    if set(partition.isr) != set(partition.replicas) or partition.leader < 0:
                        return f"{topic.name}-{index} on {process.name}: leader {partition.leader}, ISR {partition.isr}"
                    if partition.adding_replicas or partition.removing_replicas:
                        return f"{topic.name}-{index} on {process.name} is being reassigned"
        return ""

    def _have_read_all(self, readers: Sequence[Reader | WatermarkWatcher]) -> str:
        for reader in readers:
            if isinstance(reader, Reader):
                for part, position in reader.data.positions.items():
                    end = self.model.log(*part).end_offset
                    if position < end:
                        return f"{reader.data.group} is at {position} of {end} in {part[0]}-{part[1]}"
        return ""

    async def _restart_all(self, admin: Client) -> None:
        """Every broker stops cleanly and starts again; the others carry on, and all come to be in sync once more."""
        for process in self.processes:
            lives = process.lives
            self.scheduler.after(0, process.life, self.faults.stop, process)
            await self._until(lambda: "" if process.lives > lives else "it runs still", f"{process.name} stops")  # noqa: B023
        await self._until(self._all_in_sync, "every replica is in sync after restarts")
        for process in self.processes:
            self.observer.check_at_rest(process)
            coordinator_replay.check_at_rest(process)
        await admin.sleep(1_000)
