"""Searches by timestamp whose batches take long to decode go on in a thread, and find what others find."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c
from harness.virtual_world import START_MS, VirtualWorld

from pybroker.handlers import list_offsets
from pybroker.handlers.context import Parked, RequestContext
from pybroker.handlers.services import Services
from pybroker.storage.log.log import Log
from pybroker.storage.log.timestamp_lookup import Found, TimestampLookup
from pybroker.storage.log.timestamp_search import BYTES_SEARCHED_PER_STEP, RECORDS_SEARCHED_PER_STEP
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.handled import answer_of
from tests.replication.replicas import leader_of
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

NOW = START_MS
LARGE = bytes(BYTES_SEARCHED_PER_STEP)
MANY = [b""] * (2 * RECORDS_SEARCHED_PER_STEP)
# Batches of two timestamps each; the second record is the later one.
HEAVY = pytest.mark.parametrize(
    "fields",
    [
        {"values": [LARGE, b"later"]},
        {"values": [LARGE, b"later"], "attributes": 1},
        {"values": [*MANY, b"later"], "attributes": 1},
    ],
    ids=["large", "large once it is decompressed", "of many records"],
)


def fill(storage: Storage, world: VirtualWorld, fields: dict[str, Any], batches: int = 3) -> tuple[Log, int]:
    """A log of such batches, ten ms apart, and how many records each has."""
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log, leader_epoch=4)
    count = len(fields["values"])
    for i in range(batches):
        stamps = [NOW + 10 * i] * (count - 1) + [NOW + 10 * i + 5]
        append(world, client, timestamps=stamps, **fields)
    return log, count


def append(world: VirtualWorld, client: Client, **fields: Any) -> None:
    """Append a batch whose records a thread may have to look at."""
    result = client.send(**fields)
    if result is None:
        world.run()
        result = client.later.pop()
    assert result.error_code == 0


def told(world: VirtualWorld, found: Found) -> TimestampOffset | None:
    """What the search comes to, in the thread if it has to go there."""
    return told_later(world, found) if isinstance(found, TimestampLookup) else found


def told_later(world: VirtualWorld, found: Found) -> TimestampOffset | None:
    """What the search comes to, which has to be in the thread."""
    assert isinstance(found, TimestampLookup)
    answers: list[TimestampOffset | None] = []
    found.start(answers.append)
    assert answers == []
    world.run()
    (answer,) = answers
    return answer


def place(found: TimestampOffset | None) -> tuple[int, int, int, int] | None:
    return None if found is None else (found.timestamp, found.offset, found.leader_epoch, found.error_code)


@HEAVY
def test_search_that_takes_long_finds_the_first_record_at_or_after(
    storage: Storage, world: VirtualWorld, fields: dict[str, Any]
) -> None:
    log, count = fill(storage, world, fields)
    for i in range(3):
        first, later = (NOW + 10 * i, i * count, 4, 0), (NOW + 10 * i + 5, (i + 1) * count - 1, 4, 0)
        assert place(told(world, log.offset_for_timestamp(first[0]))) == first
        assert place(told_later(world, log.offset_for_timestamp(later[0]))) == later
    assert place(told_later(world, log.offset_of_max_timestamp())) == later
    assert log.offset_for_timestamp(NOW + 26) is None


@HEAVY
def test_search_goes_on_behind_a_batch_whose_record_was_deleted(
    storage: Storage, world: VirtualWorld, fields: dict[str, Any]
) -> None:
    """The maximum of the first batch is that of a record that is gone; those that are left are older."""
    log = storage.log(internal_segment_bytes=1 << 24)
    client, count = Client(log), len(fields["values"])
    append(world, client, timestamps=[NOW + 5] + [NOW] * (count - 1), **fields)
    append(world, client, timestamps=[NOW + 7] * count, **fields)
    log.update_high_watermark(2 * count)
    log.increment_log_start_offset(1)
    assert place(told(world, log.offset_for_timestamp(NOW + 3))) == (NOW + 7, count, 0, 0)
    append(world, client, timestamps=[NOW + 7] * count, **fields)
    log.update_high_watermark(3 * count)
    log.increment_log_start_offset(2 * count)
    assert place(told(world, log.offset_of_max_timestamp())) == (NOW + 7, 2 * count, 0, 0)


def test_damaged_batch_is_found_by_its_header(storage: Storage, world: VirtualWorld) -> None:
    log = storage.log()
    data = batch([b"v", b"later"], timestamps=[NOW, NOW + 5], leader_epoch=0)
    data[61] = 127  # a record that is not there
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    assert log.append_as_follower(memoryview(data)).error_code == 0
    log.update_high_watermark(2)
    assert place(told(world, log.offset_for_timestamp(NOW + 3))) == (NOW + 5, 0, 0, 0)


def test_search_whose_batch_is_truncated_meanwhile_ends_well(storage: Storage, world: VirtualWorld) -> None:
    """The file must not be cut under the view that the thread looks at."""
    log, _ = fill(storage, world, {"values": [LARGE, b"later"]})
    found = log.offset_for_timestamp(NOW + 20)
    log.truncate_to(0)
    assert place(told(world, found)) == (NOW + 20, 4, 4, 0)


def test_search_that_has_to_go_on_while_the_broker_stops_is_a_storage_error(
    storage: Storage, world: VirtualWorld
) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.send_now(values=[b"gone", LARGE], timestamps=[NOW + 5, NOW])
    client.send_now(values=[b"v", LARGE], timestamps=[NOW + 7, NOW])
    log.update_high_watermark(4)
    log.increment_log_start_offset(1)
    found = log.offset_for_timestamp(NOW + 3)
    assert isinstance(found, TimestampLookup)
    answers: list[TimestampOffset | None] = []
    found.start(answers.append)
    storage.close()
    assert [place(answer) for answer in answers] == [(-1, -1, -1, KAFKA_STORAGE_ERROR)]


def test_request_has_one_search_under_way_and_is_answered_once_its_last_has_ended(
    storage: Storage, world: VirtualWorld
) -> None:
    replicas = leader_of(world, storage, 4)
    for index, value in enumerate([LARGE, b"small", LARGE, LARGE]):
        partition = replicas.partition("t", index)
        assert partition is not None
        partition.append(memoryview(batch([value, b"v"], timestamps=[NOW, NOW + 5])), -1, 1_000, 13, lambda _: None)
    replicas.partition("t", 3).log.update_high_watermark(1)  # type: ignore[union-attr]
    asked = [ListOffsetsPartition(partition_index=i, timestamp=NOW + 1, current_leader_epoch=-1) for i in range(5)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=asked)], timeout_ms=1_000
    )
    ctx = RequestContext()
    ctx.services = cast("Services", SimpleNamespace(authorizer=None, replicas=replicas))
    ctx.api_version = 7
    parked = answer_of(list_offsets.handle(ctx, request))
    assert isinstance(parked, Parked)
    reader = world.executor("reader")
    while reader.jobs:
        assert not parked.completed
        assert len(reader.jobs) == 1
        reader.work()
        reader.deliver()
    answers = cast("ListOffsetsResponse", parked.response).topics[0].partitions
    found, nothing = (0, NOW + 5, 1), (0, -1, -1)
    assert {answer.partition_index: (answer.error_code, answer.timestamp, answer.offset) for answer in answers} == {
        0: found,
        1: found,
        2: found,
        3: nothing,  # it lies behind the high watermark
        4: (3, -1, -1),
    }
