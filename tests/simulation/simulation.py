"""A run with one broker: clients and faults under one seed, with the invariants checked after every event.

Owns: the scenario that a seed stands for.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.client import HOST, Client
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.consuming import find_coordinator
from tests.simulation.faults import FAULTS, Faults
from tests.simulation.members import ClassicMember
from tests.simulation.model import check
from tests.simulation.observer import Observer
from tests.simulation.producers import IdempotentProducer
from tests.simulation.run import OUTPUTS, PARTITIONS, STEPS_MAX, TOPIC, Run
from tests.simulation.switching_members import SwitchingMember
from tests.simulation.transactions import Reader, TransactionalProducer
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

Writer = IdempotentProducer | TransactionalProducer
Member = ClassicMember | ConsumerMember | SwitchingMember


class Simulation(Run):
    """See the module's docstring.  ``active_ms`` is virtual time."""

    def __init__(
        self,
        seed: int,
        *,
        active_ms: int = 20_000,
        faults: frozenset[str] = frozenset(FAULTS),
        write_trace: Callable[[str], None] | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        super().__init__(seed, active_ms, write_trace, steps_max)
        self.fsync_before_ack = self.random.random() < 0.5
        self.large_batches = self.random.random() < 0.5  # else many small segments
        self.cleans = self.random.random() < 0.5  # there is a cleaner, with a topic and the coordinators' own to clean
        if self.cleans:
            self.model.compacted_topics = {TABLE: True, **dict.fromkeys(COORDINATORS_SEGMENT_BYTES, False)}
        self.power_failed = False  # since the last start
        data_dir = self._root / "data"
        log_dirs = [data_dir / name for name in ("first", "second")]
        for path in (data_dir, *log_dirs):
            path.mkdir()
        settings = {"metadata.log.dir": str(data_dir), **self._settings()}
        self.process = self.world.broker(HOST, data_dir, settings, log_dirs=log_dirs)
        self.processes.append(self.process)
        self.disk = self.process.disk
        self.observer = Observer(self.model, log_dirs)
        self.faults = Faults(self, faults)

    def _settings(self) -> dict[str, str]:
        random = self.random
        return {
            **coordinator_settings(random),
            "pybroker.fsync.before.ack": str(self.fsync_before_ack).lower(),
            "log.cleaner.enable": str(self.cleans).lower(),
            **(CLEANING if self.cleans else {}),
            "replica.high.watermark.checkpoint.interval.ms": "2000",
            "log.flush.offset.checkpoint.interval.ms": random.choice(("3000", "60000")),
        }

    def _run(self) -> None:
        self.disk.adopt()
        self.process.start()
        self.trace("BROKER", f"life 1 begins; fsync before ack: {self.fsync_before_ack}")
        self.scheduler.create_task(self._scenario())
        self.faults.begin()
        while not self._finished:
            self._step()

    def _step(self) -> None:
        went_on, dead = self.world.step()
        check(went_on, "everything comes to rest", "no event is left, and not everybody has finished")
        if dead:
            self.observer.died()
            self.faults.died("died in a system call", power_failed=False)
        self._check_step()
        self.observer.look(self.process.server)

    def _fault_counts(self) -> dict[str, int]:
        return self.faults.counts

    # --- the scenario ------------------------------------------------------------------------------------------------

    async def _scenario(self) -> None:
        admin = self.client("admin")
        await self._create_topics(admin)
        writers, members = self._clients()
        transformers = [client for client in writers if isinstance(client, TransactionalProducer) and client.inputs]
        writer_tasks = [self.scheduler.create_task(writer.run()) for writer in writers if writer not in transformers]
        member_tasks = [
            self.scheduler.create_task(member.run()) for member in [*members, *transformers, *self._readers()]
        ]
        await admin.sleep(self._active_ms)
        self.calm = True
        self.faults.end()
        self.trace("CALM", "the faults have ended")
        await self._within(writer_tasks, "every producer's batches are acknowledged")
        for group in dict.fromkeys(client.group for client in [*members, *transformers]):
            await self._caught_up(admin, group)
        self.leaving = True
        await self._within(member_tasks, "every member leaves its group")
        await self._at_rest(admin)
        self._check_processed()
        self.model.check_transactions()
        for transformer in transformers:
            self._check_transformed(transformer.group)
        await self._stop_and_look(admin)
        self._finished = True

    async def _create_topics(self, admin: Client) -> None:
        wanted = topic_settings(self.cleans, self.large_batches, deletions_go=True)
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=PARTITIONS,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in own.items()],
            )
            for name, own in wanted.items()
        ]
        while True:
            response = await admin.insist(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=False), 5)
            if all(result.error_code in {0, ErrorCode.TOPIC_ALREADY_EXISTS} for result in response.topics):
                break
            await admin.sleep(100)
        asked = [MetadataRequestTopic(topic_id=bytes(16), name=name) for name in wanted]
        described = await admin.insist(MetadataRequest(topics=asked), 12)
        self.topic_ids = {topic.name: topic.topic_id for topic in described.topics}
        if self.cleans:
            for key_type, (topic, own_bytes) in enumerate(COORDINATORS_SEGMENT_BYTES.items()):
                await find_coordinator(admin, "any", key_type)
                await self._set_segment_bytes(admin, topic, own_bytes)

    async def _set_segment_bytes(self, admin: Client, topic: str, segment_bytes: str) -> None:
        config = AlterableConfig(name="internal.segment.bytes", config_operation=0, value=segment_bytes)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
        while True:
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            response = await admin.insist(request, 1)
            if response.responses[0].error_code == 0:
                return
            await admin.sleep(100)

    def _clients(self) -> tuple[list[Writer], list[Member]]:
        """Who writes until everything is written, and who reads until told to leave."""
        random = self.random
        writers: list[Writer] = [
            IdempotentProducer(self, f"producer-{i}", TOPIC, PARTITIONS, random.randint(20, 80))
            for i in range(random.randint(1, 2))
        ]
        writers += transactional_producers(self, random, lambda: random.random() < 0.5)
        if self.cleans:
            writers += table_writers(self, random)
        members: list[Member] = [*consumer_members(self, random)]
        members += classic_members(self, random)
        return writers, members

    def _readers(self) -> list[Reader]:
        return readers_of(self, [OUTPUTS, TABLE] if self.cleans else [OUTPUTS])

    async def _stop_and_look(self, admin: Client) -> None:
        """Nothing is parked or open any more; a clean stop and start keep everything."""
        for log in self.model.logs.values():
            check(
                not log.open_transactions,
                "no transaction hangs",
                f"{log.name}: open from {log.first_open_offset} on",
            )
        stopped: list[bool] = []
        self.scheduler.after(0, self.process.life, lambda: self.process.stop(lambda: stopped.append(True)))
        for _ in range(100):
            await admin.sleep(100)
            if stopped:
                break
        check(bool(stopped), "everything comes to rest", "the broker does not stop")
        self.process.start()
        lost = self.observer.restarted(power_failed=False, cuts=self.faults.cuts())
        check(not lost, "a clean stop keeps everything", lost)
