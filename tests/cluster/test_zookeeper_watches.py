"""What many partitions cost in ZooKeeper: no watch of their own, and no reading anew when one of them changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until
from harness.zookeeper import ZooKeeper

from pybroker.cluster.image.cluster_image import TopicImage
from pybroker.cluster.store.zookeeper import zookeeper_codec
from pybroker.cluster.store.zookeeper.zookeeper_store import ZooKeeperStore
from pybroker.testing import Broker
from pybroker.testing.in_process_broker import Setting
from pybroker_protocol.uuids import uuid_text

pytestmark = pytest.mark.jvm(needs="zookeeper")

PARTITIONS = 10_000
WATCHES_MAX = 2  # of a broker: /head and /ephemerals


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def brokers(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[list[Broker]]:
    """Two of one cluster, which has a topic of many partitions."""
    settings: dict[str, Setting] = {
        "pybroker.metadata": f"zookeeper://{zookeeper.hosts}",
        "pybroker.metadata.session.timeout.ms": 10_000,
        "pybroker.liveness.timeout.ms": 0,  # nobody is to be fenced where the machine has more to do
    }
    with ExitStack() as running:
        made = [
            Broker({"node.id": number, **settings}, data_dir=tmp_path / name)
            for number, name in enumerate(("one", "other"), start=1)
        ]
        for broker in made:
            running.enter_context(broker)
        made[0].create_topic("many", partitions=PARTITIONS)
        wait_until(lambda: knows(made[1], "many"), "the other broker to know the topic")
        yield made


def knows(broker: Broker, topic: str) -> bool:
    return topic in broker._running().services.metadata.image.topics_by_name


def topic_image(broker: Broker, topic: str) -> TopicImage:
    return broker._running().services.metadata.image.topics_by_name[topic]


def watches(zookeeper: ZooKeeper) -> int:
    """How many watches all clients have, as the server counts them."""
    found = re.search(r"Total watches:(\d+)", zookeeper.ask(0, b"wchs"))
    assert found is not None
    return int(found[1])


def test_watches_do_not_grow_with_partitions(zookeeper: ZooKeeper, brokers: list[Broker]) -> None:
    assert 0 < watches(zookeeper) <= len(brokers) * WATCHES_MAX
    for number in range(3):
        brokers[0].create_topic(f"few-{number}", partitions=10)
        wait_until(lambda number=number: knows(brokers[1], f"few-{number}"), "the other broker to know it")  # type: ignore[misc]
    assert 0 < watches(zookeeper) <= len(brokers) * WATCHES_MAX


def test_change_of_one_topic_among_many_partitions_is_all_that_a_broker_reads(
    brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    keys: list[str] = []
    store = brokers[1]._running().services.controller._store
    assert isinstance(store, ZooKeeperStore)
    get, decode = store._client.get_async, zookeeper_codec.decode_writes

    def counted_get(path: str, **options: Any) -> Any:
        read.append(path)
        return get(path, **options)

    def counted_decode(data: bytes) -> tuple[dict[str, bytes], tuple[str, ...]]:
        puts, deletes = decode(data)
        keys.extend((*puts, *deletes))
        return puts, deletes

    monkeypatch.setattr(store._client, "get_async", counted_get)
    monkeypatch.setattr(zookeeper_codec, "decode_writes", counted_decode)
    brokers[0].create_topic("few")
    wait_until(lambda: knows(brokers[1], "few"), "the other broker to know it")
    topic_id = topic_image(brokers[1], "few").topic_id
    assert sorted(keys) == sorted(["/topics/few", f"/partitions/{uuid_text(topic_id)}/0"])
    roots = Counter(path.split("/")[1] for path in read)
    assert roots["changes"] == 1
    assert not {"snapshot", "snapshots", "parts"} & set(roots)
    assert len(topic_image(brokers[1], "many").partitions) == PARTITIONS
