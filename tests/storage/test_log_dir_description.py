"""What DescribeLogDirs tells: only of what was asked, by the reader threads, some partitions at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.handlers import describe_log_dirs
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.services import Services
from pybroker.storage.files.directory_listing import ListedSegment, segment_files
from pybroker.storage.manager import log_dir_description
from pybroker.storage.manager.log_dir_description import LogDirDescription
from pybroker.storage.results import KAFKA_STORAGE_ERROR
from pybroker_protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.handled import answer_of
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

COUNT = 7
MakeStorage = Callable[..., Storage]


class Looks:
    """Which partitions' files are looked at; those of ``failing`` cannot be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[str] = []
        self.failing: dict[str, int] = {}
        monkeypatch.setattr(log_dir_description, "segment_files", self.segment_files)

    def segment_files(self, path: Path) -> list[ListedSegment]:
        self.at.append(path.name)
        code = self.failing.get(path.name)
        if code is not None:
            raise OSError(code, os.strerror(code))
        return segment_files(path)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def sizes(described: list[LogDirDescription]) -> dict[tuple[str, int], int]:
    """The size of each partition that is told of."""
    return {(row.topic, row.index): row.size_bytes for directory in described for row in directory.partitions}


def restarted(make_storage: MakeStorage, **settings: Any) -> Storage:
    """Partition ``i`` has ``i`` batches; nobody has opened any."""
    storage = make_storage(**settings)
    for index in range(COUNT):
        Client(storage.log(partition=index, internal_segment_bytes=1 << 20)).fill(index)
    storage.close()
    return make_storage(**settings)


BATCH_BYTES = len(batch([bytes(106)]))


def test_partitions_that_nobody_opened_have_the_sizes_of_their_files(make_storage: MakeStorage) -> None:
    storage = restarted(make_storage)
    # An empty log has no files.
    assert sizes(storage.describe()) == {("t", index): index * BATCH_BYTES for index in range(1, COUNT)}
    (directory,) = storage.describe()
    assert 0 < directory.usable_bytes < directory.total_bytes


def test_open_partition_tells_its_own_size_and_that_it_lags_behind_nothing(
    make_storage: MakeStorage, looks: Looks
) -> None:
    storage = restarted(make_storage)
    log = storage.log(partition=3)
    log.update_high_watermark(1)
    assert log.log_end_offset == 3
    (directory,) = storage.describe(("t", 3))
    assert [(row.index, row.size_bytes, row.offset_lag) for row in directory.partitions] == [(3, 3 * BATCH_BYTES, 0)]
    assert looks.at == []


def test_only_what_is_asked_for_is_looked_at(make_storage: MakeStorage, looks: Looks) -> None:
    storage = restarted(make_storage)
    asked = (("t", 5), ("t", 2), ("t", 99), ("unknown", 0))
    assert list(sizes(storage.describe(*asked))) == [("t", 5), ("t", 2)]
    assert looks.at == ["t-5", "t-2"]


def test_files_are_looked_at_by_the_thread_one_partition_at_a_time(
    make_storage: MakeStorage, world: VirtualWorld, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.storage.manager.log_dir_description.PARTITIONS_DESCRIBED_AT_ONCE", 3)
    storage = restarted(make_storage)
    described: list[list[LogDirDescription]] = []
    storage.manager.describe(None, {}, described.append)
    reader = world.executor("reader")
    assert looks.at == []
    while not described:
        looked_at = len(looks.at)
        assert len(reader.jobs) == 1, "a cold read that comes now is next"
        reader.work()
        assert len(looks.at) <= looked_at + 1
        reader.deliver()
    assert len(looks.at) == len(sizes(described[0])) == COUNT - 1


def test_partition_that_is_opened_meanwhile_tells_its_own_size(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = restarted(make_storage)
    described: list[list[LogDirDescription]] = []
    storage.manager.describe([("t", 1)], {}, described.append)
    reader = world.executor("reader")
    while reader.jobs:
        reader.work()
    Client(storage.log(partition=1, internal_segment_bytes=1 << 20)).fill(2)
    reader.deliver()
    assert sizes(described[0]) == {("t", 1): 3 * BATCH_BYTES}


@pytest.mark.parametrize(("code", "offline"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_directory_that_cannot_be_read_is_an_error_beside_the_others(
    make_storage: MakeStorage, looks: Looks, code: int, offline: bool
) -> None:
    storage = restarted(make_storage, dirs=2)
    lies_in = [{row.index for row in directory.partitions} for directory in storage.describe()]
    looks.failing = {f"t-{index}": code for index in lies_in[1]}
    first, second = storage.describe()
    assert (first.error_code, {row.index for row in first.partitions}) == (0, lies_in[0])
    assert (second.error_code, second.partitions, second.total_bytes) == (KAFKA_STORAGE_ERROR, [], -1)
    looks.failing = {}
    assert [directory.error_code != 0 for directory in storage.describe()] == [False, offline]


def ask(storage: Storage, *partitions: int) -> Parked:
    """What the handler makes of a request for partitions of the topic, or for all."""
    topics = [DescribableLogDirTopic(topic="t", partitions=list(partitions))] if partitions else None
    ctx, replicas = RequestContext(), SimpleNamespace(assigned=lambda _: ())
    ctx.services = cast("Services", SimpleNamespace(authorizer=None, logs=storage.manager, replicas=replicas))
    handled = describe_log_dirs.handle(ctx, DescribeLogDirsRequest(topics=topics))
    return cast("Parked", answer_of(handled))


def test_partition_that_is_asked_for_twice_is_told_once(make_storage: MakeStorage, world: VirtualWorld) -> None:
    parked = ask(restarted(make_storage), 4, 2, 4)
    assert not parked.completed
    world.run()
    response = cast("DescribeLogDirsResponse", parked.response)
    (directory,) = response.results
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in directory.topics] == [
        ("t", [4, 2])
    ]


def test_client_that_goes_away_costs_no_further_look(
    make_storage: MakeStorage, world: VirtualWorld, looks: Looks
) -> None:
    parked = ask(restarted(make_storage))
    world.executor("reader").work()
    parked.abandon()
    world.run()
    assert len(looks.at) == 1


def test_broker_that_stops_describes_no_further(
    make_storage: MakeStorage, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.storage.manager.log_dir_description.PARTITIONS_DESCRIBED_AT_ONCE", 2)
    storage = restarted(make_storage)
    parked = ask(storage)
    storage.close()
    assert not parked.completed
    assert len(looks.at) <= 2
