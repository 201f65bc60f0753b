"""What becomes of a cleaner's process from one round to the next."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from pybroker.storage.cleaner.cleaner_jobs import CleanerDied, CleaningAborted, CleaningJob, RoundEnd
from pybroker.storage.cleaner.runners import ProcessRunner

# Nothing to clean: one step, the end of the round.
JOB = CleaningJob(
    directory="/nowhere",
    segments=[],
    later_aborted=[],
    producers={},
    first_dirty_offset=7,
    first_uncleanable_offset=7,
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1 << 20,
    index_bytes_max=1 << 20,
    index_interval_bytes=4096,
    offset_map_bytes=1 << 16,
    offset_map_load_factor=0.9,
    io_buffer_bytes=1 << 16,
    bytes_per_second=1e9,
    sync=False,
)


@pytest.fixture
def runner() -> Iterator[ProcessRunner]:
    made = ProcessRunner()
    yield made
    made.rest()


def clean(runner: ProcessRunner) -> None:
    """A round, from its beginning to its end."""
    runner.begin(JOB)
    step = runner.step()
    assert isinstance(step, RoundEnd)
    assert step.clean_offset == 7


def process_of(runner: ProcessRunner) -> subprocess.Popen[bytes]:
    assert runner._process is not None
    return runner._process


def test_process_stays_from_one_round_to_the_next(runner: ProcessRunner) -> None:
    clean(runner)
    first = process_of(runner)
    clean(runner)
    assert process_of(runner) is first


def test_round_aborted_behind_its_last_answer_does_not_fail_the_next_one(runner: ProcessRunner) -> None:
    clean(runner)
    runner.abort()
    clean(runner)


def test_process_that_died_between_two_rounds_does_not_fail_the_next_one(runner: ProcessRunner) -> None:
    clean(runner)
    process_of(runner).kill()
    process_of(runner).wait()
    clean(runner)


def test_process_that_dies_in_a_round_fails_it_and_is_replaced(runner: ProcessRunner) -> None:
    clean(runner)
    process_of(runner).kill()
    with pytest.raises(CleanerDied):
        runner.step()
    clean(runner)


def test_round_aborted_before_its_step_fails_by_that(runner: ProcessRunner) -> None:
    clean(runner)
    runner.begin(JOB)
    runner.abort()
    with pytest.raises(CleaningAborted):
        runner.step()
    clean(runner)
