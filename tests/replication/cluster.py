"""Brokers that replicate one topic over a network and under a controller of the test, in virtual time.

Real: storage, ``ReplicaManager`` with all beside it, the handlers that followers ask, and the bytes of their requests.
In the test's hands: who leads, what each broker has heard of that, whom a broker reaches, and how long anything takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.operations import InSyncState
from pybroker.cluster.image.cluster_image import (
    BrokerRegistration,
    ClusterImage,
    ImageDelta,
    PartitionImage,
    TopicImage,
)
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.peers import CONTROL, PeerError, PeerFailure
from pybroker.config.broker import BrokerConfig
from pybroker.config.resources import MIN_INSYNC_REPLICAS, TOPIC
from pybroker.handlers import delete_records, fetch, list_offsets, offset_for_leader_epoch
from pybroker.handlers.context import Parked, RequestContext
from pybroker.replication.partition import ACKS_ALL, Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.log.log import Log
from pybroker.storage.results import AppendResult
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import request_class, response_class
from pybroker_protocol.schema import Request
from tests.handled import answer_of
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, Storage, read_all

LATENCY_MS = 2
LAG_MS = 10_000
LISTENER = "PLAINTEXT"
NAME = "t"
_HANDLERS = {1: fetch, 2: list_offsets, 21: delete_records, 23: offset_for_leader_epoch}


class Broker:
    """One broker: its storage, what it has heard of the cluster, and its partitions."""

    def __init__(self, cluster: Cluster, broker_id: int, epoch: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.epoch = epoch
        self.alive = True
        self.asked: list[tuple[str, Request]] = []
        self.storage = Storage(cluster.path / f"broker-{broker_id}", cluster.world, **cluster.storage_settings)
        self.metadata = MetadataCache()
        self.config = config = BrokerConfig.load(
            settings=[(name, str(value)) for name, value in cluster.settings.items()]
        )
        config.apply_dynamic(cluster.dynamic_settings, {})
        self.replicas = ReplicaManager(cluster.world.env, broker_id, self.metadata, self.storage.manager, config)
        self.replicas.peers = cast(Any, self)
        self.replicas.isr_changer = self
        self.replicas.own_epoch = lambda: epoch
        self.services = SimpleNamespace(
            authorizer=None,
            replicas=self.replicas,
            metadata=self.metadata,
            config=config,
            broker_id=broker_id,
            inter_broker_listener=LISTENER,
            quotas=None,
        )

    # What it knows, and has ------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """It learns what the cluster is now."""
        image, known = self.cluster.image, self.metadata.image
        if image is known or not self.alive:
            return
        before, after = known.topics_by_id, image.topics_by_id
        delta = ImageDelta(
            topics_created=tuple(topic for topic_id, topic in after.items() if topic_id not in before),
            topics_deleted=tuple(topic for topic_id, topic in before.items() if topic_id not in after),
            topics_changed=tuple(
                (before[topic_id], topic)
                for topic_id, topic in after.items()
                if topic_id in before and before[topic_id] is not topic
            ),
            brokers_changed=tuple({**known.brokers, **image.brokers}),
            configs_changed=tuple(
                resource
                for resource in {**known.configs, **image.configs}
                if known.configs.get(resource) != image.configs.get(resource)
            ),
            mirrors_changed=tuple(
                name
                for name in {**known.mirrors, **image.mirrors}
                if known.mirrors.get(name) != image.mirrors.get(name)
            ),
        )
        self.metadata.apply(image, delta)

    def partition(self, index: int = 0) -> Partition:
        """A partition that it leads."""
        found = self.replicas.partition(NAME, index)
        assert found is not None
        return found

    def log(self, index: int = 0) -> Log:
        found = self.storage.manager.get(NAME, index)
        assert found is not None
        return found.open()

    def offsets(self, index: int = 0) -> tuple[int, int, int]:
        """Log start, high watermark, log end."""
        log = self.log(index)
        return log.log_start_offset, log.high_watermark, log.log_end_offset

    def contents(self, index: int = 0) -> list[tuple[int, int, bytes]]:
        return read_all(self.log(index))

    def produce(
        self, acks: int = ACKS_ALL, *, index: int = 0, value: bytes = b"v", **fields: Any
    ) -> list[AppendResult]:
        """Append a batch of one record; its result is in the list once it is there."""
        results: list[AppendResult] = []
        records = memoryview(batch([value], **fields))
        result = self.partition(index).append(records, acks, 5_000, 13, results.append)
        if result is not None:
            results.append(result)
        return results

    # Peers and IsrChanger --------------------------------------------------------------------------------------------

    def ask(
        self,
        broker_id: int,
        request: Request,
        version: int,
        done: Callable[[Any | None, PeerError | None], None],
        *,
        timeout_ms: int,
        channel: str = CONTROL,
    ) -> None:
        self.asked.append((channel, request))
        self.cluster.deliver(self, broker_id, request, version, done, timeout_ms)

    def alter_partition(
        self,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Callable[[int, InSyncState | None], None],
    ) -> None:
        self.cluster.alter_partition(self, index, leader_epoch, partition_epoch, new_isr, done)

    # The other side --------------------------------------------------------------------------------------------------

    def serve(self, key: int, version: int, body: bytes, listener: str = LISTENER) -> Any:
        """What the handler answers to a request's bytes: a response, or a ``Parked`` one."""
        context = RequestContext()
        context.services = cast(Any, self.services)
        context.api_version = version
        context.listener = listener
        context.connection = cast(Any, SimpleNamespace(is_broker=listener == LISTENER, by_token=False))
        context.principal = "User:ANONYMOUS"
        request: Any = codec.decode(request_class(key), version, body)
        return answer_of(_HANDLERS[key].handle(context, request))

    def kill(self) -> None:
        """It is gone, with what it has not written; its files stay."""
        self.alive = False
        self.replicas.close()
        others = self.cluster.world.timers.pending
        self.storage.kill()
        for timer in others:
            if _owner(timer.callback) not in _of_storage(self.storage):
                timer.cancelled = False

    def stop(self) -> None:
        """It stops cleanly."""
        self.alive = False
        self.replicas.close()
        self.storage.close()


def _of_storage(storage: Storage) -> tuple[Any, ...]:
    return storage.manager, storage.manager._housekeeping


def _owner(callback: Any) -> Any:
    """The object whose method a timer calls, also from inside of it."""
    if hasattr(callback, "__self__"):
        return callback.__self__
    cells = [cell.cell_contents for cell in callback.__closure__ or ()]
    return next((cell for cell in cells if hasattr(cell, "_stopped")), None)


class Cluster:
    """See the module's docstring.  The image is the controller's; brokers hear of it when they are told to."""

    def __init__(
        self,
        path: Path,
        world: VirtualWorld,
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        partitions: int = 1,
        min_isr: int = 1,
        segment_bytes: int | None = None,
        storage_settings: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.path = path
        self.world = world
        self.storage_settings = storage_settings or {}
        self.settings = {"replica.lag.time.max.ms": LAG_MS} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self.dynamic_settings: dict[str, str] = {}
        self.cut: set[tuple[int, int]] = set()  # (from, to): no request gets there, and no answer comes back
        self.controller_answers = True
        self.controller_tells = True  # brokers hear at once of what it has changed
        self.refusal = 0  # what the controller refuses ISR changes with
        self.altered: list[tuple[int, ...]] = []
        self._broker_epoch = 100
        self.brokers: dict[int, Broker] = {}
        small = {} if segment_bytes is None else {"internal.segment.bytes": str(segment_bytes)}
        state = PartitionImage(replicas, replicas, replicas[0])
        topic = TopicImage(NAME, TOPIC_ID, (state,) * partitions)
        self.image = ClusterImage(
            epoch=1,
            topics_by_name={NAME: topic},
            topics_by_id={TOPIC_ID: topic},
            configs={(TOPIC, NAME): {MIN_INSYNC_REPLICAS: str(min_isr)} | small},
        )
        for broker_id in replicas:
            self.start(broker_id, tell=False)
        self.tell()

    # The controller --------------------------------------------------------------------------------------------------

    def start(self, broker_id: int, *, tell: bool = True) -> Broker:
        """Start a broker, anew perhaps; it gets its epoch with it."""
        self._broker_epoch += 1
        broker = self.brokers[broker_id] = Broker(self, broker_id, self._broker_epoch)
        registered = {**self.image.brokers, broker_id: BrokerRegistration(broker_id, self._broker_epoch, b"", {})}
        self._change(brokers=registered)
        if tell:
            self.tell()
        return broker

    def _change(self, **fields: Any) -> None:
        image = self.image
        names = ("brokers", "topics_by_name", "topics_by_id", "configs", "mirrors")
        known = {name: getattr(image, name) for name in names}
        self.image = ClusterImage(epoch=image.epoch + 1, **{**known, **fields})

    def state(self, index: int = 0) -> PartitionImage:
        found = self.image.partition(NAME, index)
        assert found is not None
        return found

    def set(self, index: int = 0, **fields: Any) -> None:
        """Change a partition in the image, of which no broker has heard yet."""
        topic = self.image.topics_by_name[NAME]
        states = list(topic.partitions)
        states[index] = states[index]._replace(partition_epoch=states[index].partition_epoch + 1, **fields)
        topic = topic._replace(partitions=tuple(states))
        self._change(topics_by_name={NAME: topic}, topics_by_id={topic.topic_id: topic})

    def elect(self, leader: int, index: int = 0, **fields: Any) -> None:
        """Another leader, in the next leader epoch; nobody has heard of it yet."""
        self.set(index, leader=leader, leader_epoch=self.state(index).leader_epoch + 1, **fields)

    def fence(self, broker_id: int, *, fenced: bool = True) -> None:
        """The broker is fenced from now on, or not any more."""
        brokers = dict(self.image.brokers)
        brokers[broker_id] = brokers[broker_id]._replace(fenced=fenced)
        self._change(brokers=brokers)

    def unregister(self, broker_id: int) -> None:
        """The broker is forgotten; no broker has heard of it yet."""
        self._change(brokers={each: broker for each, broker in self.image.brokers.items() if each != broker_id})

    def configure_topic(self, **settings: str) -> None:
        """Settings of the topic over those that it has, of which no broker has heard yet; "" takes one away."""
        overrides = {**self.image.overrides(TOPIC, NAME)}
        overrides |= {name.replace("_", "."): value for name, value in settings.items()}
        self._change(configs={(TOPIC, NAME): {name: value for name, value in overrides.items() if value}})

    def configure_brokers(self, **settings: int) -> None:
        """Dynamic settings of all brokers, those that start later too."""
        self.dynamic_settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        for broker in self.brokers.values():
            broker.config.apply_dynamic(self.dynamic_settings, {})
            broker.replicas.on_broker_config()

    def delete_topic(self) -> None:
        self._change(topics_by_name={}, topics_by_id={})

    def make_anew(self, topic_id: bytes, **fields: Any) -> None:
        """The topic is deleted, and another made under its name, with one partition."""
        topic = TopicImage(NAME, topic_id, (PartitionImage(**fields),))
        self._change(topics_by_name={NAME: topic}, topics_by_id={topic_id: topic})

    def tell(self, broker_ids: Iterable[int] | None = None) -> None:
        """Let brokers hear of what the cluster is now."""
        for broker_id in sorted(self.brokers) if broker_ids is None else broker_ids:
            self.brokers[broker_id].hear()

    def alter_partition(
        self,
        broker: Broker,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: tuple[tuple[int, int], ...],
        done: Callable[[int, InSyncState | None], None],
    ) -> None:
        def decide() -> None:
            if not self.controller_answers:
                return
            state = self.state(index)
            if self.refusal:
                done(self.refusal, None)
            elif leader_epoch != state.leader_epoch:
                done(ErrorCode.FENCED_LEADER_EPOCH, None)
            elif partition_epoch != state.partition_epoch:
                done(ErrorCode.INVALID_UPDATE_VERSION, None)
            elif any(epoch not in (-1, self.image.brokers[each].epoch) for each, epoch in new_isr):
                done(ErrorCode.INELIGIBLE_REPLICA, None)
            else:
                self.set(index, isr=tuple(each for each, _ in new_isr))
                self.altered.append(self.state(index).isr)
                state = self.state(index)
                done(0, InSyncState(state.leader, state.leader_epoch, state.isr, state.partition_epoch))
                if self.controller_tells:
                    self.tell()

        self.world.timers.call_later(LATENCY_MS, decide)

    # The network -----------------------------------------------------------------------------------------------------

    def deliver(
        self,
        sender: Broker,
        broker_id: int,
        request: Request,
        version: int,
        done: Callable[[Any | None, PeerError | None], None],
        timeout_ms: int,
    ) -> None:
        key = cast(int, type(request).__declaration__.key)
        body = codec.encode(request, version)
        timers = self.world.timers
        answered = False

        def finish(response: Any | None, error: PeerError | None) -> None:
            nonlocal answered
            if not answered and sender.alive:
                answered = True
                done(response, error)

        def fail(reason: PeerFailure) -> None:
            finish(None, PeerError(reason, True))

        def arrive() -> None:
            receiver = self.brokers.get(broker_id)
            if receiver is None or not receiver.alive:
                fail(PeerFailure.UNREACHABLE)
            elif not self._is_cut(sender.broker_id, broker_id):
                answer = receiver.serve(key, version, body)
                if isinstance(answer, Parked):
                    answer.subscribe(lambda response: send(receiver, response))
                else:
                    send(receiver, answer)

        def send(receiver: Broker, response: Any) -> None:
            reply = codec.encode(response, version)
            if receiver.alive and not self._is_cut(broker_id, sender.broker_id):
                timers.call_later(LATENCY_MS, receive, reply)

        def receive(reply: bytes) -> None:
            buffer = bytearray(reply)
            response, _ = codec.decoder(response_class(key), version)(memoryview(buffer), 0)
            finish(response, None)
            buffer[:] = b"\xff" * len(buffer)  # what is kept of it is worth nothing

        timers.call_later(LATENCY_MS, arrive)
        timers.call_later(timeout_ms, fail, PeerFailure.TIMED_OUT)

    def _is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.cut

    def isolate(self, broker_id: int) -> None:
        """Nothing comes from a broker, and nothing gets there."""
        for other in self.brokers:
            if other != broker_id:
                self.cut |= {(broker_id, other), (other, broker_id)}

    def heal(self) -> None:
        self.cut.clear()

    # Time ------------------------------------------------------------------------------------------------------------

    def pass_ms(self, delay_ms: int) -> None:
        self.world.advance(delay_ms)

    def settle(self) -> None:
        """Let everything that is under way come to rest: followers have what there is, and what is committed."""
        self.pass_ms(1_200)

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                broker.kill()
