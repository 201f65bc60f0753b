"""Batches with a sound checksum that lie about their records, or hold millions of them, in logs that are cleaned."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner import round as cleaner_round
from pybroker.storage.cleaner.batch_filter import CLEANER_SLICE_RECORDS
from pybroker.storage.cleaner.cleaner_jobs import Progress, RoundEnd
from pybroker.storage.cleaner.round import Round
from pybroker_protocol.compression import Compression
from pybroker_protocol.record_codec import build_batch
from pybroker_protocol.records import HEADER, HEADER_BYTES, LOG_OVERHEAD, read_batch_header, set_crc
from tests.storage.cleaner.logs import BACKOFF_MS, TIME_MS, append, clean, compacted, job_over, put, survivors
from tests.storage.logs import Storage

MakeStorage = Callable[..., Storage]


@pytest.fixture
def storage(make_storage: MakeStorage) -> Storage:
    return make_storage(log_cleaner_backoff_ms=BACKOFF_MS)


def sound(codec: int = Compression.NONE) -> bytes:
    return build_batch([(b"key", b"value %d" % i) for i in range(3)], timestamp_ms=TIME_MS, compression=codec)


def forged(batch: bytes, section: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields or another records section, and the checksum that belongs to it."""
    section = batch[HEADER_BYTES:] if section is None else section
    header = read_batch_header(batch)._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD + len(section), **fields)
    again = bytearray(HEADER.pack(*header)) + section
    set_crc(again)
    return bytes(again)


def garbage_in(codec: Compression) -> bytes:
    return forged(sound(codec), bytes(range(3, 90)))


ONE = build_batch([(b"key", b"value")], timestamp_ms=TIME_MS)[HEADER_BYTES:]
LIES = {
    "more records than there are": forged(sound(), records_count=2**31 - 1),
    "fewer records than there are": forged(sound(), records_count=1),
    "a negative count": forged(sound(), records_count=-1),
    "offsets behind the last one": forged(sound(), last_offset_delta=1),
    "an offset twice": forged(sound(), 3 * ONE),
    "a record that ends too early": forged(sound(), sound()[HEADER_BYTES:-1]),
    "a key behind its record": forged(sound(), b"\x0c\0\0\0\x40k\x01", records_count=1),
    **{f"garbage in {codec.name.lower()}": garbage_in(codec) for codec in Compression},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_batch_that_lies_makes_its_log_uncleanable_in_one_line_and_others_are_cleaned(
    storage: Storage, world: VirtualWorld, caplog: pytest.LogCaptureFixture, lie: bytes
) -> None:
    log = compacted(storage, topic="lied-to")
    other = compacted(storage, topic="honest", topic_id=b"fedcba9876543210")
    for each in (log, other):
        for _ in range(2):
            put(each, (b"key", b"1"))
            put(each, (b"key", b"2"))
            each.roll()
    offset = append(log, lie)
    segment = log.active
    for each in (log, other):
        put(each, (b"key", b"3"))
        each.roll()
        put(each, (b"end", b""))
    size_bytes = log.size_bytes
    with caplog.at_level(logging.WARNING, "pybroker.storage"):
        clean(world, 4)
    assert [record.key for record in survivors(other)] == [b"key", b"end"]
    assert log.size_bytes == size_bytes
    assert not log.directory.offline
    assert not list(log.path.glob("*.cleaned"))
    [line] = [record.getMessage() for record in caplog.records]
    assert "lied-to-0 is uncleanable" in line
    assert str(segment.path()) in line
    assert f"offset {offset} " in line


def test_lie_in_the_clean_part_is_named_too(
    storage: Storage, world: VirtualWorld, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacted(storage)
    put(log, (b"key", b"1"))
    log.roll()
    put(log, (b"key", b"2"))
    clean(world)
    checkpoints = storage.manager._cleaner()._checkpoints
    lie = append(log, LIES["a record that ends too early"])
    log.roll()
    put(log, (b"key", b"3"))
    log.roll()
    put(log, (b"end", b""))
    checkpoints.set(log.directory, ("t", 0), lie + 3)
    clean(world)
    assert "t-0 is uncleanable" in caplog.text
    assert f"the batch at offset {lie} in " in caplog.text


@pytest.mark.parametrize("value", [b"", None], ids=["values", "tombstones"])
def test_batch_of_very_many_records_is_cleaned_in_small_steps_and_little_memory(
    tmp_path: Path, value: bytes | None
) -> None:
    count = 60_000
    bomb = build_batch([(b"k", value)] * count, timestamp_ms=TIME_MS, compression=Compression.ZSTD)
    section_bytes = len(build_batch([(b"k", value)] * count, timestamp_ms=TIME_MS))
    steps = Round(job_over(tmp_path, [bomb, bomb, sound()])).steps()
    found = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for step in steps:
            found.append(step)
        peak_bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len([step for step in found if isinstance(step, Progress)]) >= 2 * count // CLEANER_SLICE_RECORDS
    # Some copies of what is decompressed, and one slice's objects: not an object for each record.
    assert peak_bytes < 3 * section_bytes + 500 * CLEANER_SLICE_RECORDS + (1 << 20)
    end = found[-1]
    assert isinstance(end, RoundEnd)
    assert (end.clean_offset, end.stats.records_kept, end.stats.keys) == (2 * count + 3, 2, 2)


def test_batch_whose_very_many_records_all_stay_is_rewritten_in_small_steps(tmp_path: Path) -> None:
    count = 20_000
    keys = [b"%d" % i for i in range(count)]
    batch = build_batch([(key, None) for key in keys], timestamp_ms=TIME_MS)
    found = list(Round(job_over(tmp_path, [batch])).steps())
    # The map, the filter, the horizon and the largest timestamp.
    assert len([step for step in found if isinstance(step, Progress)]) >= 4 * count // CLEANER_SLICE_RECORDS


def test_small_batches_share_the_pauses_of_their_chunk(tmp_path: Path) -> None:
    batches = [build_batch([(b"%d" % i, b"v")], timestamp_ms=TIME_MS) for i in range(500)]
    found = list(Round(job_over(tmp_path, batches)).steps())
    # A pause behind each would make a minute of what takes a second.
    assert len([step for step in found if isinstance(step, Progress)]) < len(batches) // 50


def test_log_of_too_many_records_for_a_round_lets_others_go_first_and_is_cleaned_by_and_by(
    storage: Storage, world: VirtualWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner_round, "CLEANER_ROUND_RECORDS_MAX", 30)
    other = compacted(storage, topic="other", topic_id=b"fedcba9876543210")
    put(other, (b"key", b"1"))
    other.roll()
    put(other, (b"key", b"2"))
    bombed = compacted(storage, topic="bombed")
    for _ in range(4):
        put(bombed, *[(b"key", b"value")] * 30)
        bombed.roll()
    put(bombed, (b"end", b""))
    with caplog.at_level(logging.INFO, "pybroker.storage"):
        clean(world)
    cleaned = [record.getMessage().split()[1] for record in caplog.records if record.getMessage().startswith("Cleaned")]
    assert cleaned == ["bombed-0", "other-0", "bombed-0", "bombed-0", "bombed-0"]
    assert [record.offset for record in survivors(bombed)] == [119, 120]
