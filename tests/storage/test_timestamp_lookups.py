"""Searches by timestamp in batches of very many records: others wait for portions of them, and what nobody waits for is
given up.

All is counted in portions of the reader thread; a bomb is a batch of more records than producers send.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from harness.virtual_world import START_MS, VirtualExecutor, VirtualWorld

from pybroker.storage.dirs.lookup_queue import LOOKUPS_AT_ONCE
from pybroker.storage.log.log import Log
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage

NOW = START_MS
STEP = 10
ORDINARY = 5 * STEP
BOMB = 50 * STEP
LATE = NOW + 5


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.storage.log.timestamp_search.RECORDS_SEARCHED_PER_STEP", STEP)
    monkeypatch.setattr("pybroker.storage.log.timestamp_search.BATCHES_WALKED_PER_STEP", STEP)
    monkeypatch.setattr("pybroker.storage.log.timestamp_search.ORDINARY_BATCH_RECORDS_MAX", ORDINARY)


class Asked:
    """One lookup, and what it came to."""

    def __init__(self, log: Log) -> None:
        found = log.offset_for_timestamp(LATE)
        assert isinstance(found, TimestampLookup)
        self.lookup = found
        self.answers: list[TimestampOffset | None] = []
        found.start(self.answers.append)

    @property
    def offset(self) -> int | None:
        """What was found; -1 for an error, ``None`` for no answer yet."""
        for answer in self.answers:
            assert answer is not None
            assert (answer.error_code == KAFKA_STORAGE_ERROR) == (answer.offset < 0)
            return answer.offset
        return None


def log_with(storage: Storage, partition: int, *counts: int) -> Log:
    """A log of batches of so many records, of which the last one of each is late."""
    log = storage.log(partition=partition, internal_segment_bytes=1 << 24)
    client = Client(log)
    for count in counts:
        data = batch([b""] * count, timestamps=[NOW] * (count - 1) + [LATE], attributes=1)
        assert client.send_now(data).error_code == 0
    return log


def bomb(storage: Storage, partition: int) -> Log:
    return log_with(storage, partition, BOMB)


def reader(world: VirtualWorld) -> VirtualExecutor:
    return world.executor("reader")


def portions_until(world: VirtualWorld, asked: Asked) -> int:
    """How many portions the thread does before a lookup is answered."""
    count = 0
    while asked.offset is None:
        count += 1
        reader(world).work()
        reader(world).deliver()
    return count


def test_thread_has_one_lookup_of_a_log_and_few_of_all(storage: Storage, world: VirtualWorld) -> None:
    logs = [bomb(storage, partition) for partition in range(4)]
    asked = [Asked(log) for log in logs for _ in range(3)]
    most = 0
    while reader(world).jobs:
        most = max(most, len(reader(world).jobs))
        reader(world).work()
        reader(world).deliver()
    assert most == LOOKUPS_AT_ONCE
    assert [one.offset for one in asked] == [BOMB - 1] * len(asked)


def test_ordinary_lookup_waits_for_portions_of_those_that_take_long(storage: Storage, world: VirtualWorld) -> None:
    for partition in range(4):
        for _ in range(3):
            Asked(bomb(storage, partition))
    honest = Asked(log_with(storage, 9, ORDINARY))
    assert portions_until(world, honest) <= (ORDINARY // STEP + 1) * (LOOKUPS_AT_ONCE + 1)
    assert honest.offset == ORDINARY - 1
    assert len(reader(world).jobs) == LOOKUPS_AT_ONCE


def test_description_and_cold_reads_wait_for_one_portion_of_each_lookup(storage: Storage, world: VirtualWorld) -> None:
    asked = [Asked(bomb(storage, partition)) for partition in range(4)]
    done: list[object] = []
    asked[0].lookup.log.directory.reader.submit(lambda: "read", lambda result, _error: done.append(result))
    for _ in range(LOOKUPS_AT_ONCE + 1):
        reader(world).work()
    reader(world).deliver()
    assert done == ["read"]
    assert [one.offset for one in asked] == [None] * 4


def test_logs_take_turns_whatever_each_is_asked(storage: Storage, world: VirtualWorld) -> None:
    greedy = [bomb(storage, partition) for partition in range(LOOKUPS_AT_ONCE)]
    many = [Asked(log) for _ in range(5) for log in greedy]
    late = Asked(bomb(storage, 9))
    portions_until(world, late)
    assert late.offset == BOMB - 1
    assert sum(one.offset is not None for one in many) <= 2 * LOOKUPS_AT_ONCE
    world.run()
    assert [one.offset for one in many] == [BOMB - 1] * len(many)


def test_lookup_that_nobody_waits_for_is_not_begun_or_goes_no_further(storage: Storage, world: VirtualWorld) -> None:
    log, other = bomb(storage, 0), bomb(storage, 1)
    asked = [Asked(log) for _ in range(100)]
    reader(world).work()
    for one in asked:
        one.lookup.give_up()
    reader(world).work()
    reader(world).deliver()
    assert not reader(world).jobs
    assert [one.answers for one in asked] == [[]] * 100
    last = Asked(other)
    world.run()
    assert last.offset == BOMB - 1
    assert Asked(log).offset is None
    world.run()


def test_place_of_a_lookup_that_is_given_up_is_the_next_ones(storage: Storage, world: VirtualWorld) -> None:
    asked = [Asked(bomb(storage, partition)) for partition in range(LOOKUPS_AT_ONCE + 1)]
    same = Asked(storage.log(partition=0))
    asked[0].lookup.give_up()
    reader(world).work()
    reader(world).deliver()
    asked[1].lookup.give_up()
    world.run()
    assert [one.offset for one in asked] == [None] * LOOKUPS_AT_ONCE + [BOMB - 1]
    assert same.offset == BOMB - 1


def test_lookups_end_with_their_log(storage: Storage, world: VirtualWorld) -> None:
    log, other = bomb(storage, 0), bomb(storage, 1)
    asked = [Asked(log) for _ in range(3)]
    survivor = Asked(other)
    reader(world).work()
    log.retire()
    assert [one.offset for one in asked] == [None, -1, -1]
    assert portions_until(world, asked[0]) <= LOOKUPS_AT_ONCE + 1
    assert asked[0].offset == -1
    world.run()
    assert survivor.offset == BOMB - 1


def test_stop_waits_for_no_lookup(storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [Asked(bomb(storage, partition)) for partition in range(4) for _ in range(3)]
    reader(world).work()
    portions: list[VirtualExecutor] = []
    work = VirtualExecutor.work

    def counted(executor: VirtualExecutor) -> None:
        portions.append(executor)
        work(executor)

    monkeypatch.setattr(VirtualExecutor, "work", counted)
    storage.close()
    assert [one.offset for one in asked] == [-1] * len(asked)
    assert portions.count(reader(world)) == LOOKUPS_AT_ONCE


def test_lookup_through_many_batches_has_no_more_of_the_loop_than_a_step(storage: Storage, world: VirtualWorld) -> None:
    """Where timestamps go back the index says nothing for long, and the batches are walked one by one."""
    log = storage.log(internal_segment_bytes=1 << 24)
    client = Client(log)
    client.send_now(values=[b""], timestamps=[NOW])
    for _ in range(5 * STEP):
        client.send_now(values=[b""], timestamps=[NOW - 100])
    client.send_now(values=[b""], timestamps=[LATE])
    asked = Asked(log)
    assert portions_until(world, asked) >= 4
    assert asked.offset == 5 * STEP + 1


def test_batch_whose_header_lies_about_its_time_is_looked_into_once(storage: Storage, world: VirtualWorld) -> None:
    """Each is looked into in vain; the search goes on behind them in the thread, and before a bomb in its line.

    A leader stores no such batch; one of an older version did, and its followers have it.
    """
    log = storage.log(internal_segment_bytes=1 << 24)
    for count in (3, ORDINARY, BOMB, BOMB, 3):
        data = batch([b""] * count, timestamps=[NOW] * count, base_offset=log.next_offset, leader_epoch=0)
        lie_about_time(data)
        assert log.append_as_follower(memoryview(data)).error_code == 0
    log.update_high_watermark(log.next_offset)
    truth = Client(log).send_now(values=[b""], timestamps=[LATE])
    assert truth.error_code == 0
    asked = Asked(log)
    assert not asked.lookup.is_long
    world.run()
    assert asked.offset == truth.base_offset


def lie_about_time(data: bytearray) -> None:
    """Let the header claim a record of ``LATE``."""
    struct.pack_into(">q", data, 35, LATE)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))


def test_first_look_at_many_segments_is_shared_over_turns(
    make_storage: Callable[..., Storage], world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is remembered of segments behind a restart; the newest record need not be in the last one."""
    monkeypatch.setattr("pybroker.storage.log.timestamp_search.SEGMENTS_LOOKED_AT_ONCE", 3)
    storage = make_storage()
    log = storage.log()
    client = Client(log)
    stamps = [NOW, *[NOW - 50] * 9, LATE, *[NOW - 50] * 9]
    for stamp in stamps:
        client.send_now(values=[b"v"], timestamps=[stamp])
        log.roll()
    storage.close()
    storage = make_storage()
    asked = Asked(storage.log())
    assert portions_until(world, asked) >= 3
    assert asked.offset == stamps.index(LATE)
    storage.close()
    log = make_storage().log()
    found = log.offset_of_max_timestamp()
    assert isinstance(found, TimestampLookup)
    answers: list[TimestampOffset | None] = []
    found.start(answers.append)
    world.run()
    assert [answer and answer.offset for answer in answers] == [stamps.index(LATE)]
    assert isinstance(log.offset_of_max_timestamp(), TimestampOffset), "now they are known"
    assert log.offset_for_timestamp(LATE + 1) is None
