"""What a broker starts with: a new cluster, its own again, or the one of an Apache Kafka data directory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.bootstrap import KRAFT_LOG_DIR, open_membership, open_standalone, shared_store
from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.standalone import Standalone
from pybroker.cluster.store.initial_metadata import InitialMetadata
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME
from pybroker.config.broker import BrokerConfig
from pybroker.config.schema import ConfigError
from pybroker_protocol.uuids import uuid_bytes

from .fakes import CLUSTER_ID
from .store_contract import real_env
from .test_kraft_takeover import TOPIC_ID, batch, partition, topic


@contextmanager
def started(folder: Path, seed: int = 1, **settings: str) -> Iterator[tuple[Standalone, ClusterImage]]:
    cache = MetadataCache()
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    standalone = open_standalone(VirtualWorld(seed).env, config, cache, str(folder))
    try:
        standalone.load()
        standalone.register({}, None, [])
        yield standalone, cache.image
    finally:
        standalone.close()


def format_directory(folder: Path, node_id: object = 1, cluster_id: str = CLUSTER_ID) -> None:
    (folder / "meta.properties").write_text(f"#\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\n")


def kafka_directory(folder: Path, node_id: int = 1, replicas: tuple[int, ...] = ()) -> None:
    format_directory(folder, node_id)
    log_dir = folder / KRAFT_LOG_DIR
    log_dir.mkdir()
    log = batch(0, topic(), partition(replicas=replicas or (node_id,)))
    (log_dir / f"{0:020}.log").write_bytes(log)


def test_empty_directory_becomes_a_cluster_of_its_own(tmp_path: Path) -> None:
    with started(tmp_path) as (controller, image):
        assert len(uuid_bytes(controller.cluster_id)) == 16
        assert (image.cluster_id, controller.node_id) == (controller.cluster_id, 1)
    with started(tmp_path, seed=2) as (again, _):
        assert again.cluster_id == image.cluster_id


def test_two_new_clusters_have_different_ids(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with started(folders[0], seed=1) as (one, _), started(folders[1], seed=2) as (other, _):
        assert one.cluster_id != other.cluster_id


def test_formatted_directory_gives_cluster_and_node(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id=7)
    with started(tmp_path) as (controller, image):
        assert (controller.cluster_id, controller.node_id) == (CLUSTER_ID, 7)
        assert list(image.brokers) == [7]


def test_node_id_that_contradicts_the_directory_is_refused(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id=7)
    with pytest.raises(StoreError, match=r"belongs to node 7"), started(tmp_path, node_id="1"):
        pass
    with started(tmp_path, node_id="7"):
        pass


def test_node_id_that_is_no_number_is_refused(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id="seven")
    with pytest.raises(StoreError, match="seven"), started(tmp_path):
        pass


def test_kafkas_directory_is_taken_over_once(tmp_path: Path) -> None:
    kafka_directory(tmp_path, node_id=3)
    with started(tmp_path) as (controller, image):
        assert (controller.cluster_id, controller.node_id) == (CLUSTER_ID, 3)
        taken = image.topics_by_name["a"]
        assert (taken.topic_id, taken.partitions[0].leader) == (TOPIC_ID, 3)
    # From then on the store counts: what Kafka left is neither read nor touched again.
    (tmp_path / KRAFT_LOG_DIR / f"{0:020}.log").write_bytes(b"")
    with started(tmp_path) as (_, image):
        assert set(image.topics_by_name) == {"a"}


def shared(folder: Path) -> InitialMetadata:
    """What a store that brokers share is founded on by the broker in this directory."""
    config = BrokerConfig({"pybroker.metadata": f"sqlite://{folder / 'metadata.db'}"})
    member = open_membership(
        VirtualWorld(1).env, config, MetadataCache(), str(folder), 1, lambda *_: pytest.fail("connected")
    )
    assert not member.is_alone
    return member._found()


def test_shared_store_is_founded_on_kafkas_directory(tmp_path: Path) -> None:
    kafka_directory(tmp_path, node_id=7)
    initial_metadata = shared(tmp_path)
    assert initial_metadata.image.cluster_id == CLUSTER_ID
    assert list(initial_metadata.image.topics_by_id) == [TOPIC_ID]


def test_directory_of_kafkas_cluster_of_several_nodes_is_refused(tmp_path: Path) -> None:
    kafka_directory(tmp_path, replicas=(1, 2, 3))
    reason = r"lies on the brokers \[1, 2, 3\]: only a cluster of one node can be taken over, and this is node 1"
    with pytest.raises(StoreError, match=reason):
        shared(tmp_path)
    with pytest.raises(StoreError, match=reason), started(tmp_path):
        pass


def test_partition_without_a_leader_gets_this_broker_back_as_its_leader(tmp_path: Path) -> None:
    kafka_directory(tmp_path)
    record = partition()
    record.leader, record.isr, record.eligible_leader_replicas = -1, [], [1]
    (tmp_path / KRAFT_LOG_DIR / f"{0:020}.log").write_bytes(batch(0, topic(), record))
    with started(tmp_path) as (_, image):
        (taken,) = image.topics_by_name["a"].partitions
        assert (taken.leader, taken.isr, taken.elr) == (1, (1,), ())
        assert (taken.leader_epoch, taken.partition_epoch) == (4, 6)


def test_takeover_that_fails_leaves_no_store_that_looks_like_one(tmp_path: Path) -> None:
    kafka_directory(tmp_path)
    log = tmp_path / KRAFT_LOG_DIR / f"{0:020}.log"
    good = log.read_bytes()
    log.write_bytes(batch(0, partition()))
    with pytest.raises(StoreError), started(tmp_path):
        pass
    log.write_bytes(good)
    with started(tmp_path) as (_, image):
        assert set(image.topics_by_name) == {"a"}


def test_metadata_log_without_an_owner_is_refused(tmp_path: Path) -> None:
    kafka_directory(tmp_path)
    (tmp_path / "meta.properties").unlink()
    with pytest.raises(StoreError, match=r"meta\.properties"), started(tmp_path):
        pass


def test_store_lies_in_the_metadata_directory(tmp_path: Path) -> None:
    with started(tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, f"{FILE_NAME}-room"}


def test_metadata_of_several_brokers_lies_where_the_setting_says(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    env = loop.run_until_complete(real_env())
    for _ in range(2):
        store = shared_store(f"sqlite://{tmp_path / 'shared.db'}", env, BrokerConfig({}), MetadataCache(), 1)
        store.open()
        store.close()
    loop.close()
    assert {path.name for path in tmp_path.iterdir()} == {"shared.db", "shared.db-writer"}


@pytest.mark.parametrize("url", ["", "sqlite:relative", "sqlite:///", "postgres://x", "/a/path"])
def test_metadata_that_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"pybroker\.metadata"):
        BrokerConfig({"pybroker.metadata": url})


def test_new_cluster_has_the_id_that_is_set(tmp_path: Path) -> None:
    with started(tmp_path, pybroker_cluster_id=CLUSTER_ID) as (controller, image):
        assert controller.cluster_id == image.cluster_id == CLUSTER_ID


def test_cluster_id_that_contradicts_the_directory_is_refused(tmp_path: Path) -> None:
    format_directory(tmp_path)
    other = CLUSTER_ID[::-1]
    with pytest.raises(StoreError, match=f"belongs to the cluster {CLUSTER_ID}"):
        started(tmp_path, pybroker_cluster_id=other).__enter__()
    with started(tmp_path, pybroker_cluster_id=CLUSTER_ID):
        pass


def test_cluster_id_that_is_no_uuid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pybroker\.cluster\.id"):
        BrokerConfig({"pybroker.cluster.id": "mine"})


def test_set_cluster_id_makes_up_for_no_lost_meta_properties_of_kafka(tmp_path: Path) -> None:
    kafka_directory(tmp_path)
    (tmp_path / "meta.properties").unlink()
    with pytest.raises(StoreError, match=r"no meta\.properties"):
        started(tmp_path, pybroker_cluster_id=CLUSTER_ID).__enter__()
