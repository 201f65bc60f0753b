"""A disk that is full where a topic is mirrored: it is named, the others go on, and so does this one with room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import MIRRORING
from pybroker.storage.files import os_file
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import link, produce, stored, wait_for_state, wait_until_mirrored

PARTITIONS = 2


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        produce(running, "orders", 20)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        link(running, source)
        wait_for_state(running, "orders", MIRRORING)
        wait_until_mirrored(source, running, "orders", PARTITIONS)
        yield running


def described(here: Broker) -> dict[str, Any]:
    (topic,) = CommandLine(here.bootstrap).json("links", "describe", "west")["topics"]
    found: dict[str, Any] = topic
    return found


def test_a_full_disk_is_named_and_the_others_go_on_until_there_is_room(
    source: Broker, here: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory,) = here._running().config.log_dirs
    path, write = os.path.join(directory, "orders-0"), os_file.pwrite

    def pwrite(fd: int, data: Any, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    assert described(here)["reason"] is None
    with monkeypatch.context() as full:
        full.setattr(os_file, "pwrite", pwrite)
        before = stored(here, "orders", 0)
        produce(source, "orders", 60)
        wait_until(lambda: stored(here, "orders", 1) == stored(source, "orders", 1), "the other partition")
        reason = f"partition 0: there is no room in {directory}"
        wait_until(lambda: described(here)["reason"] == reason, "what is the matter")
        assert described(here)["state"] == "mirroring"
        assert stored(here, "orders", 0) == before
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    wait_until(lambda: described(here)["reason"] is None, "nothing to be the matter")
    assert described(here)["lag"] == 0
