"""Who may start in a cluster: its own brokers, each once, over the store that they know."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from harness.batches import batch
from harness.waiting import wait_until
from harness.zookeeper import ZooKeeper

from pybroker.cluster.store.metadata_store import StoreError
from pybroker.testing import Broker
from pybroker_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.wire_client import WireClient

Stores = Callable[[str], str]
FEATURE = "eligible.leader.replicas.version"


def member(
    folder: Path, number: int, store: str = "metadata.db", data: str | None = None, stores: Stores | None = None
) -> Broker:
    """A broker of the cluster whose store is in ``folder``, or where ``stores`` has it."""
    settings = {
        "node.id": str(number),
        "pybroker.metadata": f"sqlite://{folder / store}" if stores is None else stores(store),
        "pybroker.metadata.session.timeout.ms": "1000",
    }
    return Broker(settings, data_dir=folder / (data or f"broker-{number}"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.jvm(needs="zookeeper"))])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """The url of each store that brokers share, by its name."""
    if request.param == "sqlite":
        return lambda name: f"sqlite://{tmp_path / name}"
    hosts = request.getfixturevalue("zookeeper").hosts
    return lambda name: f"zookeeper://{hosts}/{tmp_path.name}/{name}"


def test_brokers_that_share_a_store_are_one_cluster(tmp_path: Path) -> None:
    with member(tmp_path, 1) as first, member(tmp_path, 2) as second:
        images = [broker._running().services.metadata.image for broker in (first, second)]
        assert [set(image.brokers) >= {2} for image in images] == [True, True]
        assert images[0].cluster_id == images[1].cluster_id


def test_a_data_directory_of_another_cluster_is_refused(tmp_path: Path, stores: Stores) -> None:
    member(tmp_path, 1, "one.db", stores=stores).start().stop()
    member(tmp_path, 2, "another.db", stores=stores).start().stop()
    stranger = member(tmp_path, 1, "another.db", stores=stores)
    with pytest.raises(
        StoreError, match=r"the data directory or pybroker\.cluster\.id says cluster .*, and the metadata"
    ):
        stranger.start()


def test_a_data_directory_of_another_broker_is_refused(tmp_path: Path, stores: Stores) -> None:
    member(tmp_path, 1, stores=stores).start().stop()
    stranger = member(tmp_path, 2, data="broker-1", stores=stores)
    with pytest.raises(StoreError, match=r"node.id is 2, but the data directory belongs to node 1"):
        stranger.start()


def test_an_id_that_a_living_broker_has_is_refused(tmp_path: Path, stores: Stores) -> None:
    with member(tmp_path, 1, stores=stores):
        second = member(tmp_path, 1, data="elsewhere", stores=stores)
        with pytest.raises(StoreError, match="another broker with the id 1 is alive"):
            second.start()


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "of_a_cluster"])
def test_a_broker_that_is_too_old_for_the_finalized_levels_is_refused(tmp_path: Path, alone: bool) -> None:
    def broker() -> Broker:
        return Broker(data_dir=tmp_path / "broker-1") if alone else member(tmp_path, 1)

    broker().start().stop()
    store = tmp_path / "broker-1" / "pybroker-metadata.db" if alone else tmp_path / "metadata.db"
    with closing(sqlite3.connect(store)) as connection, connection:
        (levels,) = connection.execute("SELECT value FROM entries WHERE key = '/features'").fetchone()
        later = json.dumps({**json.loads(levels), "group.version": 9}).encode()
        connection.execute("UPDATE entries SET value = ? WHERE key = '/features'", (later,))
    with pytest.raises(StoreError, match=r"group.version at level 9, and this pybroker knows the levels 0 to 1"):
        broker().start()


def test_a_level_that_any_broker_is_asked_to_finalize_is_that_of_all(tmp_path: Path) -> None:
    with member(tmp_path, 1) as first, member(tmp_path, 2) as second:
        for broker, level in ((first, 0), (second, 1)):
            update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=1 + (level == 0))
            with WireClient((broker.host, broker.port)) as client:
                assert client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0
            for each in (first, second):
                wait_until(partial(has_level, each, level), f"level {level} at all")


def has_level(broker: Broker, level: int) -> bool:
    return broker._running().services.metadata.image.features.get(FEATURE, 0) == level


def test_a_store_that_was_wiped_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    with member(tmp_path, 1) as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            assert client.produce("t", batch(b"v")).error_code == 0
    for file in tmp_path.glob("metadata.db*"):
        file.unlink()
    again = member(tmp_path, 1)
    with pytest.raises(StoreError, match=r"hold 1 partitions, but the metadata store .* is new and knows none of them"):
        again.start()
    assert (tmp_path / "broker-1" / "t-0").is_dir()


def test_a_new_store_for_the_partitions_of_a_broker_that_was_alone_is_refused(tmp_path: Path) -> None:
    with Broker({"node.id": "1"}, data_dir=tmp_path / "broker-1") as alone:
        alone.create_topic("t")
        with WireClient((alone.host, alone.port)) as client:
            assert client.produce("t", batch(b"v")).error_code == 0
    with pytest.raises(
        StoreError, match=r"Name the store that knows them \(sqlite:///.*pybroker-metadata.db is that of"
    ):
        member(tmp_path, 1).start()
    assert (tmp_path / "broker-1" / "t-0").is_dir()
    with (
        member(tmp_path, 1, "broker-1/pybroker-metadata.db") as broker,
        WireClient((broker.host, broker.port)) as client,
    ):
        assert client.fetch("t", 0).responses[0].partitions[0].high_watermark == 1
