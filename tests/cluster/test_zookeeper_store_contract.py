"""Real ZooKeeper, alone and as an ensemble of three, keeps the rules of every ``MetadataStore``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from harness.zookeeper import ZooKeeper
from kazoo.client import KazooClient

from pybroker.cluster.store.metadata_store import MetadataStore
from pybroker.cluster.store.zookeeper.zookeeper_store import ZooKeeperStore

from .store_contract import RealSite, SharedStoreContract

pytestmark = pytest.mark.jvm(needs="zookeeper")

TIMEOUT_MS = 2_000

_chroots = count()


class ZooKeeperSite(RealSite):
    """Each test has a chroot of its own, each client a session."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        super().__init__()
        self.zookeeper = zookeeper
        self.url = f"zookeeper://{zookeeper.hosts}/tests/{next(_chroots)}"
        self._is_away = False

    def client(self) -> MetadataStore:
        return self.opened(ZooKeeperStore(self.url, self.env, timeout_ms=TIMEOUT_MS))

    def expire(self, client: MetadataStore) -> None:
        assert isinstance(client, ZooKeeperStore)
        double = KazooClient(self.zookeeper.hosts, client_id=client._client.client_id)
        double.start()
        double.stop()
        double.close()

    def take_away(self) -> None:
        self._is_away = True
        self.zookeeper.pause()

    def bring_back(self) -> None:
        self._is_away = False
        self.zookeeper.resume()

    def forget_history(self) -> None:
        for client in self.clients:
            assert isinstance(client, ZooKeeperStore)
            client._contents.recent.clear()

    def close(self) -> None:
        if self._is_away:
            self.bring_back()
        super().close()


@pytest.fixture(scope="module", params=[1, 3], ids=["alone", "ensemble"])
def zookeeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), servers=request.param) as running:
        yield running


@pytest.fixture
def site(zookeeper: ZooKeeper) -> Iterator[ZooKeeperSite]:
    opened = ZooKeeperSite(zookeeper)
    yield opened
    opened.close()


class TestZooKeeper(SharedStoreContract):
    """Nothing of its own."""

    session_timeout_seconds = TIMEOUT_MS / 1000
