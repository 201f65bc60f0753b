"""A replica that lost with the power which topic it is of: whether it passes for one of the topic of that name now."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.storage.files.checkpoints import PARTITION_METADATA, read_partition_metadata
from tests.replication.cluster import NAME, Broker, Cluster
from tests.storage.logs import TOPIC_ID

ANOTHER_TOPIC_ID = b"another-topic-id"


def lose_topic_id(cluster: Cluster, broker_id: int) -> Broker:
    """Each broker has a record; then this one dies, and a file was never synced."""
    cluster.brokers[1].produce(value=b"old")
    cluster.settle()
    broker = cluster.brokers[broker_id]
    assert len(broker.contents()) == 1
    broker.kill()
    (broker.log().path / PARTITION_METADATA).unlink()
    return broker


def test_one_that_another_leads_begins_anew_and_what_it_had_is_put_aside(cluster: Cluster) -> None:
    path = lose_topic_id(cluster, 3).log().path
    cluster.make_anew(ANOTHER_TOPIC_ID, replicas=(1, 2, 3), isr=(1, 2), leader=1)
    cluster.tell()
    cluster.brokers[1].produce(acks=1, value=b"new")
    cluster.brokers[1].produce(acks=1, value=b"new")
    third = cluster.start(3)
    cluster.settle()
    assert third.contents() == cluster.brokers[1].contents()
    assert len(third.contents()) == 2
    assert read_partition_metadata(path) == ANOTHER_TOPIC_ID
    assert len(list(path.parent.glob(f"{NAME}-0.*-stray"))) == 1


@pytest.mark.parametrize(
    "state",
    [
        {"isr": (3,), "leader": 3},
        {"isr": (1, 3), "leader": 1},
        {"isr": (1,), "elr": (3,), "leader": 1},
        {"isr": (), "last_known_elr": (3,), "leader": NO_LEADER},
    ],
    ids=["leads", "in sync", "eligible", "nobody leads"],
)
def test_one_that_may_have_what_nobody_else_has_keeps_it(cluster: Cluster, state: dict[str, Any]) -> None:
    lose_topic_id(cluster, 3)
    cluster.elect(state.pop("leader"), **state)
    third = cluster.start(3)
    assert third.replicas.open_replica(third.metadata.image.topics_by_name[NAME], 0) is not None
    assert [value[-4:-1] for _, _, value in third.contents()] == [b"old"]
    assert read_partition_metadata(third.log().path) == TOPIC_ID
