"""Kafka's own Java command-line tools for what only a cluster has: moves, elections, replicas that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.apache_kafka import (
    CLUSTER_TOOL,
    LEADER_ELECTION_COMMAND,
    METADATA_QUORUM_COMMAND,
    REASSIGN_PARTITIONS_COMMAND,
    TOPIC_COMMAND,
    run_kafka_tool,
)
from harness.waiting import PATIENCE_S, wait_until
from harness.wire import Client

from pybroker.cluster.image.cluster_image import PartitionImage
from pybroker.testing import Cluster
from pybroker.testing.cluster_node import ClusterNode
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

pytestmark = pytest.mark.jvm

Tool = Callable[..., str]
TOPIC = "orders"


@pytest.fixture
def tool(pybroker_cluster: Cluster) -> Tool:
    """Runs a tool against three brokers; what it printed, whether or not it succeeded."""
    pybroker_cluster.create_topic(TOPIC, partitions=3, replication_factor=2)

    def run(main_class: str, *arguments: str) -> str:
        bootstrap = ("--bootstrap-server", pybroker_cluster.bootstrap)
        done = run_kafka_tool(main_class, *arguments, *bootstrap, timeout_s=PATIENCE_S, check=False)
        return done.stdout + done.stderr

    return run


def partition(cluster: Cluster, index: int, broker_id: int) -> PartitionImage:
    """As a broker knows it."""
    found = cluster.brokers[broker_id].image().partition(TOPIC, index)
    assert found is not None
    return found


def replicas(cluster: Cluster, index: int) -> tuple[int, ...]:
    """As the controller knows them."""
    controller = cluster.controller_id
    assert controller is not None
    return partition(cluster, index, controller).replicas


def test_reassign_partitions_command(pybroker_cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    moves = [{"topic": TOPIC, "partition": index, "replicas": [3, 1]} for index in range(3)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    described = ("--reassignment-json-file", str(plan))
    begun = tool(REASSIGN_PARTITIONS_COMMAND, "--execute", *described)
    assert "Successfully started partition reassignment" in begun, begun
    wait_until(lambda: [replicas(pybroker_cluster, index) for index in range(3)] == [(3, 1)] * 3, "all have moved")
    verified = tool(REASSIGN_PARTITIONS_COMMAND, "--verify", *described)
    assert verified.count("is completed.") == 3, verified
    assert "No partition reassignments found." in tool(REASSIGN_PARTITIONS_COMMAND, "--list")


def test_move_to_a_dead_broker_is_listed_and_cancelled(pybroker_cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    before = replicas(pybroker_cluster, 0)
    (absent,) = {1, 2, 3} - set(before)
    pybroker_cluster.kill(absent)
    plan = tmp_path / "plan.json"
    move = {"topic": TOPIC, "partition": 0, "replicas": [absent, before[0]]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    described = ("--reassignment-json-file", str(plan))
    begin_to_move(pybroker_cluster.brokers[before[0]], [absent, before[0]])
    listed = tool(REASSIGN_PARTITIONS_COMMAND, "--list")
    assert f"{TOPIC}-0: replicas: " in listed
    assert f"adding: {absent}. removing: {before[1]}." in listed, listed
    # Throttles it would clear at the dead broker, too, and wait a minute for that.
    cancelled = tool(REASSIGN_PARTITIONS_COMMAND, "--cancel", "--preserve-throttles", *described)
    assert f"Successfully cancelled partition reassignment for: {TOPIC}-0" in cancelled, cancelled
    assert replicas(pybroker_cluster, 0) == before


def begin_to_move(node: ClusterNode, replicas: list[int]) -> None:
    """Ask a broker to have the first partition moved."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name=TOPIC, partitions=[partition])
    with Client((node.host, node.port)) as client:
        answer = client.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 1)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def test_topic_command_finds_partitions_that_need_care(pybroker_cluster: Cluster, tool: Tool) -> None:
    describe = ("--describe", "--topic", TOPIC)
    assert "Leader:" not in tool(TOPIC_COMMAND, *describe, "--under-replicated-partitions")
    victim, survivor = replicas(pybroker_cluster, 0)
    pybroker_cluster.kill(victim)
    wait_until(lambda: pybroker_cluster.leader(TOPIC, 0) == survivor, "the other one leads")
    found = tool(TOPIC_COMMAND, *describe, "--under-replicated-partitions")
    assert f"Partition: 0\tLeader: {survivor}\t" in found, found
    assert f"Isr: {survivor}" in found
    pybroker_cluster.kill(survivor)
    wait_until(lambda: pybroker_cluster.leader(TOPIC, 0) is None, "nobody leads")
    found = tool(TOPIC_COMMAND, *describe, "--unavailable-partitions")
    assert "Partition: 0\tLeader: none\t" in found, found


def test_leader_election_command(pybroker_cluster: Cluster, tool: Tool) -> None:
    preferred, other = replicas(pybroker_cluster, 0)
    pybroker_cluster.kill(preferred)
    wait_until(lambda: pybroker_cluster.leader(TOPIC, 0) == other, "the other one leads")
    pybroker_cluster.restart(preferred)
    one = ("--topic", TOPIC, "--partition", "0")

    def is_elected() -> bool:
        said = tool(LEADER_ELECTION_COMMAND, "--election-type", "preferred", *one)
        return f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-0" in said

    wait_until(is_elected, "the preferred replica is in sync, and leads")
    assert pybroker_cluster.leader(TOPIC, 0) == preferred
    pybroker_cluster.kill(other)
    wait_until(lambda: partition(pybroker_cluster, 0, preferred).isr == (preferred,), "the leader alone is in sync")
    pybroker_cluster.kill(preferred)
    pybroker_cluster.restart(other)
    wait_until(lambda: pybroker_cluster.leader(TOPIC, 0) is None, "who is in sync is gone")
    said = tool(LEADER_ELECTION_COMMAND, "--election-type", "preferred", *one)
    assert "PreferredLeaderNotAvailableException" in said, said
    said = tool(LEADER_ELECTION_COMMAND, "--election-type", "unclean", *one)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {TOPIC}-0" in said, said
    assert pybroker_cluster.leader(TOPIC, 0) == other


def test_cluster_tool_forgets_a_broker_that_was_stopped(pybroker_cluster: Cluster, tool: Tool) -> None:
    pybroker_cluster.stop_broker(3)
    said = tool(CLUSTER_TOOL, "unregister", "--id", "3")
    assert "Broker 3 is no longer registered." in said, said


def test_metadata_quorum_command_tells_who_decides_and_who_has_everything(pybroker_cluster: Cluster) -> None:
    asked = ("--bootstrap-server", pybroker_cluster.bootstrap, "describe", "--status")

    def status() -> list[str]:
        lines = run_kafka_tool(METADATA_QUORUM_COMMAND, *asked, timeout_s=PATIENCE_S).stdout.splitlines()
        return [" ".join(line.split()) for line in lines]

    wait_until(lambda: "MaxFollowerLag: 0" in status(), "brokers that have everything")
    said = status()
    assert f"LeaderId: {pybroker_cluster.controller_id}" in said, said
    (voters,) = (line for line in said if line.startswith("CurrentVoters: "))
    for node in pybroker_cluster.brokers.values():
        assert f'PLAINTEXT://{node.host}:{node.port}"' in voters, said
