"""Apache Kafka as a cluster: nodes in combined KRaft mode, each a process with a directory of its own.

Owns: what the nodes are told of each other.  Everything else of a node is ``ApacheKafka``'s.

    with ApacheCluster(tmp_path / "kafka") as cluster:
        cluster.kill(2)
        run_kafka_tool(TOPIC_COMMAND, "--bootstrap-server", cluster.bootstrap, "--list")
        cluster.start_one(2)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.apache_kafka import ApacheKafka
from harness.broker_cluster import BrokerCluster
from harness.broker_probe import free_port
from harness.broker_process import BrokerProcess

# Kafka's own defaults, which ``ApacheKafka`` turns down for a broker that is alone.
CLUSTER_PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class ApacheCluster(BrokerCluster[ApacheKafka]):
    """Nodes 1 to ``nodes``, each broker and controller; ``properties`` overrides any property of all of them.

    ``own`` is asked for those of one alone, by its id, and ``more_listeners`` for the URLs of its listeners beside the
    first one.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        nodes: int = 3,
        heap_mb: int = 512,
        jvm_options: Sequence[str] | None = None,
        own: Callable[[int], Mapping[str, str]] = lambda _: {},
        more_listeners: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> None:
        host = BrokerProcess.host
        ports = [(free_port(), free_port()) for _ in range(nodes)]

        def listeners(number: int, port: int, controller: int) -> str:
            own_ones = f"PLAINTEXT://{host}:{port}", f"CONTROLLER://{host}:{controller}"
            return ",".join((*own_ones, *more_listeners(number)))

        voters = ",".join(f"{number}@{host}:{controller}" for number, (_, controller) in enumerate(ports, start=1))
        super().__init__(
            [
                ApacheKafka(
                    directory / f"node-{number}",
                    {
                        **CLUSTER_PROPERTIES,
                        "node.id": str(number),
                        "listeners": listeners(number, port, controller),
                        "controller.quorum.voters": voters,
                        **(properties or {}),
                        **own(number),
                    },
                    heap_mb,
                    jvm_options,
                    port,
                )
                for number, (port, controller) in enumerate(ports, start=1)
            ]
        )
