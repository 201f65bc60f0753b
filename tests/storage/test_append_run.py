"""A run of small batches leaves the log as if they had been appended one by one, and takes only what is plain."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.storage.files import os_file
from pybroker.storage.log.append_run import append_run
from pybroker.storage.log.log import Log
from pybroker.storage.rules import record_validator
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Client, Storage, read_all

TRANSACTIONAL = 16


def views(*batches: bytearray) -> list[memoryview]:
    return [memoryview(data) for data in batches]


def idempotent(sequence: int, **fields: Any) -> bytearray:
    return batch(producer_id=1, producer_epoch=0, sequence=sequence, **fields)


def broken() -> bytearray:
    data = batch()
    data[-1] ^= 1
    return data


@pytest.fixture
def log(storage: Storage) -> Log:
    """A log with one batch in it: the first one makes the files and is never part of a run."""
    log = storage.log()
    Client(log).fill(1)
    return log


@st.composite
def any_batch(draw: st.DrawFn) -> bytes:
    """Mostly plain; sequences are drawn from few, so that some are next in line, some repeats and some gaps."""
    kind = draw(st.sampled_from(["plain"] * 6 + ["idempotent"] * 6 + ["transactional", "broken", "long"]))
    values = [bytes(draw(st.integers(0, 300)))] * draw(st.integers(1, 3))
    if kind == "idempotent":
        producer_id, sequence = draw(st.integers(1, 2)), draw(st.integers(0, 6))
        return bytes(batch(values, producer_id=producer_id, producer_epoch=0, sequence=sequence))
    if kind == "transactional":
        return bytes(batch(values, attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, sequence=0))
    if kind == "broken":
        return bytes(broken())
    return bytes(batch([bytes(1500)] if kind == "long" else values))


def files(log: Log) -> dict[str, bytes]:
    for segment in log.segments:
        segment.persist_indexes()
    kinds = (".log", ".index", ".timeindex")
    return {path.name: path.read_bytes() for path in log.path.glob("*") if path.suffix in kinds}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(any_batch(), min_size=1, max_size=40), run=st.integers(1, 8))
def test_runs_leave_the_log_that_single_appends_leave(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], run: int
) -> None:
    one_by_one = Storage(tmp_path_factory.mktemp("single"), VirtualWorld())
    in_runs = Storage(tmp_path_factory.mktemp("runs"), VirtualWorld())
    try:
        assert outcomes(in_runs.log(), batches, run) == outcomes(one_by_one.log(), batches, 0)
        assert state(in_runs.log()) == state(one_by_one.log())
    finally:
        in_runs.kill()
        one_by_one.kill()


def state(log: Log) -> tuple[Any, ...]:
    producers = {producer_id: vars_of(entry) for producer_id, entry in log.producers.producers.items()}
    return log.log_end_offset, producers, files(log)


def vars_of(entry: Any) -> tuple[Any, ...]:
    return entry.producer_epoch, entry.batches, entry.last_timestamp, entry.current_txn_first_offset


def outcomes(log: Log, batches: list[bytes], run: int) -> list[tuple[int, int]]:
    """(error code, base offset) of each batch; appended in runs of ``run``, what is not taken one by one."""
    client = Client(log)
    outcomes: list[tuple[int, int]] = []
    waiting = [bytearray(data) for data in batches]
    while waiting:
        base_offsets = append_run(log, views(*waiting[:run]), 0, LATEST_PRODUCE) if run else []
        outcomes += [(0, base_offset) for base_offset in base_offsets]
        del waiting[: len(base_offsets)]
        if waiting and len(base_offsets) < max(run, 1):
            result = client.send_now(waiting.pop(0))
            outcomes.append((result.error_code, result.base_offset))
    return outcomes


def test_run_is_one_write(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []

    def pwrite(fd: int, data: Any, position: int) -> int:
        writes.append(len(data))
        return os.pwrite(fd, data, position)

    monkeypatch.setattr(os_file, "pwrite", pwrite)
    batches = [batch([b"a"]), batch([b"b", b"c"]), idempotent(0)]
    assert append_run(log, views(*batches), 0, LATEST_PRODUCE) == [1, 2, 4]
    assert writes == [sum(map(len, batches))]
    assert [base_offset for base_offset, *_ in read_all(log)] == [0, 1, 2, 4]


@pytest.mark.parametrize("room", [0, 1, 100])
def test_failed_write_changes_nothing_and_the_batches_can_be_sent_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    def pwrite(fd: int, data: Any, position: int) -> int:
        if position == log.active.size and room:
            return os.pwrite(fd, bytes(data)[:room], position)
        raise OSError(errno.ENOSPC, "full")

    before = read_all(log)
    batches = [idempotent(0), idempotent(1), batch()]
    with monkeypatch.context() as full_disk:
        full_disk.setattr(os_file, "pwrite", pwrite)
        assert append_run(log, views(*batches), 0, LATEST_PRODUCE) == []
    assert read_all(log) == before
    assert log.active.path().stat().st_size == log.active.size
    assert append_run(log, views(*batches), 0, LATEST_PRODUCE) == [1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [
        idempotent(0),  # a repeat of the one before it
        idempotent(7),  # a gap
        broken(),
        batch(attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, sequence=0),
        batch([bytes(5000)]),  # rolls the segment
        bytearray(10),
    ],
)
def test_run_ends_before_what_is_not_plain(log: Log, other: bytearray) -> None:
    as_sent = bytes(other)
    assert append_run(log, views(idempotent(0), other, batch()), 0, LATEST_PRODUCE) == [1]
    assert bytes(other) == as_sent
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    "attributes",
    [{"message_timestamp_type": "LogAppendTime"}, {"compression_type": "lz4"}],
)
def test_nothing_is_taken_where_batches_are_rewritten(storage: Storage, attributes: dict[str, Any]) -> None:
    log = storage.log(**attributes)
    Client(log).send_now(values=[(b"k", b"v")])
    assert append_run(log, views(batch([(b"k", b"v")])), 0, LATEST_PRODUCE) == []


LOOKED_INTO: list[dict[str, Any]] = [{"cleanup_policy": ("compact",)}, {"pybroker_validate_records": True}]


@pytest.mark.parametrize("attributes", LOOKED_INTO)
def test_run_ends_before_records_that_are_not_in_order(storage: Storage, attributes: dict[str, Any]) -> None:
    log = storage.log(**attributes)
    Client(log).send_now(values=[(b"k", b"v")])
    sound, lying = batch([(b"k", b"v")] * 3), batch([(b"k", b"v")] * 3, count=2, last_offset_delta=1)
    as_sent = bytes(lying)
    assert append_run(log, views(sound, lying, sound), 0, LATEST_PRODUCE) == [1]
    assert bytes(lying) == as_sent
    assert log.log_end_offset == 4


@pytest.mark.parametrize(
    "values", [[(b"k", b"")] * (record_validator.INLINE_DECODE_RECORDS_MAX + 1), [(b"k", bytes(70_000))]]
)
def test_run_ends_before_what_a_thread_has_to_look_into(storage: Storage, values: list[Any]) -> None:
    log = storage.log(pybroker_validate_records=True, internal_segment_bytes=1 << 20)
    Client(log).send_now()
    assert append_run(log, views(batch(), batch(values)), 0, LATEST_PRODUCE) == [1]


def test_nothing_is_taken_that_a_sync_must_precede(make_storage: Callable[..., Storage], world: VirtualWorld) -> None:
    log = make_storage(pybroker_fsync_before_ack=True).log()
    assert Client(log).send() is None
    world.run()
    assert append_run(log, views(batch()), 0, LATEST_PRODUCE) == []


def test_nothing_is_taken_in_a_leader_epoch_that_the_log_has_not_seen(log: Log) -> None:
    assert append_run(log, views(batch()), 5, LATEST_PRODUCE) == []
    assert append_run(log, views(batch()), 0, LATEST_PRODUCE) == [1]
