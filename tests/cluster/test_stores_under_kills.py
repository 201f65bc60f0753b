"""Shared stores lose nothing, and do nothing twice, while processes and servers are killed and stopped."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.child_process import ChildProcess
from harness.process_pause import pause, resume
from harness.waiting import PATIENCE_S
from harness.zookeeper import ZooKeeper

from pybroker.cluster.bootstrap import shared_store
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from tests.source_tree import ROOT

from .store_contract import real_env
from .store_worker import COUNT

WORKERS = 3
SECONDS = 15


class Workers:
    """Processes that count in one store, and what all of them have said."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._stop = folder / "stop"
        self._running: dict[int, ChildProcess] = {}
        for number in range(WORKERS):
            self._start(number)

    def _start(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.cluster.store_worker", self._url, str(number), str(self._stop)]
        log = self._folder / f"worker-{number}.log"
        self._running[number] = ChildProcess(command, log, {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])})

    def kill(self, number: int) -> None:
        self._running.pop(number).kill()
        self._start(number)

    def pause(self, number: int, seconds: float) -> None:
        pause(self._running[number].pid)
        time.sleep(seconds)
        resume(self._running[number].pid)

    def finish(self) -> dict[str, int]:
        """Let them end by themselves; how often each word was said."""
        self._stop.touch()
        for number in list(self._running):
            assert self._running.pop(number).wait(PATIENCE_S) == 0, (self._folder / f"worker-{number}.log").read_text()[
                -3000:
            ]
        said = "".join((self._folder / f"worker-{number}.log").read_text() for number in range(WORKERS)).splitlines()
        return {word: said.count(word) for word in ("try", "committed", "conflict", "same")}

    def end(self) -> None:
        for process in self._running.values():
            process.kill()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[[str], Workers]]:
    started: list[Workers] = []

    def start(url: str) -> Workers:
        started.append(Workers(tmp_path, url))
        return started[0]

    yield start
    for each in started:
        each.end()


def check(url: str, said: dict[str, int]) -> None:
    """What was told as committed is there, once; what is there besides was of unknown outcome."""
    loop = asyncio.new_event_loop()
    store = shared_store(url, loop.run_until_complete(real_env()), BrokerConfig({}), MetadataCache(), 9)
    store.open()
    entries = store.load("/")
    store.close()
    loop.close()
    count = entries[COUNT].version + 1
    unknown = said["try"] - said["committed"] - said["conflict"]
    assert said["committed"] > 100
    assert said["committed"] <= count <= said["committed"] + unknown
    assert said["same"] == WORKERS


@pytest.mark.slow
def test_counts_in_a_shared_file_are_exact_though_processes_are_killed_and_stopped(
    tmp_path: Path, workers: Callable[[str], Workers]
) -> None:
    url = f"sqlite://{tmp_path / 'metadata.db'}"
    counting, chance = workers(url), random.Random(1)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.3, 1))
        if chance.random() < 0.6:
            counting.kill(chance.randrange(WORKERS))
        else:
            counting.pause(chance.randrange(WORKERS), chance.choice([0.2, 1, 3]))
    check(url, counting.finish())


@pytest.mark.jvm(needs="zookeeper")
@pytest.mark.timeout(240)
def test_counts_in_zookeeper_are_exact_though_processes_and_servers_are_killed_and_stopped(
    tmp_path: Path, workers: Callable[[str], Workers]
) -> None:
    chance = random.Random(1)
    with ZooKeeper(tmp_path / "zookeeper", servers=3) as zookeeper:
        url = f"zookeeper://{zookeeper.hosts}/counting"
        counting = workers(url)
        end = time.monotonic() + 2 * SECONDS
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.3, 1))
            if chance.random() < 0.5:
                counting.kill(chance.randrange(WORKERS))
            elif chance.random() < 0.5:
                counting.pause(chance.randrange(WORKERS), chance.choice([0.2, 1, 3]))
            else:
                server = chance.randrange(3)
                zookeeper.kill_server(server)
                time.sleep(chance.uniform(0.1, 1))
                zookeeper.start_server(server)
                zookeeper.wait_until_serving(server)
        check(url, counting.finish())
