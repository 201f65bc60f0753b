"""Several members of a cluster on one hand-driven loop, over one store in memory, each asking the others directly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.operations import FoundReplicas, InSyncChange, InSyncResult, InSyncResults, NewTopic
from pybroker.cluster.image.cluster_image import ClusterImage, Endpoint
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.cluster_member import ClusterMember, LivenessTransport
from pybroker.cluster.membership.peers import CONTROL, PeerDone, PeerError, PeerFailure
from pybroker.cluster.store.initial_metadata import new_cluster
from pybroker.config.broker import BrokerConfig
from pybroker.handlers import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_topics,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.own_requests import serve_own
from pybroker_protocol.schema import Request
from tests.handled import answer_of

from .fakes import CLUSTER_ID, LISTENER
from .memory_store import MemoryStore, SharedMemory

SESSION_TIMEOUT_MS = 6_000
_HANDLERS: dict[str, Any] = {
    "AllocateProducerIdsRequest": allocate_producer_ids,
    "AlterPartitionRequest": alter_partition,
    "AlterPartitionReassignmentsRequest": alter_partition_reassignments,
    "AssignReplicasToDirsRequest": assign_replicas_to_dirs,
    "BrokerHeartbeatRequest": broker_heartbeat,
    "BrokerRegistrationRequest": broker_registration,
    "CreateTopicsRequest": create_topics,
    "ElectLeadersRequest": elect_leaders,
    "ListPartitionReassignmentsRequest": list_partition_reassignments,
    "UnregisterBrokerRequest": unregister_broker,
}


def log_dir(broker_id: int, number: int = 0) -> bytes:
    """The id of a log dir."""
    return bytes(14) + bytes((broker_id, number + 9))


def ignore(_response: Any, _error: PeerError | None) -> None:
    """Where an answer does not arrive."""


class DirectPeers:
    """Requests go straight to the handlers of the other broker, one turn of the loop later."""

    def __init__(self, members: Members, asker: int) -> None:
        self.on_broken: Callable[[int], None] = lambda broker_id: None
        self._members = members
        self._asker = asker
        self._connections: set[tuple[int, str]] = set()  # by broker and channel

    def ask(
        self, broker_id: int, request: Request, version: int, done: PeerDone, *, timeout_ms: int, channel: str = CONTROL
    ) -> None:
        cut, time_out = self._members.cut, PeerError(PeerFailure.TIMED_OUT, may_be_done=True)
        if (self._asker, broker_id) in cut or (broker_id, self._asker) in cut:
            self._members.world.timers.call_later(timeout_ms, done, None, time_out)
            # The time-out breaks the connection, and no other is made.
            if (self._asker, broker_id) in cut or (broker_id, channel) not in self._connections:
                return
            self._connections.discard((broker_id, channel))
            done = ignore
        else:
            self._connections.add((broker_id, channel))
        self._members.world.timers.call_soon(self._deliver, broker_id, request, version, done)

    def _deliver(self, broker_id: int, request: Request, version: int, done: PeerDone) -> None:
        member = self._members.by_id.get(broker_id)
        if member is None or {broker_id, self._asker} & self._members.cut_off:
            done(None, PeerError(PeerFailure.UNREACHABLE, may_be_done=False))
            return
        context, services = RequestContext(), self._members.services(broker_id)
        context.services, context.api_version, context.listener = services, version, LISTENER
        response = answer_of(_HANDLERS[type(request).__name__].handle(context, request))
        if isinstance(response, Parked):
            response.subscribe(lambda late: done(late, None))
        else:
            done(response, None)

    def forward(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Members:
    """Brokers by their ids.  ``cut_off``: those that reach no other broker, and that none reaches."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.world = VirtualWorld()
        self.env = self.world.env
        self.config = BrokerConfig(settings or {})
        self.shared = SharedMemory()
        self.by_id: dict[int, ClusterMember] = {}
        self.stores: dict[int, MemoryStore] = {}
        self.caches: dict[int, MetadataCache] = {}
        self.cut_off: set[int] = set()
        self.cut: set[tuple[int, int]] = set()  # (from, to): what goes that way is lost
        self.air: Any = None  # what carries datagrams, where there are any

    def join(
        self,
        broker_id: int,
        *,
        directory: int = 0,
        epoch: int = -1,
        found: FoundReplicas | None = None,
        claim: Callable[[], str | None] = lambda: None,
    ) -> list[str | None]:
        """Start a broker; what the result has in the end says how that went.

        ``directory`` tells data dirs apart; each broker has a second log dir where it found some replica.
        """
        self.caches[broker_id] = MetadataCache()
        self.stores[broker_id] = MemoryStore(self.shared, self.env)
        self.by_id[broker_id] = member = self.member(broker_id, self.stores[broker_id])
        member.load()
        member.channel.serve = partial(serve_own, self.services(broker_id))
        ended: list[str | None] = []
        endpoints = {LISTENER: Endpoint("host", broker_id)}
        liveness_transport = None
        if self.air is not None:
            liveness_transport = LivenessTransport(
                self.air.antenna(broker_id), self.air.connection_probe(self.world), LISTENER
            )
        log_dirs = list(dict.fromkeys((log_dir(broker_id, directory), *(found or {}).values())))
        member.join(endpoints, None, log_dirs, epoch, ended.append, liveness_transport, found or {}, claim=claim)
        return ended

    def member(self, broker_id: int, store: MemoryStore) -> ClusterMember:
        """A member that is not started."""
        return ClusterMember(
            self.env,
            self.config,
            self.caches.setdefault(broker_id, MetadataCache()),
            store,
            broker_id,
            lambda: new_cluster(CLUSTER_ID),
            lambda follower, secret: DirectPeers(self, broker_id),
            SESSION_TIMEOUT_MS,
        )

    def services(self, broker_id: int) -> Any:
        """What the handlers of a broker that is loaded are given."""
        return SimpleNamespace(
            quotas=None,
            authorizer=None,
            inter_broker_listener=LISTENER,
            controller=self.by_id[broker_id].controller,
            metadata=self.caches[broker_id],
            config=self.config,
            env=self.env,
        )

    def start(self, *broker_ids: int) -> Members:
        """Start brokers at the same time; they are registered when this returns."""
        ended = [self.join(broker_id) for broker_id in broker_ids]
        self.settle()
        assert ended == [[None]] * len(ended)
        return self

    def settle(self, ms: int = 3_000) -> None:
        """Let everything come to rest: all that waits for up to so long goes on."""
        for _ in range(ms // 100):
            self.world.run()
            self.world.advance(100)

    def vanish(self, broker_id: int) -> MemoryStore:
        """The process is gone; the store does not know it yet."""
        member, store = self.by_id.pop(broker_id), self.stores[broker_id]
        for close in member._closers[1:]:
            close()
        return store

    def kill(self, broker_id: int) -> None:
        """The process is gone, and its session over."""
        self.vanish(broker_id).close()
        self.settle()

    def active(self) -> list[int]:
        """The brokers whose controllers are active."""
        return [broker_id for broker_id, member in self.by_id.items() if member.controller.is_active]

    def image(self, broker_id: int) -> ClusterImage:
        return self.caches[broker_id].image

    def ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """What an operation calls back with."""
        answers: list[Any] = []
        begin(answers.append)
        self.settle()
        (answer,) = answers
        return answer

    def ask_controller(self, request: Request, version: int) -> Any:
        """The response of the active controller's broker to a request that came to it."""
        (active,) = self.active()
        peers = DirectPeers(self, active)
        return self.ask(
            lambda done: peers.ask(active, request, version, lambda response, _: done(response), timeout_ms=0)
        )

    def alter_in_sync(self, topic: str, *in_sync: int, partition: int = 0) -> InSyncResult:
        """The partition's leader asks for these in-sync replicas."""
        (active,) = self.active()
        image = self.image(active)
        found = image.topics_by_name[topic]
        state = found.partitions[partition]
        epochs = tuple((replica, image.brokers[replica].epoch) for replica in in_sync)
        change = InSyncChange(found.topic_id, partition, state.leader_epoch, state.partition_epoch, epochs)
        leader = self.by_id[state.leader]
        results: InSyncResults = self.ask(lambda done: leader.channel.alter_partitions([change], done))
        (result,) = results.results
        return result

    def create_topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        """A topic whose partitions have these replicas."""
        topic = NewTopic(name, -1, -1, tuple(enumerate(replicas)))
        (active,) = self.active()
        (result,) = self.ask(lambda done: self.by_id[active].controller.create_topics([topic], done))
        assert result.error_code == 0, result

    def close(self) -> None:
        for broker_id in list(self.by_id):
            self.kill(broker_id)
