"""Compaction of a log: what stays, what goes and when, over real files, the cleaner's thread run by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.log.log import Log
from pybroker_protocol.compression import Compression
from pybroker_protocol.record_codec import decode_records
from tests.storage.cleaner.logs import (
    BACKOFF_MS,
    all_batches,
    clean,
    compacted,
    end_transaction,
    file_names,
    markers,
    put,
    survivors,
)
from tests.storage.logs import Storage

HOUR = 3_600_000
MakeStorage = Callable[..., Storage]


@pytest.fixture
def storage(make_storage: MakeStorage) -> Storage:
    return make_storage(log_cleaner_backoff_ms=BACKOFF_MS)


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in survivors(log)}


def test_last_value_of_each_key_survives_with_its_offset(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    for i in range(50):
        put(log, (b"k%d" % (i % 7), b"v%d" % i))
    log.roll()
    end = put(log, (b"tail", b"x"))
    clean(world)
    assert [record.offset for record in survivors(log)] == [*range(43, 50), end]
    assert values(log) == {**{b"k%d" % (i % 7): b"v%d" % i for i in range(43, 50)}, b"tail": b"x"}
    assert (log.log_start_offset, log.log_end_offset) == (0, 51)


def test_active_segment_is_never_touched(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    put(log, (b"k", b"1"))
    log.roll()
    for i in range(5):
        put(log, (b"k", b"%d" % i))
    clean(world, 3)
    assert [record.offset for record in survivors(log)] == [0, 1, 2, 3, 4, 5]
    log.roll()
    put(log, (b"k", b"end"))
    clean(world)
    assert [record.offset for record in survivors(log)] == [5, 6]


@pytest.mark.parametrize("codec", list(Compression))
def test_reduced_batch_stays_in_its_codec_and_an_untouched_one_as_it_was(
    storage: Storage, world: VirtualWorld, codec: Compression
) -> None:
    log = compacted(storage)
    put(log, *((b"a%d" % i, b"x" * 50) for i in range(10)), compression=codec)
    put(log, *((b"b%d" % i, b"x" * 50) for i in range(10)), compression=codec)
    untouched = all_batches(log)[1][1]
    put(log, *((b"a%d" % i, b"new") for i in range(9)), compression=codec)
    log.roll()
    put(log, (b"z", b"z"))
    clean(world)
    found = all_batches(log)
    assert found[0][0].compression == codec
    assert [record.key for record in decode_records(found[0][1])] == [b"a9"]
    assert (found[0][0].base_offset, found[0][0].last_offset) == (0, 9)
    assert found[1][1] == untouched


def test_tombstones_go_when_their_horizon_has_passed(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, delete_retention_ms=HOUR)
    put(log, (b"k", b"1"), (b"other", b"1"))
    put(log, (b"k", None))
    log.roll()
    put(log, (b"x", b"1"))
    clean(world)
    assert values(log) == {b"other": b"1", b"k": None, b"x": b"1"}
    horizons = [header.delete_horizon_ms for header, _ in all_batches(log)]
    assert horizons[0] is None
    assert horizons[1] is not None
    assert 0 <= horizons[1] - HOUR - (world.clock.now_ms() - 1500) <= 1500
    log.roll()
    put(log, (b"y", b"1"))
    clean(world)
    assert b"k" in values(log)
    world.advance(HOUR)
    log.roll()
    put(log, (b"z", b"1"))
    clean(world)
    assert values(log) == {b"other": b"1", b"x": b"1", b"y": b"1", b"z": b"1"}


def test_records_of_aborted_transactions_go_and_their_marker_only_after_them(
    storage: Storage, world: VirtualWorld
) -> None:
    log = compacted(storage, delete_retention_ms=HOUR)
    put(log, (b"k", b"committed"))
    put(log, (b"k", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, (b"j", b"aborted"), producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    marker = end_transaction(log, 7, commit=False)
    log.roll()
    put(log, (b"x", b"1"))
    clean(world)
    assert values(log) == {b"k": b"committed", b"x": b"1"}
    assert markers(log) == [marker]
    assert len(log.aborted_transactions(0, marker)) == 1
    log.roll()
    put(log, (b"y", b"1"))
    clean(world)  # the last data batch of the producer is there, empty: it may still be asked about
    assert markers(log) == [marker]
    log.producers.producers.pop(7)
    for _ in range(3):
        log.roll()
        put(log, (b"y", b"1"))
        clean(world)
        assert markers(log) == [marker] or world.clock.now_ms() > HOUR
    world.advance(HOUR)
    log.roll()
    put(log, (b"y", b"1"))
    clean(world)
    assert markers(log) == []
    assert log.aborted_transactions(0, marker) == []
    assert b"j" not in values(log)


def test_what_a_producer_commits_after_an_aborted_transaction_is_compacted(
    storage: Storage, world: VirtualWorld
) -> None:
    log = compacted(storage, delete_retention_ms=HOUR)
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    put(log, (b"other", b"aborted"), base_sequence=0, **producer)
    end_transaction(log, 7, commit=False)
    log.roll()
    put(log, (b"x", b"1"))
    clean(world)  # the aborted transaction lies in the clean part from now on
    put(log, (b"k", b"old"), (b"k", b"new"), (b"gone", b"old"), (b"gone", None), base_sequence=1, **producer)
    end_transaction(log, 7, commit=True)
    log.roll()
    put(log, (b"x", b"2"))
    clean(world)
    assert [(left.key, left.value) for left in survivors(log) if left.key != b"x"] == [(b"k", b"new"), (b"gone", None)]


def test_last_five_batches_of_a_producer_are_known_when_their_records_are_gone(
    make_storage: MakeStorage, storage: Storage, world: VirtualWorld
) -> None:
    log = compacted(storage)
    for sequence in range(7):
        put(log, (b"k", b"old"), producer_id=9, producer_epoch=3, base_sequence=sequence)
    put(log, (b"k", b"new"))
    log.roll()
    put(log, (b"x", b"1"))
    clean(world)
    assert values(log) == {b"k": b"new", b"x": b"1"}
    kept = [header for header, _ in all_batches(log) if header.producer_id == 9]
    assert [(header.records_count, header.last_sequence, header.last_offset) for header in kept] == [
        (0, last, last) for last in range(2, 7)
    ]
    known = list(log.producers.producers[9].batches)
    storage.close()
    for path in [*log.path.glob("*.snapshot"), storage.path / ".kafka_cleanshutdown"]:
        path.unlink()
    again = compacted(make_storage())
    assert list(again.producers.producers[9].batches) == known


def test_nothing_at_or_past_the_last_stable_offset_is_cleaned(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll()
    put(log, (b"k", b"open"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    put(log, (b"k", b"3"))
    log.roll()
    put(log, (b"k", b"4"))
    clean(world, 2)
    assert [record.offset for record in survivors(log)] == [1, 2, 3, 4]
    end_transaction(log, 7, commit=True)
    clean(world, 2)
    assert [record.offset for record in survivors(log)] == [3, 4]


def test_nothing_at_or_past_the_high_watermark_is_cleaned(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    for _ in range(3):
        put(log, (b"k", b"1"))
        log.roll()
    put(log, (b"k", b"1"))
    log.high_watermark = 1
    clean(world, 2)
    assert [record.offset for record in survivors(log)] == [0, 1, 2, 3]
    log.update_high_watermark(4)
    clean(world, 2)
    assert [record.offset for record in survivors(log)] == [2, 3]


def test_min_compaction_lag_protects_young_segments(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, min_compaction_lag_ms=HOUR)
    put(log, (b"k", b"1"))
    log.roll()
    world.advance(HOUR // 2)
    put(log, (b"k", b"2"))
    log.roll()
    put(log, (b"k", b"3"))
    world.advance(HOUR // 2 + BACKOFF_MS + 10)
    assert [record.offset for record in survivors(log)] == [0, 1, 2]  # alone in its segment, it is the last one
    world.advance(HOUR)
    assert [record.offset for record in survivors(log)] == [1, 2]


def test_max_compaction_lag_rolls_and_cleans_whatever_the_ratio(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    world.advance(HOUR + 1)
    put(log, (b"k", b"3"))
    assert len(log.segments) == 2
    clean(world)
    assert [record.offset for record in survivors(log)] == [1, 2]


def test_clean_log_is_left_alone_until_enough_of_it_is_dirty(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, min_cleanable_dirty_ratio=0.5)
    for i in range(20):
        put(log, (b"k%d" % i, b"x" * 100))
    log.roll()
    put(log, (b"k0", b"x" * 100))
    clean(world)
    log.roll()
    put(log, (b"end", b""))
    clean(world, 3)
    assert 0 in [record.offset for record in survivors(log)]
    for _ in range(25):
        put(log, (b"k0", b"x" * 100))
    log.roll()
    put(log, (b"end", b""))
    clean(world, 3)
    assert 0 not in [record.offset for record in survivors(log)]


def test_small_segments_become_one_and_leave_no_files(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    for i in range(6):
        put(log, (b"k%d" % i, b"v"))
        log.roll()
    put(log, (b"end", b"v"))
    clean(world)
    assert len(log.segments) == 2
    assert len(survivors(log)) == 7
    world.advance(10_000)
    bases = {name[:20] for name in file_names(log) if name.endswith((".log", ".index", ".timeindex"))}
    assert bases == {f"{0:020d}", f"{6:020d}"}
    assert not [name for name in file_names(log) if name.endswith((".deleted", ".swap", ".cleaned"))]
    assert len([name for name in file_names(log) if name.endswith(".snapshot")]) <= 2


def test_what_is_clean_is_remembered_over_a_restart(
    make_storage: MakeStorage, storage: Storage, world: VirtualWorld
) -> None:
    log = compacted(storage)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll()
    put(log, (b"k", b"3"))
    clean(world)
    world.run()
    storage.close()
    text = (storage.path / "cleaner-offset-checkpoint").read_text()
    assert text == "0\n1\nt 0 2\n"


def test_deleted_topic_leaves_no_checkpoint_to_its_namesake(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage)
    put(log, (b"k", b"1"))
    log.roll()
    put(log, (b"k", b"3"))
    clean(world)
    storage.manager.delete("t", log.topic_id or b"", 10)
    world.run()
    assert (storage.path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_compacted_and_deleted_log_loses_old_segments_too(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=HOUR)
    put(log, (b"a", b"1"))
    log.roll()
    put(log, (b"b", b"1"))
    clean(world)
    world.advance(HOUR + 600_000)
    assert log.log_start_offset == 2
    assert survivors(log) == []


def test_records_below_the_log_start_do_not_come_back(storage: Storage, world: VirtualWorld) -> None:
    log = compacted(storage, cleanup_policy=frozenset({"compact", "delete"}))
    for i in range(4):
        put(log, (b"k%d" % i, b"1"))
    log.increment_log_start_offset(2)
    log.roll()
    put(log, (b"x", b"1"))
    clean(world)
    assert log.log_start_offset == 2
    assert [record.offset for record in survivors(log) if record.offset >= 2] == [2, 3, 4]


def test_replaced_segments_that_a_clean_stop_left_go_at_the_next_opening(
    make_storage: MakeStorage, storage: Storage, world: VirtualWorld
) -> None:
    log = compacted(storage, file_delete_delay_ms=HOUR)
    put(log, (b"k", b"1"))
    log.roll()
    put(log, (b"k", b"3"))
    clean(world)
    storage.close()
    assert [name for name in file_names(log) if name.endswith(".deleted")]
    again = compacted(make_storage())
    assert again.log_end_offset == 2
    world.advance(1)
    assert not [name for name in file_names(again) if name.endswith(".deleted")]
