"""Which of a log directory's threads makes a large append: the appends of one log stay in order, none waits for another
log's while a thread is free, and beside small requests there is one thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import Any

import pytest
from harness.virtual_world import VirtualExecutor, VirtualWorld

from pybroker.env import WorkGivenUp
from pybroker.storage.dirs.writer_threads import (
    SMALL_APPENDS_REMEMBERED_MS,
    WRITER_JOBS_AHEAD,
    WRITER_STEPS_AHEAD,
    WRITERS_PER_LOG_DIR,
    Lane,
    Writers,
)
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage, read_all

MakeStorage = Callable[..., Storage]
LARGE = 200_000
AHEAD = WRITER_JOBS_AHEAD


def writers(world: VirtualWorld) -> list[VirtualExecutor]:
    """The writers' threads that were started."""
    return [executor for name, executor in sorted(world.executors.items()) if "-writer-" in name]


def jobs(world: VirtualWorld) -> list[int]:
    """What each of them has still to do."""
    return [len(executor.jobs) for executor in writers(world)]


def client(storage: Storage, partition: int, **settings: Any) -> Client:
    return Client(storage.log(partition=partition, internal_segment_bytes=1 << 30, **settings))


def send(sender: Client, count: int = 1) -> None:
    for _ in range(count):
        assert sender.send(batch(values=[bytes(LARGE)])) is None


def test_logs_are_shared_out_and_what_a_log_has_in_flight_is_one_threads(storage: Storage, world: VirtualWorld) -> None:
    first, second = client(storage, 0), client(storage, 1)
    send(first, 3)
    send(second, 2)
    send(first)
    assert jobs(world) == [4, 2]
    world.run()
    for sender, sent in ((first, 4), (second, 2)):
        assert [result.base_offset for result in sender.later] == list(range(sent))
        assert len(read_all(sender.log)) == sent


def test_thread_is_handed_no_more_than_it_needs_and_logs_take_turns(storage: Storage, world: VirtualWorld) -> None:
    greedy = client(storage, 0)
    send(greedy, 3 * AHEAD)
    assert jobs(world) == [AHEAD]
    writers(world)[0].work()
    writers(world)[0].deliver()
    assert jobs(world) == [AHEAD]
    others = [client(storage, partition) for partition in range(1, WRITERS_PER_LOG_DIR)]
    for other in others:
        send(other, AHEAD)
    assert jobs(world) == [AHEAD] * WRITERS_PER_LOG_DIR
    late = client(storage, 99)
    send(late)
    for _ in range(2 + AHEAD):  # the greedy log's turn comes first, then that of the late one
        writers(world)[0].work()
        writers(world)[0].deliver()
    assert len(late.later) == 1
    assert greedy.log.queue.busy
    world.run()
    assert [result.base_offset for result in greedy.later] == list(range(3 * AHEAD))


def test_log_stays_with_its_thread_while_a_write_is_not_known_to_be_done(storage: Storage, world: VirtualWorld) -> None:
    sender, other = client(storage, 0), client(storage, 1)
    send(sender)
    send(other)
    writers(world)[0].work()  # written, but the loop does not know it yet
    writers(world)[1].run()
    send(sender)
    assert jobs(world) == [1, 0]


def test_one_thread_does_while_it_has_nothing_else_to_do(storage: Storage, world: VirtualWorld) -> None:
    for partition in range(4):
        send(client(storage, partition))
        world.run()
    assert len(writers(world)) == 1


def test_append_waits_for_no_other_logs_batch_that_is_being_decoded(storage: Storage, world: VirtualWorld) -> None:
    decoding, other = client(storage, 0, compression_type="gzip"), client(storage, 1)
    send(decoding)
    send(other)
    assert jobs(world) == [1, 1]
    writers(world)[1].run()
    assert len(other.later) == 1
    assert not decoding.later


def test_beside_small_appends_one_thread_makes_the_large_ones(storage: Storage, world: VirtualWorld) -> None:
    small, large = client(storage, 0), [client(storage, partition) for partition in (1, 2)]
    for sender in large:
        send(sender, 2)
    assert jobs(world) == [2, 2]
    assert small.send_now(values=[b"small"]).error_code == 0
    for sender in large:
        send(sender)
    assert jobs(world) == [3, 2]  # what the other has it finishes, and gets no more
    writers(world)[1].run()
    assert jobs(world) == [4, 0]
    world.advance(SMALL_APPENDS_REMEMBERED_MS)
    world.run()
    for sender in large:
        send(sender)
    assert jobs(world) == [1, 1]
    world.run()
    assert [[result.base_offset for result in sender.later] for sender in large] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("seed", range(20))
def test_order_of_every_log_is_kept_whatever_the_threads_do(storage: Storage, world: VirtualWorld, seed: int) -> None:
    random = Random(seed)
    senders = [client(storage, partition) for partition in range(5)]
    sent = [0] * len(senders)
    for _ in range(150):
        if random.random() < 0.4:
            number = random.randrange(len(senders))
            size = LARGE if random.random() < 0.8 else 10
            result = senders[number].send(batch(values=[b"%06d" % sent[number] + bytes(size)]))
            if result is not None:
                senders[number].later.append(result)
            sent[number] += 1
        elif writers(world):
            executor = random.choice(writers(world))
            if executor.jobs and random.random() < 0.6:
                executor.work()
            else:
                executor.deliver()
        world.clock.pass_ms(random.randrange(300))
    world.run()
    for sender, count in zip(senders, sent, strict=True):
        assert [(result.error_code, result.base_offset) for result in sender.later] == [(0, i) for i in range(count)]
        assert all(b"%06d" % i in stored for i, (_, _, stored) in enumerate(read_all(sender.log)))


def test_appends_of_all_threads_are_completed_by_a_stop(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    senders = [client(storage, partition) for partition in range(4)]
    for sender in senders:
        send(sender, 2 * AHEAD)
    storage.close()
    assert [[result.error_code for result in sender.later] for sender in senders] == [[0] * 2 * AHEAD] * 4
    assert all(executor.closed for executor in writers(world))
    again = make_storage()
    assert [again.log(partition=partition).log_end_offset for partition in range(4)] == [2 * AHEAD] * 4


def test_stop_does_no_work_in_portions_that_has_not_begun(world: VirtualWorld) -> None:
    threads = Writers(world.clock, lambda number: world.env.executor(f"log-writer-x-{number}", 0))
    ends: list[BaseException | None] = []

    def endless() -> Generator[None, None, None]:
        while True:
            yield

    count = WRITERS_PER_LOG_DIR * WRITER_STEPS_AHEAD + 2
    for _ in range(count):
        threads.submit_steps(endless(), lambda _result, error: ends.append(error))
    threads.close()
    assert [type(end) for end in ends] == [WorkGivenUp] * count


def test_jobs_that_wait_are_not_looked_at_until_a_thread_has_room(
    world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Lane] = []
    place_for = Writers._place_for

    def counted(lane: Lane, in_use: list[Any]) -> Any:
        looked_at.append(lane)
        return place_for(lane, in_use)

    monkeypatch.setattr(Writers, "_place_for", staticmethod(counted))
    threads = Writers(world.clock, lambda number: world.env.executor(f"log-writer-{number}", 0))
    done: list[int | None] = []
    for number in range(500):
        threads.submit(Lane(), partial(int, number), lambda result, _: done.append(result))
    world.run()
    assert len(done) == 500
    assert len(looked_at) <= 2 * 500


def test_completion_that_fails_at_a_stop_keeps_no_other_from_its_turn(world: VirtualWorld) -> None:
    threads = Writers(world.clock, lambda number: world.env.executor(f"log-writer-{number}", 0))
    done: list[int | None] = []

    def complete(number: int | None, _: BaseException | None) -> None:
        done.append(number)
        if len(done) > AHEAD:  # it was not handed to a thread, which has a rule of its own
            raise ValueError(number)

    lane = Lane()
    for number in range(4 * AHEAD):
        threads.submit(lane, partial(int, number), complete)
    threads.close()
    assert done == list(range(4 * AHEAD))
