"""The virtual world: what happens in it, when, and in which order."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from harness.virtual_world import START_MS, MemoryPartitions, VirtualWorld
from pybroker.env import WorkGivenUp
from pybroker_protocol.record_codec import build_batch


def test_time_stands_until_the_test_lets_it_pass() -> None:
    world = VirtualWorld()
    clock, begun_ms = world.env.clock, world.env.clock.monotonic_ms()
    world.run()
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS, begun_ms)
    world.advance(1_500)
    assert (clock.now_ms(), clock.monotonic_ms() - begun_ms) == (START_MS + 1_500, 1_500)
    assert clock.monotonic_ns() // 1_000_000 == clock.monotonic_ms()


def test_a_wall_clock_that_is_wrong_moves_no_timer() -> None:
    world, rung = VirtualWorld(), list[int]()
    world.env.timers.call_later(10, lambda: rung.append(world.clock.elapsed_ms))
    world.clock.wall_ahead_ms = -3_600_000
    world.advance(20)
    assert rung == [10]
    assert world.env.clock.now_ms() == START_MS - 3_600_000 + 20


def test_timers_ring_at_their_time_and_equals_in_the_order_in_which_they_were_set() -> None:
    world, rung = VirtualWorld(), list[tuple[str, int]]()
    timers = world.env.timers
    for name, delay_ms in (("late", 30), ("first", 10), ("second", 10), ("called off", 20)):
        timer = timers.call_later(delay_ms, lambda name=name: rung.append((name, world.clock.elapsed_ms)))
    timer.cancel()
    world.advance(29)
    assert rung == [("first", 10), ("second", 10)]
    world.advance(1)
    assert rung[2:] == [("late", 30)]
    assert world.timers.pending == []


def test_what_a_leap_makes_due_runs_late() -> None:
    world, rung = VirtualWorld(), list[int]()
    world.env.timers.call_later(10, lambda: rung.append(world.clock.elapsed_ms))
    world.leap(5_000)
    assert rung == [5_000]


def test_a_turn_runs_what_is_due_but_not_what_that_makes_due() -> None:
    world, ran = VirtualWorld(), list[str]()

    def first() -> None:
        ran.append("first")
        world.env.timers.call_soon(ran.append, "second")

    world.env.timers.call_soon(first)
    world.turn()
    assert ran == ["first"]
    assert world.timers.is_due
    world.turn()
    assert ran == ["first", "second"]


def test_a_busy_day_passes_in_leaps() -> None:
    world, rings = VirtualWorld(), 0

    def ring() -> None:
        nonlocal rings
        rings += 1
        world.env.timers.call_later(100, ring)

    ring()
    world.advance(86_400_000)
    assert 1_000 < rings < 6_000
    assert world.clock.elapsed_ms == 86_400_000


def test_a_thread_works_and_tells_only_when_it_is_let() -> None:
    world, told = VirtualWorld(), list[object]()
    thread = world.env.executor("log-writer-a-0", 0)
    thread.submit(lambda: "written", lambda result, error: told.append((result, error)))
    world.timers.call_soon(told.append, "the loop's")
    world.turn()
    assert told == ["the loop's"]
    world.executor("writer").work()
    assert told == ["the loop's"], "the completion waits for the loop"
    world.run()
    assert told[1:] == [("written", None)]


def test_work_in_portions_lets_others_between_and_is_given_up_at_the_end() -> None:
    world, order, ends = VirtualWorld(), list[str](), list[object]()

    def portions() -> Generator[None, None, str]:
        for number in range(3):
            order.append(f"portion {number}")
            yield
        return "all"

    def ended(_result: str | None, error: BaseException | None) -> None:
        ends.append(error)

    thread = world.env.executor("thread", 0)
    thread.submit(portions, ended)
    thread.submit(lambda: order.append("whole"), lambda _result, error: ends.append(error))
    for _ in range(2):
        world.executors["thread"].work()
    assert order == ["portion 0", "whole"]
    thread.close()
    assert order == ["portion 0", "whole"]
    assert ends[0] is None
    assert isinstance(ends[1], WorkGivenUp)


def test_a_thread_that_is_stuck_holds_nobody_else_up() -> None:
    world, done = VirtualWorld(), list[str]()
    for name in ("stuck", "free"):
        world.env.executor(name, 0).submit(lambda name=name: done.append(name), lambda *_: None)  # type: ignore[misc]
    world.executors["stuck"].is_stuck = True
    world.run()
    assert done == ["free"]
    world.executors["stuck"].is_stuck = False
    world.run()
    assert done == ["free", "stuck"]


def test_a_world_without_threads_refuses_one() -> None:
    world = VirtualWorld(has_threads=False)
    with pytest.raises(AssertionError, match="flusher"):
        world.env.executor("flusher", 0)


def test_a_partition_in_memory_keeps_what_was_appended_in_its_order() -> None:
    partitions, ends = MemoryPartitions("t"), list[tuple[int, int]]()
    batch = bytes(build_batch([(b"k", b"v")] * 3, timestamp_ms=START_MS))
    partitions.append("t", 0, batch, lambda error, offset: ends.append((error, offset)))
    partitions.hold_appends = True
    partitions.append("t", 0, batch, lambda error, offset: ends.append((error, offset)))
    assert ends == [(0, 2)]
    partitions.finish_appends()
    assert ends == [(0, 2), (0, 5)]
    assert partitions.log_range("t", 0) == (0, partitions.high_watermark("t", 0)) == (0, 6)
    read = list[memoryview]()
    partitions.read("t", 0, 3, 1, lambda _error, data: read.append(data))
    assert len(read[0]) == len(batch)


def test_what_is_not_committed_is_above_the_high_watermark_until_it_is() -> None:
    partitions, heard = MemoryPartitions("t"), list[tuple[int, int]]()
    partitions.on_high_watermark = lambda partition, offset: heard.append((partition, offset))
    partitions.hold_commits = True
    partitions.write(0, build_batch([(b"k", b"v")], timestamp_ms=START_MS))
    assert partitions.high_watermark("t", 0) == 0
    partitions.commit(0)
    assert heard == [(0, 1)]
    assert partitions.high_watermark("t", 0) == 1
