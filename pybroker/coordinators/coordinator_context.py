"""One partition of a coordinator's internal topic, and everything that happens in it.

Owns: the order of its operations, appending and replaying their records, who waits for which offset, its timers.
Owns no rule of any group: those are in the state.

Invariants:
- Operations run one after another, in order of arrival; while an append is on its way to the log the next ones wait
  behind it.  Records are replayed only once they lie in the log, so nothing ever runs on state that a failed append
  would have to take back.
- No response leaves before everything that was written when it was made is committed (high watermark).
- A waiter is answered exactly once: with its response, or with an error. An error comes when the append fails, the
  partition is lost, or the commit takes longer than the write timeout.
- No exception of an operation, of a waiter or of the log's writer stops the operations behind it.
- What a long timer sets off is done in its turn (``round_robin_work``) or not at all. Where an append is on its way
  then, it waits for another turn, so that no end of an append is followed by the slices of many groups. A chain of
  large batches has a turn for each (``Result.in_later_turn``).

What a timer could not write is tried again (``TIMER_RETRY_MS``).  A full disk reaches coordinators as NOT_COORDINATOR,
so code that is about to give up asks first whether the partition is still led here.

Each operation's records are a batch of their own, and ``group.coordinator.append.linger.ms`` is accepted and means
nothing. What one read of a connection brings may be one operation (``offsets.repeated_commit``), and nothing waits for
more. To gather the commits of a turn of the loop into one batch per shard, across connections, was measured and lost
where each connection has a group of its own. Those lie in different partitions and share nothing, and an answer that
comes later costs as much as the append that is saved. To gather what follows the first commit of a turn won a quarter
where all commit to one partition, and lost a quarter elsewhere.

Counterpart in Kafka: ``CoordinatorRuntime.CoordinatorContext``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from pybroker.coordinators.coordinator_ports import PartitionWriter
from pybroker.coordinators.coordinator_shard import CoordinatorShard
from pybroker.coordinators.loader import Loader
from pybroker.coordinators.result import Continuation, Result, TimerKey, Waiter
from pybroker.coordinators.round_robin_work import RoundRobinWork
from pybroker.coordinators.timers import Expiry, TimerTable
from pybroker.env import Cancellable, Env
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_codec import build_batch, end_transaction_batch
from pybroker_protocol.records import NO_PRODUCER_ID

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
# What a timer could not write is tried again after this, as in Kafka (CoordinatorTimer's retry backoff).
TIMER_RETRY_MS = 500
LONG_WRITE = "write"  # a kind of work that takes turns
# operation(state, now_ms) -> Result
CoordinatorOperation = Callable[[S, int], Result]

# What the log says, and what a client of a coordinator gets: it looks for the coordinator anew, or tries again.
_RESPONSE_ERRORS: dict[int, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def response_error(log_error: int) -> int:
    """The error code that a coordinator answers when the log reported ``log_error``."""
    return _RESPONSE_ERRORS.get(log_error, log_error)


class _Uncommitted(NamedTuple):
    """A response that waits until the high watermark reaches ``offset``."""

    offset: int
    deadline_ms: int
    waiter: Waiter
    response: Any


class _Append:
    """One append on its way: remembers whether it ended inside the call that began it."""

    __slots__ = ("context", "now_ms", "outcome", "pending", "result", "waiter")

    def __init__(self, context: CoordinatorContext[Any], result: Result, waiter: Waiter | None, now_ms: int) -> None:
        self.context = context
        self.result = result
        self.waiter = waiter
        self.now_ms = now_ms
        self.outcome: tuple[int, int] | None = None
        self.pending = False

    def done(self, error_code: int, last_offset: int) -> None:
        self.outcome = (error_code, last_offset)
        if self.pending:
            self.context.resume(self)


class CoordinatorContext(Generic[S]):
    """One partition: its state, its queue of operations, its timers, and the responses that wait for the commit."""

    __slots__ = (
        "_append",
        "_busy",
        "_env",
        "_expiry",
        "_limited_log",
        "_queue",
        "_round_robin_work",
        "_topic",
        "_uncommitted",
        "_write_timeout_ms",
        "_writer",
        "closed",
        "high_watermark",
        "loader",
        "partition",
        "state",
        "timers",
        "written_end",
    )

    def __init__(
        self,
        env: Env,
        turns: RoundRobinWork,
        rate_limited_log: RateLimitedLog,
        writer: PartitionWriter,
        topic: str,
        partition: int,
        state: S,
        write_timeout_ms: int,
    ) -> None:
        self._env = env
        self._round_robin_work = turns
        self._limited_log = rate_limited_log
        self._writer = writer
        self._topic = topic
        self.partition = partition
        self._write_timeout_ms = write_timeout_ms
        self._queue: deque[tuple[CoordinatorOperation[S], Waiter | None]] = deque()
        self._busy = False
        self._append: _Append | None = None
        self._uncommitted: deque[_Uncommitted] = deque()
        self._expiry: Cancellable | None = None
        self.state = state
        self.timers = TimerTable(env, turns, state.long_timers, self._on_timer)
        self.closed = False
        self.loader: Loader | None = None  # set while the log is being replayed
        # One past the last record written: a response may leave when the high watermark has come this far.
        self.written_end = 0
        self.high_watermark = 0

    # --- operations -----------------------------------------------------------------------------------------------

    def submit(self, operation: CoordinatorOperation[S], waiter: Waiter | None) -> None:
        """Run the operation now, or as soon as the partition is loaded and the operations before it, and their
        appends, are done."""
        self._queue.append((operation, waiter))
        if not self._busy and self.loader is None:
            self._drain()

    def _drain(self) -> None:
        self._busy = True
        while self._queue:
            operation, waiter = self._queue.popleft()
            now_ms = self._env.clock.now_ms()
            try:
                result = operation(self.state, now_ms)
            except Exception:
                result = self._broken(waiter)
            if not self._settle(result, waiter, now_ms):
                return  # resume() goes on from here
        self._busy = False

    def _broken(self, waiter: Waiter | None) -> Result:
        """What becomes of an operation with a bug: it must not freeze the partition for everybody else."""
        logger.exception("an operation on %s-%d failed", self._topic, self.partition)
        return Result(None if waiter is None else waiter.error(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _settle(self, result: Result | None, waiter: Waiter | None, now_ms: int) -> bool:
        """See the result and what follows from it through; False when an append is on its way."""
        while result is not None:
            if not result.records and result.marker is None:
                self._publish(result, waiter)
                result = self._next(result, waiter, now_ms)
                continue
            append = _Append(self, result, waiter, now_ms)
            if result.in_later_turn:
                self._round_robin_work.add(LONG_WRITE, self._write_in_turn, append)
            else:
                self._try_to_write(append)
            if append.outcome is None:
                append.pending = True
                self._append = append
                return False
            result = self._appended(append)
        return True

    def _write_in_turn(self, append: _Append) -> None:
        if not self.closed:
            self._try_to_write(append)

    def _try_to_write(self, append: _Append) -> None:
        try:
            self._write(append)
        except Exception:
            logger.exception("could not write to %s-%d", self._topic, self.partition)
            if append.outcome is None:
                append.done(ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    def _write(self, append: _Append) -> None:
        result, now_ms = append.result, append.now_ms
        marker, producer = result.marker, result.producer
        if marker is not None:
            batch = end_transaction_batch(
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                timestamp_ms=now_ms,
            )
            self._writer.append_end_transaction(self._topic, self.partition, batch, marker, append.done)
            return
        if producer is None:
            batch = build_batch(result.records, timestamp_ms=now_ms)
        else:
            batch = build_batch(
                result.records,
                timestamp_ms=now_ms,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_transactional=True,
            )
        self._writer.append(self._topic, self.partition, batch, append.done)

    def resume(self, append: _Append) -> None:
        """An append that had not ended inside its call has ended now."""
        if self.closed:
            return
        self._append = None
        if self._settle(self._appended(append), append.waiter, self._env.clock.now_ms()):
            self._drain()

    def _appended(self, append: _Append) -> Result | None:
        """Replay what lies in the log now and publish; returns what the operation has still to do."""
        assert append.outcome is not None
        error_code, last_offset = append.outcome
        result, waiter, now_ms = append.result, append.waiter, append.now_ms
        if error_code != 0:
            return self._append_failed(result, waiter, now_ms, response_error(error_code))
        self.written_end = last_offset + 1
        self._replay(result, last_offset + 1 - len(result.records), now_ms)
        if self.high_watermark < self.written_end:
            self.on_high_watermark(self._writer.high_watermark(self._topic, self.partition))
        self._publish(result, waiter)
        return self._next(result, waiter, now_ms)

    def _next(self, result: Result, waiter: Waiter | None, now_ms: int) -> Result | None:
        return None if result.then is None else self._go_on(result.then, now_ms, waiter)

    def _go_on(self, continuation: Continuation, now_ms: int, waiter: Waiter | None) -> Result:
        try:
            return continuation(now_ms)
        except Exception:
            return self._broken(waiter)

    def _replay(self, result: Result, offset: int, now_ms: int) -> None:
        replay, marker = self.state.replay, result.marker
        if marker is not None:
            try:
                self.state.replay_end_transaction(marker.producer_id, marker.commit)
            except Exception:
                where = (offset - 1, self._topic, self.partition)
                logger.exception("cannot replay the marker at offset %d of %s-%d", *where)
        producer_id = NO_PRODUCER_ID if result.producer is None else result.producer.producer_id
        for key, value in result.records:
            try:
                replay(key, value, offset, producer_id, now_ms)
            except Exception:
                # It lies in the log, so loading will meet it too, and pass over it as is done here.
                logger.exception("cannot replay offset %d of %s-%d", offset, self._topic, self.partition)
            offset += 1

    def _append_failed(self, result: Result, waiter: Waiter | None, now_ms: int, code: int) -> Result | None:
        """Carry out what does not depend on the records, and answer the request with the error."""
        reason = ErrorCode(code).name
        self._limited_log.warning(
            self._topic, reason, "could not append to %s-%d: %s", self._topic, self.partition, reason
        )
        result.response = None
        result.timers = [change for change in result.timers if not change.when_written]
        self._publish(result, None)
        on_failure = result.on_failure
        if on_failure is None:
            return Result(None if waiter is None else waiter.error(code))
        follow_up = self._go_on(lambda failed_ms: on_failure(failed_ms, code), now_ms, waiter)
        if follow_up.response is None and waiter is not None:
            follow_up.response = waiter.error(code)
        return follow_up

    # --- responses ------------------------------------------------------------------------------------------------

    def _publish(self, result: Result, waiter: Waiter | None) -> None:
        for key, delay_ms, _ in result.timers:
            if delay_ms is None:
                self.timers.cancel(key)
            else:
                self.timers.schedule(key, delay_ms)
        if result.response is not None and waiter is not None:
            self._deliver(waiter, result.response)
        for parked, response in result.replies:
            self._deliver(parked, response)

    def _deliver(self, waiter: Waiter, response: Any) -> None:
        if self.high_watermark >= self.written_end:
            self._answer(waiter, response)
            return
        deadline_ms = self._env.clock.monotonic_ms() + self._write_timeout_ms
        self._uncommitted.append(_Uncommitted(self.written_end, deadline_ms, waiter, response))
        if self._expiry is None:
            self._expiry = self._env.timers.call_later(self._write_timeout_ms, self._expire_uncommitted)

    def _answer(self, waiter: Waiter, response: Any) -> None:
        try:
            waiter.done(response)
        except Exception:
            logger.exception("an answer of %s-%d could not be delivered", self._topic, self.partition)
            # Whoever asked must not wait for ever: the plain refusal has less in it that can go wrong.
            with suppress(Exception):
                waiter.done(waiter.error(ErrorCode.UNKNOWN_SERVER_ERROR))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Deliver what was waiting for the commit; a high watermark never goes back under one leader."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        while self._uncommitted and self._uncommitted[0].offset <= high_watermark:
            committed = self._uncommitted.popleft()
            self._answer(committed.waiter, committed.response)

    def _expire_uncommitted(self) -> None:
        """Tell those who waited too long that it is not known whether their write will be committed."""
        self._expiry = None
        now_ms = self._env.clock.monotonic_ms()
        while self._uncommitted and self._uncommitted[0].deadline_ms <= now_ms:
            waiter = self._uncommitted.popleft().waiter
            self._answer(waiter, waiter.error(response_error(ErrorCode.REQUEST_TIMED_OUT)))
        if self._uncommitted and self._expiry is None:
            remaining_ms = self._uncommitted[0].deadline_ms - now_ms
            self._expiry = self._env.timers.call_later(remaining_ms, self._expire_uncommitted)

    # --- life -----------------------------------------------------------------------------------------------------

    def activate(self, log_end_offset: int) -> None:
        """The log is replayed up to ``log_end_offset``: serve."""
        self.loader = None
        self.written_end = log_end_offset
        self.on_high_watermark(self._writer.high_watermark(self._topic, self.partition))
        self._queue.appendleft((lambda state, now_ms: state.on_loaded(now_ms), None))
        self._drain()

    def close(self) -> None:
        """The partition is lost: answer everybody, forget everything."""
        self.closed = True
        if self.loader is not None:
            self.loader.cancel()
        self.timers.clear()
        if self._expiry is not None:
            self._expiry.cancel()
        waiters = [entry.waiter for entry in self._uncommitted]
        waiters += [waiter for _, waiter in self._queue if waiter is not None]
        if self._append is not None:
            # Its replies are to requests that the state has let go of already.
            waiters += [waiter for waiter, _ in self._append.result.replies]
            if self._append.waiter is not None:
                waiters.append(self._append.waiter)
        waiters += self.state.on_unloaded(self._env.clock.now_ms())
        self._uncommitted.clear()
        self._queue.clear()
        for waiter in waiters:
            self._answer(waiter, waiter.error(ErrorCode.NOT_COORDINATOR))

    def _on_timer(self, key: TimerKey, expiry: Expiry) -> None:
        is_its_turn = True

        def operation(state: S, now_ms: int) -> Result:
            if not self.timers.take(key, expiry):
                return Result()
            if not is_its_turn and key[0] in state.long_timers:
                result = Result()
                result.schedule(key, 0)
                return result
            result = state.on_timer(key, now_ms)
            set_again = any(change.key == key and change.delay_ms is not None for change in result.timers)
            if result.records and result.on_failure is None and not set_again:
                # A timer fires once: what it was to write would never be written, a dead member never fenced.
                result.on_failure = again
            return result

        def again(_failed_ms: int, _code: int) -> Result:
            result = Result()
            result.schedule(key, TIMER_RETRY_MS)
            return result

        self.submit(operation, None)
        is_its_turn = False
