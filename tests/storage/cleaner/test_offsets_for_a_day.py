"""A day of offset commits in virtual time: what is left of ``__consumer_offsets`` stays near its live data.

1,000 groups over 50 partitions, each committing 10 partitions every 5 s; this is one of the 50, whose share is 20
groups, with Kafka's defaults for the topic and the cleaner.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.coordinators.group.group_records import pack_offset
from pybroker_protocol.data_records import encode_key
from pybroker_protocol.messages.records_group import OffsetCommitKey
from pybroker_protocol.record_codec import build_batch
from pybroker_protocol.records import BASE_TIMESTAMP_AT, set_crc
from tests.storage.cleaner.logs import all_batches, compacted, survivors
from tests.storage.logs import Storage

GROUPS, PARTITIONS = 20, 10
EVERY_MS = 5_000
COMMITS = 24 * 3_600_000 // EVERY_MS
CHECK_EVERY = 720  # an hour
SEGMENT_BYTES = 104_857_600  # offsets.topic.segment.bytes

_TIMESTAMPS = Struct(">qq")
_OFFSET = Struct(">q")
_OFFSET_AT = 2  # behind the value's version


class Group:
    """A group's commit as a batch, whose offsets and times are replaced from commit to commit."""

    def __init__(self, number: int, now_ms: int) -> None:
        name = f"group-{number}"
        self.records = [
            (
                encode_key(OffsetCommitKey(group=name, topic="topic", partition=partition)),
                pack_offset(10**9 + partition, 0, "", now_ms, b"0123456789abcdef"),
            )
            for partition in range(PARTITIONS)
        ]
        self.live_bytes = sum(len(key) + len(value) for key, value in self.records)
        self.batch = bytearray(build_batch(self.records, timestamp_ms=now_ms))
        self.offsets_at = [self.batch.index(value) + _OFFSET_AT for _, value in self.records]

    def commit(self, offset: int, now_ms: int) -> bytearray:
        """The batch of the next commit."""
        for position in self.offsets_at:
            _OFFSET.pack_into(self.batch, position, offset)
        _TIMESTAMPS.pack_into(self.batch, BASE_TIMESTAMP_AT, now_ms, now_ms)
        set_crc(self.batch)
        return self.batch


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_day_of_commits_leaves_three_times_the_live_data_and_a_segment(
    make_storage: Callable[..., Storage], world: VirtualWorld
) -> None:
    storage = make_storage()
    log = compacted(
        storage,
        topic="__consumer_offsets",
        internal_segment_bytes=SEGMENT_BYTES,
        min_cleanable_dirty_ratio=0.5,
        index_interval_bytes=4096,
    )
    groups = [Group(number, world.clock.now_ms()) for number in range(GROUPS)]
    bound = 3 * sum(group.live_bytes for group in groups) + SEGMENT_BYTES
    written = 0
    for number in range(1, COMMITS + 1):
        world.advance(EVERY_MS)
        for group in groups:
            batch = group.commit(number, world.clock.now_ms())
            assert log.append_internal(batch, 0, lambda _: None) is not None
            written += len(batch)
        log.update_high_watermark(log.log_end_offset)
        if number % CHECK_EVERY == 0:
            assert log.size_bytes < bound
    assert written > 2 * SEGMENT_BYTES
    log.roll()
    log.append_internal(groups[0].commit(COMMITS, world.clock.now_ms()), 0, lambda _: None)
    log.update_high_watermark(log.log_end_offset)
    world.advance(60_000)
    assert log.size_bytes < 3 * sum(group.live_bytes for group in groups)
    latest = {record.key: record.value for record in survivors(log)}
    assert len(latest) == GROUPS * PARTITIONS
    assert {_OFFSET.unpack_from(value or b"", _OFFSET_AT)[0] for value in latest.values()} == {COMMITS}
    assert sum(len(data) for _, data in all_batches(log)) == log.size_bytes
