"""The log against a model: appends, reads, rolls, cuts, deletions, restarts, crashes, full disks, in any order."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pybroker.storage.files import os_file
from pybroker.storage.log import append_queue as append_module
from pybroker.storage.log import leader_append as leader_module
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.log.log import Log
from pybroker.storage.results import KAFKA_STORAGE_ERROR, ReadResult
from tests.storage.batches import batch, parse
from tests.storage.logs import Client, ModelSettings, Storage, read_all


class LogMachine(RuleBasedStateMachine):
    """``model`` holds (base offset, last offset, value) of every batch that was acknowledged and not dropped since."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.model: list[tuple[int, int, bytes]] = []
        self.start_offset = 0
        self.epoch = 0
        self.counter = 0
        self.topics = 0
        self.lives = 0
        self.patched = pytest.MonkeyPatch()
        for module in (append_module, leader_module):  # so that small batches, too, take the way through the thread
            self.patched.setattr(module, "INLINE_WRITE_BYTES_MAX", 600)
        self.in_flight: list[tuple[bytes, int]] = []

    @initialize(segment_bytes=st.sampled_from([1500, 4096, 1 << 20]), interval=st.sampled_from([0, 200, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.topics = 1
        self.config: ModelSettings = {
            "internal_segment_bytes": segment_bytes,
            "index_interval_bytes": interval,
            "retention_ms": -1,
        }
        self.open()

    def open(self) -> None:
        self.lives += 1
        self.world = VirtualWorld(seed=self.lives)  # no two directories that are deleted have one name
        self.storage = Storage(self.directory / "data", self.world)
        self.log: Log = self.storage.log(topic_id=self.topics.to_bytes(16, "big"), **self.config)
        self.client = Client(self.log, self.epoch)

    @property
    def end_offset(self) -> int:
        return self.model[-1][1] + 1 if self.model else self.start_offset

    def settle(self) -> None:
        """Let the threads work, and take what they acknowledged into the model."""
        self.world.run()
        for (value, count), result in zip(self.in_flight, self.client.later, strict=True):
            assert result.error_code == 0
            assert result.base_offset == self.end_offset
            self.model.append((result.base_offset, result.base_offset + count - 1, value))
        self.in_flight.clear()
        self.client.later.clear()

    @rule(size=st.sampled_from([0, 50, 400, 900]), count=st.integers(1, 4))
    def append(self, size: int, count: int) -> None:
        self.counter += 1
        value = b"%d" % self.counter + bytes(size // count)
        result = self.client.send(values=[value] * count)
        if result is None:
            self.in_flight.append((value, count))
            return
        assert not self.in_flight
        assert (result.error_code, result.base_offset) == (0, self.end_offset)
        self.model.append((result.base_offset, result.last_offset, value))

    @rule()
    def threads_work(self) -> None:
        self.settle()

    @rule(room=st.integers(0, 300))
    def disk_is_full(self, room: int) -> None:
        self.settle()
        left = [room]

        def pwrite(fd: int, data: Any, position: int) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = os.pwrite(fd, memoryview(data).cast("B")[: left[0]], position)
            left[0] -= written
            return written

        os_file.pwrite = pwrite
        try:
            for size in (100, 800):
                result = self.client.send(values=[bytes(size)])
                self.world.run()
                result = result or self.client.later.pop()
                if result.error_code == 0:  # a batch that still had room
                    self.model.append((result.base_offset, result.last_offset, bytes(size)))
                else:
                    assert result.error_code == KAFKA_STORAGE_ERROR
        finally:
            os_file.pwrite = os.pwrite

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 100, 700, 3000, 1 << 20]), minimum=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, minimum: bool) -> None:
        offset = data.draw(st.integers(self.start_offset, max(self.log.log_end_offset, self.start_offset)))
        boundaries = [self.start_offset, *(last + 1 for _, last, _ in self.model)]
        upper = data.draw(st.sampled_from(boundaries))
        result = self.log.read(offset, max_bytes, upper, minimum)
        if isinstance(result, ColdRead):
            results: list[ReadResult] = []
            result.start(results.append)
            self.settle()
            (result,) = results
        assert result.error_code == 0
        expected = [entry for entry in self.model if entry[1] >= offset and entry[0] < upper]
        got = parse(result.records)
        assert [(base, last) for base, last, _ in got] == [(base, last) for base, last, _ in expected[: len(got)]]
        assert all(value in piece for (_, _, piece), (_, _, value) in zip(got, expected, strict=False))
        if minimum and expected:
            assert got
            assert len(got) == 1 or len(result.records) <= max_bytes
        if not minimum:
            assert len(result.records) <= max_bytes

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.settle()
        if not self.model:
            return
        keep = data.draw(st.integers(0, len(self.model)))
        held = self.log.read(self.model[0][0], 1 << 20, self.end_offset, True)
        before = bytes(held.records) if isinstance(held, ReadResult) else b""
        self.log.truncate_to(self.model[keep][0] if keep < len(self.model) else self.end_offset)
        del self.model[keep:]
        self.append(10, 1)
        if isinstance(held, ReadResult):
            assert bytes(held.records) == before, "a view that was out has changed"
        self.epoch += 1
        self.client.leader_epoch = self.epoch

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.settle()
        if not self.model:
            return
        self.log.update_high_watermark(self.end_offset)
        drop = data.draw(st.integers(0, len(self.model) - 1))
        self.start_offset = self.model[drop][0]
        assert self.log.increment_log_start_offset(self.start_offset) == 0
        self.log.apply_retention()
        del self.model[:drop]
        self.storage.manager._housekeeping.checkpoint_recovery_points()
        self.storage.manager._housekeeping.checkpoint_log_starts()
        self.world.run()

    @rule()
    def roll(self) -> None:
        self.settle()
        if self.log.on_disk:
            self.log.roll()

    @rule(delivered=st.booleans())
    def checkpoint(self, delivered: bool) -> None:
        self.settle()
        self.log.update_high_watermark(self.end_offset)
        self.storage.manager._housekeeping.checkpoint_recovery_points()
        self.storage.manager._housekeeping.checkpoint_log_starts()
        self.storage.manager._housekeeping.checkpoint_high_watermarks()
        flusher = next((flusher for name, flusher in self.world.executors.items() if "-flusher-" in name), None)
        if delivered:
            self.world.run()
        elif flusher is not None and flusher.jobs:
            flusher.work()

    @rule(flusher_works=st.booleans())
    def recreate_topic(self, flusher_works: bool) -> None:
        # What the checkpoints say of the former topic has to be such that it would do harm to the next one.
        for _ in range(3):
            self.append(10, 1)
        self.settle()
        self.log.update_high_watermark(self.end_offset)
        assert self.log.increment_log_start_offset(self.model[-1][0]) == 0
        self.storage.manager._housekeeping.checkpoint_recovery_points()
        self.storage.manager._housekeeping.checkpoint_log_starts()
        self.world.run()
        self.storage.manager.delete("t", self.topics.to_bytes(16, "big"), 10)
        if flusher_works:
            self.world.advance(0)
        self.topics += 1
        self.model, self.start_offset, self.epoch = [], 0, 0
        self.log = self.storage.log(topic_id=self.topics.to_bytes(16, "big"), **self.config)
        self.client = Client(self.log, self.epoch)

    @rule()
    def stop_and_start(self) -> None:
        self.settle()
        self.storage.close()
        self.open()

    @rule(torn=st.integers(0, 90))
    def crash_and_start(self, torn: int) -> None:
        self.settle()
        path = self.log.active.path()
        self.storage.kill()
        if path.exists():
            with path.open("ab") as file:
                file.write(batch([bytes(30)], base_offset=self.end_offset)[:torn])
        self.open()

    @invariant()
    def the_end_is_where_the_model_says(self) -> None:
        if hasattr(self, "log") and not self.in_flight:
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start_offset, self.end_offset)
            if self.log.on_disk:
                assert self.log.active.path().stat().st_size == self.log.active.size

    def teardown(self) -> None:
        try:
            if hasattr(self, "log"):
                self.settle()
                assert [base for base, _, _ in read_all(self.log)] == [base for base, _, _ in self.model]
        finally:
            self.patched.undo()
            if hasattr(self, "storage"):
                self.storage.kill()
            shutil.rmtree(self.directory)


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLogModel = LogMachine.TestCase
