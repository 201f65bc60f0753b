"""A broker's store in a process of its own, for ``test_stores_under_kills``: it counts, follows, and tells what it did.

    python -m tests.cluster.store_worker URL NUMBER STOP_FILE

Prints ``try`` before each transaction and ``committed``, ``conflict`` or ``unknown`` behind it.  Once there is a
STOP_FILE it compares what it was told with what is there, and prints ``same``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.cluster.bootstrap import shared_store
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.store.metadata_store import ABSENT, Changes, CommitResult, MetadataStore, Snapshot, Transaction
from pybroker.config.broker import BrokerConfig
from pybroker.net.loop_env import loop_env

COUNT = "/count"
LIVE = "/live/"
SESSION_TIMEOUT_MS = 2_000


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Worker:
    """One client: what it was told, as it was told."""

    def __init__(self, store: MetadataStore, number: int) -> None:
        self._store = store
        self._number = number
        self._told: dict[str, bytes] = {}
        self._revision = 0

    async def run(self, stop: Path) -> None:
        self._follow(await self._read())
        done = 0
        while not stop.exists():
            await self._count(done)
            done += 1
        while (there := _values(await self._read())) != self._told:
            await asyncio.sleep(0.01)
        assert there
        say("same")

    async def _count(self, done: int) -> None:
        entry = (await self._read()).entries.get(COUNT)
        version = ABSENT if entry is None else entry.version
        assert entry is None or int(entry.value) == version
        say("try")
        mine = {COUNT: b"%d" % (version + 1), f"/workers/{self._number}/{done % 5}": b"%d" % done}
        deletes = (f"/workers/{self._number}/{(done - 2) % 5}",)
        live = {f"{LIVE}{self._number}": b"%d" % done}
        result: CommitResult = await _answer(
            lambda answer: self._store.commit(Transaction({COUNT: version}, mine, deletes, live), answer)
        )
        say("committed" if result.revision else "conflict" if result.conflict else "unknown")
        await asyncio.sleep(0.002)

    async def _read(self) -> Snapshot:
        while True:
            snapshot, _ = await _answer(lambda answer: self._store.read("/", lambda *both: answer(both)))
            if snapshot is not None:
                return snapshot  # type: ignore[no-any-return]

    def _follow(self, snapshot: Snapshot) -> None:
        self._told, self._revision = _values(snapshot), snapshot.revision
        self._store.follow(snapshot.revision, self._hear, self._gap)

    def _hear(self, changes: Changes) -> None:
        assert changes.revision > self._revision
        self._revision = changes.revision
        for key in changes.deletes:
            self._told.pop(key, None)
        self._told.update(changes.puts)

    def _gap(self) -> None:
        self._store.read("/", lambda snapshot, _: self._gap() if snapshot is None else self._follow(snapshot))


def _values(snapshot: Snapshot) -> dict[str, bytes]:
    return {key: entry.value for key, entry in snapshot.entries.items() if not key.startswith(LIVE)}


async def _answer(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return await answer


async def main(url: str, number: int, stop: Path) -> None:
    config = BrokerConfig({"pybroker.metadata.session.timeout.ms": str(SESSION_TIMEOUT_MS)})
    store = shared_store(url, loop_env(), config, MetadataCache(), number)
    store.open()
    await Worker(store, number).run(stop)
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
