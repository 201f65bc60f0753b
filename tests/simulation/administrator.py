"""A simulated administrator of a cluster: partitions move, leaders change, settings too, while faults strike.

Replicas move to other log dirs of their brokers, too, and are copied no faster than a throttle allows while it is set.

Owns: what is asked for, and which answers may come.  Owns no outcome: that replicas agree, nothing committed is lost,
and every reassignment comes to its end is for the observer, and for the end of the run, to see.

Kafka counterpart: ``kafka-reassign-partitions``, ``kafka-leader-election``, ``kafka-configs`` and ``kafka-cluster``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pybroker_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.simulation.client import Client, Disconnected
from tests.simulation.cluster_client import ClusterClient, error_codes
from tests.simulation.model import check
from tests.simulation.processes import PORT

if TYPE_CHECKING:
    from tests.simulation.cluster_simulation import ClusterSimulation

PREFERRED, UNCLEAN = 0, 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
TIMEOUT_MS = 4_000
PAUSES_MS = (100, 1_000, 4_000)
# What any change may meet, where it may have been made or not.
ANY_CHANGE = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,  # the metadata store is away
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
REASSIGNMENT = ANY_CHANGE | {
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,  # of one that is taken back
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # one of the brokers is not registered; or it would be unclean
}
ELECTION = ANY_CHANGE | {ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
UNREGISTRATION = ANY_CHANGE | {
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.INVALID_REQUEST,  # it is alive
}
LOG_DIRS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,  # that of the replica failed
    ErrorCode.LOG_DIR_NOT_FOUND,  # that to go to failed
}
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def config_request(resource_type: int, resource: str, name: str, value: str | None) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
    altered = AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[altered], validate_only=False)


async def set_config(client: Client, topic: str, name: str, value: str | None, timeout_ms: int = 10_000) -> int:
    """Set a topic's setting, or take it back (None): the error code.  Raises ``Disconnected``."""
    response = await client.ask(config_request(TOPIC_RESOURCE, topic, name, value), 1, timeout_ms)
    return int(response.responses[0].error_code)


class Administrator:
    """Asks for one change after another while faults strike; ``partitions`` are those of the topics by name."""

    def __init__(self, simulation: ClusterSimulation, name: str, partitions: dict[str, int]) -> None:
        self.simulation = simulation
        self.name = name
        client = simulation.client(name)
        assert isinstance(client, ClusterClient)
        self.client = client
        self.random = simulation.new_random()
        self.partitions = partitions
        self._pause_ms = self.random.choice(PAUSES_MS)
        self._actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._reassign),
            (2, self._take_back),
            (3, self._elect),
            (2, self._set_min_insync_replicas),
            (1, self._unregister),
            (2, self._throttle),
            (2, self._end_throttle),
            (3 if len(simulation.processes[0].log_dirs) > 1 else 0, self._move_to_log_dir),
        ]
        self._throttled: set[tuple[int, str, str]] = set()  # what may be set: resource type, resource, setting

    async def run(self) -> None:
        """Ask until the calm time."""
        weights = [weight for weight, _ in self._actions]
        while not self.simulation.calm:
            await self.client.sleep(self.random.expovariate(1 / self._pause_ms))
            action = self.random.choices(self._actions, weights)[0][1]
            try:
                await action()
            except Disconnected:
                self.client.disconnect()
        while self._throttled:  # reassignments end once faults do, and this does
            try:
                await self._end_throttle()
            except Disconnected:
                self.client.disconnect()
            await self.client.sleep(100)

    async def _change(self, request: Any, version: int, known: set[ErrorCode], what: str) -> None:
        self.simulation.trace(self.name, what)
        await ask_for_change(self.client, request, version, known, what)

    def _some_partitions(self) -> tuple[str, list[int]]:
        topic = self.random.choice(list(self.partitions))
        count = self.partitions[topic]
        return topic, sorted(self.random.sample(range(count), self.random.randint(1, count)))

    def _some_brokers(self) -> list[int]:
        """As many replicas as the run's topics have, as a rule; dead ones, too."""
        brokers = range(len(self.simulation.processes))
        factor = self.simulation.replication_factor
        count = factor if self.random.random() < 0.6 else self.random.randint(1, len(brokers))
        return self.random.sample(brokers, count)

    async def _reassign(self) -> None:
        topic, indexes = self._some_partitions()
        targets = {index: self._some_brokers() for index in indexes}
        await self._change(_reassignment(topic, targets), 1, REASSIGNMENT, f"moves {topic} to {targets}")

    async def _take_back(self) -> None:
        topic, indexes = self._some_partitions()
        request = _reassignment(topic, dict.fromkeys(indexes))
        await self._change(request, 1, REASSIGNMENT, f"takes back what moves of {topic}")

    async def _elect(self) -> None:
        topic, indexes = self._some_partitions()
        request = election(PREFERRED, topic, indexes)
        await self._change(request, 2, ELECTION, f"elects the preferred leaders of {topic}-{indexes}")

    async def _set_min_insync_replicas(self) -> None:
        topic, _ = self._some_partitions()
        value = self.random.choice((None, "1", "2"))
        self.simulation.trace(self.name, f"sets min.insync.replicas of {topic} to {value}")
        code = await set_config(self.client, topic, "min.insync.replicas", value, TIMEOUT_MS)
        check(code in {0} | ANY_CHANGE, "an administrator's request is answered as it may be", f"error {code}")

    async def _unregister(self) -> None:
        processes = list(enumerate(self.simulation.processes))
        dead = [broker_id for broker_id, process in processes if process.server is None]
        broker_id = self.random.choice(dead or [broker_id for broker_id, _ in processes])
        request = UnregisterBrokerRequest(broker_id=broker_id)
        await self._change(request, 0, UNREGISTRATION, f"unregisters broker {broker_id}")

    async def _throttle(self) -> None:
        topic, _ = self._some_partitions()
        rate = self.random.choice(("300", "3000"))
        broker_id = str(self.random.randrange(len(self.simulation.processes)))
        self.simulation.trace(self.name, f"throttles {topic}, and broker {broker_id} to {rate} bytes/s")
        for name in THROTTLED_REPLICAS:
            await self._set(TOPIC_RESOURCE, topic, name, "*")
        for name in THROTTLED_RATES:
            await self._set(BROKER_RESOURCE, broker_id, name, rate)

    async def _end_throttle(self) -> None:
        for resource_type, resource, name in sorted(self._throttled):
            if self.simulation.calm or self.random.random() < 0.7:
                await self._set(resource_type, resource, name, None)

    async def _set(self, resource_type: int, resource: str, name: str, value: str | None) -> None:
        if value is not None:
            self._throttled.add((resource_type, resource, name))
        if resource_type == TOPIC_RESOURCE:
            code = await set_config(self.client, resource, name, value, TIMEOUT_MS)
        else:  # a broker's own settings are asked of that broker
            address = self.simulation.processes[int(resource)].host, PORT
            request = config_request(resource_type, resource, name, value)
            code = (await self.client.ask_broker(address, request, 1, TIMEOUT_MS)).responses[0].error_code
        what = f"{name} of {resource} to {value}: error {code}"
        check(code in {0} | ANY_CHANGE, "an administrator's request is answered as it may be", what)
        is_gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.simulation.calm
        if value is None and (code == 0 or is_gone):
            self._throttled.discard((resource_type, resource, name))

    async def _move_to_log_dir(self) -> None:
        topic, indexes = self._some_partitions()
        process = self.random.choice(self.simulation.processes)
        path = str(self.random.choice(process.log_dirs))
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=indexes)]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        what = f"moves {topic}-{indexes} to {path.rpartition('/')[2]} of {process.name}"
        self.simulation.trace(self.name, what)
        response = await self.client.ask_broker((process.host, PORT), request, 2, TIMEOUT_MS)
        unknown = error_codes(response) - LOG_DIRS
        check(not unknown, "an administrator's request is answered as it may be", f"{what}: errors {unknown}")


async def ask_for_change(client: Client, request: Any, version: int, known: set[ErrorCode], what: str) -> None:
    """Ask, and check that nobody answers with an error that is not known."""
    response = await client.ask(request, version, TIMEOUT_MS + 2_000)
    unknown = error_codes(response) - known
    check(not unknown, "an administrator's request is answered as it may be", f"{what}: errors {unknown}")


def election(election_type: int, topic: str, indexes: list[int]) -> ElectLeadersRequest:
    """Of some of a topic's partitions."""
    wanted = [TopicPartitions(topic=topic, partitions=indexes)]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)


def _reassignment(topic: str, targets: dict[int, Any]) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=index, replicas=target) for index, target in targets.items()]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
