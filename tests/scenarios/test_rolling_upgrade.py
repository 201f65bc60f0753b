"""Two versions of pybroker in one cluster: brokers are upgraded one by one, and taken back, while clients are at work.

The older version is the code of a commit of this repository's history, with today's dependencies; a copy without that
history (an sdist, a shallow clone) skips this.  It is the first version that had clusters of its own: whatever has
become another form since then, of what brokers send each other and of what the store holds, meets here.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from harness.broker_probe import announced_keys
from harness.pybroker_cluster import PybrokerCluster
from harness.waiting import PATIENCE_S, wait_until

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.source_tree import ROOT

from .load import GAP_MAX_S, PARTITIONS, TOPIC, Load

OLDER = "ebea20f"
BROKERS = 3
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    # Brokers of two versions do not hear each other's datagrams: sessions say who is alive.
    "pybroker.metadata.session.timeout.ms": "3000",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # kafka-python forgets sockets that could not be connected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which ``pybroker`` is the older one."""
    made = subprocess.run(
        ["git", "archive", OLDER, "pybroker", "protocol"],
        cwd=ROOT,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"the history does not go back to {OLDER}")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(folder / "protocol")))}


@pytest.fixture
def cluster(tmp_path: Path, older: Mapping[str, str]) -> Iterator[PybrokerCluster]:
    """Three brokers of the older version, with the topic of the load."""
    with PybrokerCluster(tmp_path, SETTINGS, BROKERS, environment=older) as made:
        assert all(is_older(made, number) for number in range(BROKERS))
        with at(made, 0) as client:
            topic = CreatableTopic(
                name=TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS, assignments=[], configs=[]
            )
            (result,) = client.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 5
            ).topics
            assert result.error_code == 0, result
        yield made


def at(cluster: PybrokerCluster, number: int) -> WireClient:
    """A connection to a broker."""
    broker = cluster.brokers[number]
    return WireClient((broker.host, broker.port))


def is_older(cluster: PybrokerCluster, number: int) -> bool:
    """Whether a broker announces less than today's do."""
    broker = cluster.brokers[number]
    return AlterClientQuotasRequest.__declaration__.key not in announced_keys(broker.host, broker.port)


def controller(cluster: PybrokerCluster) -> int:
    """The number of the broker that decides, as all brokers say who run; waits for one."""
    found: set[int] = set()

    def agree() -> bool:
        found.clear()
        for number, broker in enumerate(cluster.brokers):
            if broker.is_running:
                with at(cluster, number) as client:
                    found.add(
                        client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).controller_id
                    )
        return len(found) == 1 and -1 not in found

    wait_until(agree, "one controller", PATIENCE_S)
    return found.pop() - 1


def restart_as(cluster: PybrokerCluster, number: int, environment: Mapping[str, str] | None) -> None:
    """Stop one broker cleanly and start it in another version; all replicas are in sync when this returns."""
    cluster.stop_one(number)
    cluster.brokers[number].environment = environment
    cluster.start_one(number)
    assert is_older(cluster, number) == (environment is not None)
    wait_until(lambda: all_are_in_sync(cluster), "all are in sync again", PATIENCE_S)


def all_are_in_sync(cluster: PybrokerCluster) -> bool:
    for number in range(BROKERS):
        with at(cluster, number) as client:
            topics = client.ask(MetadataRequest(topics=None), 9).topics
        for partition in (partition for topic in topics for partition in topic.partitions):
            if set(partition.isr_nodes) != set(partition.replica_nodes) or partition.leader_id < 0:
                return False
    return True


def topics_are_made_through_each(cluster: PybrokerCluster, name: str) -> None:
    """Each broker has the controller, whatever its version, make a topic; all know all of them afterwards."""
    wanted = {f"{name}-{number}" for number in range(BROKERS)}
    for number in range(BROKERS):
        topic = CreatableTopic(
            name=f"{name}-{number}", num_partitions=3, replication_factor=3, assignments=[], configs=[]
        )
        with at(cluster, number) as client:
            (made,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 5).topics
        assert made.error_code == 0, made

    def known(number: int) -> set[str]:
        with at(cluster, number) as client:
            return {topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics}

    wait_until(lambda: all(wanted <= known(number) for number in range(BROKERS)), f"{name} at all brokers", PATIENCE_S)


def test_brokers_are_upgraded_one_by_one_and_one_is_taken_back_under_load(
    cluster: PybrokerCluster, older: Mapping[str, str]
) -> None:
    with Load(",".join(cluster.bootstraps)) as load:
        first = controller(cluster)
        # The older one decides for the newer ones, then one of these for what is left of the older.
        for number in sorted(range(BROKERS), key=lambda number: number == first):
            restart_as(cluster, number, None)
            load.wait_for_progress()
            topics_are_made_through_each(cluster, f"with-{number}-upgraded")
        restart_as(cluster, first, older)
        load.wait_for_progress()
        topics_are_made_through_each(cluster, "taken-back")
        restart_as(cluster, first, None)
        load.wait_for_progress()
    assert max(load.longest_gap_s().values()) < GAP_MAX_S


def test_whichever_version_is_killed_the_others_go_on(cluster: PybrokerCluster) -> None:
    decides = controller(cluster)
    newer, other = (number for number in range(BROKERS) if number != decides)
    with Load(",".join(cluster.bootstraps)) as load:
        restart_as(cluster, newer, None)
        for killed in (decides, newer, other):
            cluster.kill(killed)
            load.wait_for_progress()
            cluster.start_one(killed)
            wait_until(lambda: all_are_in_sync(cluster), "all are in sync again", PATIENCE_S)
            load.wait_for_progress()


def test_request_that_the_older_controller_does_not_know_is_answered_so(cluster: PybrokerCluster) -> None:
    newer = next(number for number in range(BROKERS) if number != controller(cluster))
    restart_as(cluster, newer, None)
    entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name="somebody")]
    ops = [OpData(key="producer_byte_rate", value=1000.0, remove=False)]
    request = AlterClientQuotasRequest(
        entries=[AlterClientQuotasRequestEntryData(entity=entity, ops=ops)], validate_only=False
    )
    with at(cluster, newer) as client:
        (answered,) = client.ask(request, 1).entries
    assert answered.error_code == ErrorCode.UNSUPPORTED_VERSION
