"""The order of metadata changes: decide, commit, apply, answer.

Owns: the operations that wait, their deadlines, the one transaction in flight, and the group commit. What arrives while
the store is busy is decided one after another on the image to be, and commits together in the next transaction. Owns no
rule: an operation brings its own.

Invariants:
- One transaction is in flight at a time.
- Each checks the version of the controller key.
- ``done`` runs exactly once per operation, on the loop, never inside ``submit``, and after the image with the change
  was applied.
- An operation that was refused, or whose transaction failed, changed nothing.

An operation may be decided in steps (its ``decide`` is then a generator), and its keys are encoded in steps; it is one
transaction all the same.

Counterpart in Kafka: the event queue and the deferred events of ``QuorumController``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from types import GeneratorType
from typing import Any, NamedTuple, Protocol

from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, ImageDelta
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import (
    CommitResult,
    MetadataStore,
    RefusedWriteError,
    SessionExpiredError,
    StoreUnavailableError,
    Transaction,
)
from pybroker.env import Env
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol.errors import ErrorCode

# Deciding what the next transaction holds goes on for about this long, then everybody else has a turn.
DECIDE_SLICE_MS = 5

# A transaction ends when this many keys are written, so that a burst of creations neither holds the loop nor makes one
# transaction of unbounded size; the rest goes into the next one.
KEYS_PER_TRANSACTION_SOFT_MAX = 1_000

log = logging.getLogger(__name__)

Decide = Callable[[ImageBuilder], Any]
Refuse = Callable[[int, str | None], Any]


class WriteOperation(NamedTuple):
    """One waiting change.

    ``decide`` changes the builder and returns the answer, or a generator that comes to it and yields where others may
    have a turn. ``refuse(error_code, message)`` makes the answer when it comes to nothing. ``deadline_ms`` is on the
    monotonic clock, and None waits for ever.
    """

    decide: Decide
    refuse: Refuse
    done: Callable[[Any], None]
    deadline_ms: int | None = None


class Images(Protocol):
    """The newest image, and where the next one goes: a ``MetadataCache``, or what follows the store for it."""

    @property
    def image(self) -> ClusterImage: ...

    def apply(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The change is committed.  One that the image has already changes nothing."""
        ...


class WriteQueue:
    """Commits operations to the store under one version of the controller key, which this broker holds.

    ``on_deposed()`` hears of a transaction that the key's version refused, or whose outcome is not known: the queue's
    time is over then.  Without it the store's failures are the operations' alone.
    """

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        images: Images,
        controller_version: int,
        on_deposed: Callable[[], None] | None = None,
    ) -> None:
        self._env = env
        self._store = store
        self._images = images
        self._controller_version = controller_version
        self._on_deposed = on_deposed
        self._limited_log = RateLimitedLog(log, env.timers)
        self._waiting: deque[WriteOperation] = deque()
        self._in_decision: list[WriteOperation] = []  # out of ``_waiting``, and not yet in a transaction
        self._busy = False
        self._closed = False

    def stop(self) -> None:
        """Decide no more, and refuse what waits; a transaction in flight still ends, and answers."""
        refused = [*self._in_decision, *self._waiting]
        self.close()
        self._refuse([(operation, None) for operation in refused], ErrorCode.NOT_CONTROLLER, None)

    def close(self) -> None:
        """Drop what waits; a transaction in flight still ends, and answers."""
        self._closed = True
        self._on_deposed = None
        self._waiting.clear()
        self._in_decision.clear()
        self._limited_log.close()

    def submit(self, operation: WriteOperation) -> None:
        """Queue an operation; those of one turn of the loop commit together."""
        if self._closed:
            return
        self._waiting.append(operation)
        if not self._busy:
            self._busy = True
            self._env.timers.call_soon(self._next_transaction)

    def _next_transaction(self) -> None:
        self._go_on(self._transaction(ImageBuilder(self._images.image)))

    def _go_on(self, steps: Iterator[None]) -> None:
        """A slice per turn of the loop; nothing else changes the image meanwhile."""
        if self._closed:
            return
        clock = self._env.clock
        slice_end_ms = clock.monotonic_ms() + DECIDE_SLICE_MS
        for _ in steps:
            if clock.monotonic_ms() >= slice_end_ms:
                self._env.timers.call_soon(self._go_on, steps)
                return

    def _transaction(self, builder: ImageBuilder) -> Iterator[None]:
        """Decide what waits, then commit; with places where others may have a turn."""
        decided: list[tuple[WriteOperation, Any]] = []
        while self._waiting and builder.touched_count() < KEYS_PER_TRANSACTION_SOFT_MAX:
            operation = self._waiting.popleft()
            self._in_decision.append(operation)
            try:
                answer = yield from self._decided(operation, builder)
            except Exception:
                log.exception("an operation of the controller failed")
                self._start_over(operation, [done_before for done_before, _ in decided])
                return
            decided.append((operation, answer))
            yield
        if not decided:
            self._busy = False
            return
        yield from self._commit(builder, decided)

    def _decided(self, operation: WriteOperation, builder: ImageBuilder) -> Generator[None, None, Any]:
        if operation.deadline_ms is not None and self._env.clock.monotonic_ms() >= operation.deadline_ms:
            return operation.refuse(ErrorCode.REQUEST_TIMED_OUT, None)
        answer = operation.decide(builder)
        if answer.__class__ is GeneratorType:
            answer = yield from answer
        return answer

    def _commit(self, builder: ImageBuilder, decided: list[tuple[WriteOperation, Any]]) -> Iterator[None]:
        try:
            writes = yield from store_codec.encode_in_steps(self._images.image, builder.view(), builder.delta())
        except Exception:
            log.exception("a metadata change cannot be written down")
            self._refuse(decided, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return
        if not writes.puts and not writes.deletes:
            self._answer(decided)
            return
        self._in_decision.clear()
        transaction = Transaction({store_codec.CONTROLLER: self._controller_version}, *writes)
        self._store.commit(transaction, lambda result: self._committed(builder, decided, result))

    def _start_over(self, failed: WriteOperation, decided: list[WriteOperation]) -> None:
        """Forget the builder, which the failed operation may have half changed, and decide the others again."""
        self._waiting.extendleft(reversed(decided))
        self._answer([(failed, failed.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, None))])

    def _committed(
        self, builder: ImageBuilder, decided: list[tuple[WriteOperation, Any]], result: CommitResult
    ) -> None:
        if result.revision is None:
            code, message = _failure(result)
            if result.conflict is not None:  # which ends this controller's activity, and is said with it
                log.info("a metadata change was not made: %s", message)
            else:
                self._limited_log.warning(
                    "metadata changes that failed", message, "metadata change failed: %s", message
                )
            is_unwritten = isinstance(result.error, RefusedWriteError)  # so that nothing is in doubt
            on_deposed = None if is_unwritten else self._on_deposed
            self._refuse(decided, code, message)
            if on_deposed is not None:
                on_deposed()
            return
        try:
            image, delta = builder.build(result.revision)
        except Exception:
            # The store has what no image shows before the next start: no answer can say that it is done.
            log.exception("no image can be made of the change of revision %d", result.revision)
            self._refuse(decided, ErrorCode.UNKNOWN_SERVER_ERROR, None)
            return
        self._apply(image, delta)
        self._answer(decided)

    def _apply(self, image: ClusterImage, delta: ImageDelta) -> None:
        try:
            self._images.apply(image, delta)
        except Exception:
            # The change is committed and the image has moved: a listener's fault must not leave its askers waiting.
            log.exception("a listener failed on the image of epoch %d", image.epoch)

    def _refuse(self, decided: list[tuple[WriteOperation, Any]], code: int, message: str | None) -> None:
        """Answer that none of what was decided together came to anything."""
        self._answer((operation, operation.refuse(code, message)) for operation, _ in decided)

    def _answer(self, decided: Iterable[tuple[WriteOperation, Any]]) -> None:
        """Go on with what waits, then run the answers: they may bring new operations."""
        self._in_decision.clear()
        if self._waiting:
            self._env.timers.call_soon(self._next_transaction)
        else:
            self._busy = False
        for operation, answer in decided:
            try:
                operation.done(answer)
            except Exception:
                log.exception("an answer of the controller could not be delivered")
                # Whoever asked must not wait for ever: the plain refusal has less in it that can go wrong.
                with suppress(Exception):
                    operation.done(operation.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, None))


def _failure(result: CommitResult) -> tuple[int, str]:
    if result.conflict is not None:
        return ErrorCode.NOT_CONTROLLER, f"another controller has changed {result.conflict}"
    if isinstance(result.error, SessionExpiredError):
        return ErrorCode.NOT_CONTROLLER, str(result.error)  # with the session went the office
    is_away = isinstance(result.error, StoreUnavailableError)
    return ErrorCode.REQUEST_TIMED_OUT if is_away else ErrorCode.KAFKA_STORAGE_ERROR, str(result.error)
