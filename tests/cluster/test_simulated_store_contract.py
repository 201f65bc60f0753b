"""The simulation's store keeps the rules of every ``MetadataStore``: what is found there holds for real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.cluster.store.metadata_store import MetadataStore
from tests.simulation.processes import World
from tests.simulation.scheduler import Life
from tests.simulation.store import Ensemble, SimulatedStore

from .store_contract import SharedStoreContract, StoreSite


class SimulatedSite(StoreSite):
    """An ensemble in virtual time, and a host per client."""

    def __init__(self) -> None:
        self._world = World(1)
        self._scheduler = self._world.scheduler
        self._ensemble = Ensemble(self._world)
        self._ensemble.tears_snapshots = False
        self._clients: list[SimulatedStore] = []

    def client(self) -> MetadataStore:
        process: Any = SimpleNamespace(host=f"10.0.1.{len(self._clients)}")
        process.life = Life(process.host, process)
        with self._scheduler.within(process.life):
            store = self._ensemble.store()
            store.open()
        self._clients.append(store)
        return store

    def until(self, condition: Callable[[], object]) -> None:
        end = self.now() + 60
        while not condition():
            assert self.now() < end, "the condition never held"
            self._scheduler.step()

    def now(self) -> float:
        return self._scheduler.now_us / 1_000_000

    def expire(self, client: MetadataStore) -> None:
        assert isinstance(client, SimulatedStore)
        self._ensemble.end_session(client.session)

    def take_away(self) -> None:
        self._ensemble.is_away = True

    def bring_back(self) -> None:
        self._ensemble.is_away = False

    def forget_history(self) -> None:
        self._ensemble.forget_history()

    def close(self) -> None:
        for client in self._clients:
            if not client.is_over:
                client.close()


@pytest.fixture
def site() -> Iterator[SimulatedSite]:
    opened = SimulatedSite()
    yield opened
    opened.close()


class TestSimulated(SharedStoreContract):
    """A broker's fault is not kept from the others there: it ends the run."""

    session_timeout_seconds = 6.0

    test_follower_is_told_though_another_one_fails = None  # type: ignore[assignment]
