"""Markers of one transaction into very many partitions are written over several turns of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.link_states import STATES, WRITABLE, MirroredTopic
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.replication.transaction_markers import TransactionMarkers
from pybroker.storage.results import TransactionMarker
from pybroker_protocol.errors import ErrorCode
from tests.replication.replicas import leader_of
from tests.storage.logs import Storage

COUNT = 7
MARKER = TransactionMarker(1, 0, 0, True, 2)
PARTITIONS = [("t", index) for index in range(COUNT)]


class Writer:
    """The markers of seven partitions, of which one is written in a turn."""

    def __init__(self, world: VirtualWorld, replicas: ReplicaManager) -> None:
        self.world = world
        self.replicas = replicas
        self.answers: list[dict[tuple[str, int], int]] = []
        self.markers = TransactionMarkers(world.clock, replicas, lambda _partition, _marker, done: done(0))

    def write(self) -> None:
        self.markers.write(MARKER, PARTITIONS, self.answers.append)

    def written(self) -> int:
        logs = [self.replicas.partition("t", index) for index in range(COUNT)]
        return sum(log.log.log_end_offset for log in logs if log is not None)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    monkeypatch.setattr("pybroker.replication.transaction_markers.MARKERS_AT_ONCE", 3)
    monkeypatch.setattr("pybroker.replication.transaction_markers.MARKER_SLICE_MS", 0)
    world = VirtualWorld()
    storage = Storage(tmp_path / "data", world)
    world.timers.clear()
    yield Writer(world, leader_of(world, storage, COUNT))
    storage.close()


def test_many_markers_are_written_some_in_a_turn_and_answered_together(writer: Writer) -> None:
    writer.write()
    written = [writer.written()]
    while not writer.answers:
        writer.world.turn()
        written.append(writer.written())
    assert written == list(range(COUNT + 1))
    assert writer.answers == [dict.fromkeys(PARTITIONS, 0)]


def test_markers_of_two_transactions_take_their_turns(writer: Writer) -> None:
    writer.write()
    writer.write()
    written = []
    while len(writer.answers) < 2:
        writer.world.turn()
        written.append(writer.written())
    assert written == list(range(1, 2 * COUNT + 1))


def test_nothing_is_written_after_the_end_of_the_broker(writer: Writer) -> None:
    writer.write()
    writer.world.turn()
    writer.markers.close()
    writer.world.turn()
    assert writer.written() == 1
    assert writer.answers == []


@pytest.mark.parametrize("state", STATES)
def test_no_marker_is_written_to_a_topic_that_a_link_mirrors(writer: Writer, state: str) -> None:
    """Of a transaction that was open as the topic was adopted: the source has another record at that offset."""
    builder = ImageBuilder(writer.replicas.image)
    builder.put_mirror("t", MirroredTopic("west", "t", state=state))
    writer.replicas._metadata.apply(*builder.build(1))
    writer.markers.write(MARKER, PARTITIONS[:1], writer.answers.append)
    is_written = state in WRITABLE
    assert writer.answers == [{PARTITIONS[0]: 0 if is_written else ErrorCode.TOPIC_AUTHORIZATION_FAILED}]
    assert writer.written() == is_written
