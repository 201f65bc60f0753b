"""What a round reads: every batch once for the map, and again only what may stay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.storage.cleaner.batch_filter import BatchFilter
from pybroker.storage.cleaner.cleaner_jobs import CleanedGroup, CleaningFailed, RoundEnd
from pybroker.storage.cleaner.round import Round
from pybroker_protocol.compression import Compression
from pybroker_protocol.record_codec import build_batch, end_transaction_batch
from pybroker_protocol.records import HEADER_BYTES, read_batch_header
from tests.storage.cleaner.logs import TIME_MS, job_over

PRODUCER = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


def batch_of(key: bytes, size: int, **fields: Any) -> bytes:
    return build_batch([(key, bytes(size))], timestamp_ms=TIME_MS, **fields)


def cleaned(directory: Path, batches: list[bytes], **fields: Any) -> tuple[bytes, RoundEnd]:
    """What a round leaves of one segment, and its end."""
    data = b""
    for step in Round(job_over(directory, batches, **fields)).steps():
        if isinstance(step, CleanedGroup):
            data = (directory / f"{0:020d}.log.cleaned").read_bytes()
    assert isinstance(step, RoundEnd)
    return data, step


BATCHES = st.one_of(
    st.builds(
        batch_of,
        st.sampled_from([b"a", b"b", b"c"]),
        st.sampled_from([0, 1, 300, 940, 1100, 3000, 9000]),
        compression=st.sampled_from([Compression.NONE, Compression.NONE, Compression.ZSTD]),
    ),
    st.builds(
        batch_of,
        st.sampled_from([b"a", b"b"]),
        st.just(2000),
        is_transactional=st.just(True),
        **{k: st.just(v) for k, v in PRODUCER.items()},
    ),
    st.builds(
        end_transaction_batch,
        commit=st.booleans(),
        coordinator_epoch=st.just(0),
        producer_id=st.just(5),
        producer_epoch=st.just(0),
        timestamp_ms=st.just(TIME_MS),
    ),
)


@given(st.lists(BATCHES, min_size=1, max_size=12), st.sampled_from([64, 1000, 2500, 1 << 16]), st.integers(0, 5))
def test_what_is_left_does_not_hang_on_what_is_not_read_again(
    batches: list[bytes], io_buffer_bytes: int, first_dirty: int
) -> None:
    fields: dict[str, Any] = {
        "io_buffer_bytes": io_buffer_bytes,
        "first_dirty_offset": min(first_dirty, len(batches) - 1),
        "producers": {5: ((1, 2), 0)},
    }
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        found, end = cleaned(Path(directory), batches, **fields)
        patched.setattr(BatchFilter, "is_superseded", lambda *_: False)
        expected, expected_end = cleaned(Path(directory), batches, **fields)
    assert found == expected
    assert end.stats._replace(bytes_read=0) == expected_end.stats._replace(bytes_read=0)
    assert end.stats.bytes_read <= expected_end.stats.bytes_read


@pytest.mark.parametrize("size", [50_000, 100_000])
def test_of_large_batches_of_which_nothing_stays_the_header_alone_is_read_again(tmp_path: Path, size: int) -> None:
    gone, last = batch_of(b"k", size), batch_of(b"k", 7)
    batches = [gone] * 20 + [last]
    found, end = cleaned(tmp_path, batches, io_buffer_bytes=10_000)
    assert read_batch_header(found).base_offset == 20
    again = end.stats.bytes_read - sum(map(len, batches))
    # The first one's size is known only once a buffer of it was read.
    assert again <= 10_000 + 20 * HEADER_BYTES + len(last)


@pytest.mark.parametrize("at", [0, 1], ids=["superseded", "kept"])
def test_batch_that_is_damaged_between_the_passes_is_noticed_where_it_would_be_copied(tmp_path: Path, at: int) -> None:
    batches = [batch_of(b"k", 30_000), batch_of(b"k", 30_000)]
    steps = Round(job_over(tmp_path, batches, io_buffer_bytes=10_000)).steps()
    path = tmp_path / f"{0:020d}.log"
    for _ in range(2):  # the map has read both
        next(steps)
    with path.open("r+b") as file:
        file.seek(len(batches[0]) * at + 1000)
        file.write(b"x")
    if at == 0:
        assert isinstance(list(steps)[-1], RoundEnd)
    else:
        with pytest.raises(CleaningFailed, match=r"the batch at offset 1 in .* has a wrong checksum"):
            list(steps)


def test_superseded_batch_that_ends_behind_its_segment_is_still_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [batch_of(b"k", 30_000), batch_of(b"k", 10)]
    job = job_over(tmp_path, batches)
    steps = Round(job).steps()
    next(steps)
    header = bytearray((tmp_path / f"{0:020d}.log").read_bytes()[:12])
    header[8:12] = (1 << 20).to_bytes(4, "big")
    with (tmp_path / f"{0:020d}.log").open("r+b") as file:
        file.write(header)
    with pytest.raises(CleaningFailed, match="no whole batch at 0"):
        list(steps)
