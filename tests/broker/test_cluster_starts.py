"""Who may start in a cluster: its own brokers, each once, over the store that they know."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.batches import batch

from pybroker.cluster.metadata_store import StoreError
from pybroker.testing import Broker
from tests.broker.wire_client import WireClient


def member(folder: Path, number: int, store: str = "metadata.db", data: str | None = None) -> Broker:
    """A broker of the cluster whose store is in ``folder``."""
    settings = {
        "node.id": str(number),
        "pybroker.metadata": f"sqlite://{folder / store}",
        "pybroker.metadata.session.timeout.ms": "1000",
    }
    return Broker(settings, data_dir=folder / (data or f"broker-{number}"))


def test_brokers_that_share_a_store_are_one_cluster(tmp_path: Path) -> None:
    with member(tmp_path, 1) as first, member(tmp_path, 2) as second:
        images = [broker._running().services.metadata.image for broker in (first, second)]
        assert [set(image.brokers) >= {2} for image in images] == [True, True]
        assert images[0].cluster_id == images[1].cluster_id


def test_a_data_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    member(tmp_path, 1, "one.db").start().stop()
    member(tmp_path, 2, "another.db").start().stop()
    stranger = member(tmp_path, 1, "another.db")
    with pytest.raises(StoreError, match=r"the data directory belongs to the cluster .*, and the metadata"):
        stranger.start()


def test_a_data_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    member(tmp_path, 1).start().stop()
    stranger = member(tmp_path, 2, data="broker-1")
    with pytest.raises(StoreError, match=r"node.id is 2, but the data directory belongs to node 1"):
        stranger.start()


def test_an_id_that_a_living_broker_has_is_refused(tmp_path: Path) -> None:
    with member(tmp_path, 1):
        second = member(tmp_path, 1, data="elsewhere")
        with pytest.raises(StoreError, match="another broker with the id 1 is alive"):
            second.start()


def test_a_store_that_was_wiped_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    with member(tmp_path, 1) as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            assert client.produce("t", batch(b"v")).error_code == 0
    for file in tmp_path.glob("metadata.db*"):
        file.unlink()
    again = member(tmp_path, 1)
    with pytest.raises(StoreError, match="acknowledged changes of topics or settings are missing"):
        again.start()
    assert (tmp_path / "broker-1" / "t-0").is_dir()
