"""Operations on ZooKeeper, one after another: each is a generator that yields what it waits for.

Owns: whose turn it is, the way from kazoo's threads back to the loop, and what becomes of an operation when the
connection breaks. It waits for the next one and begins anew, until it has waited for too long. Owns no operation.

An operation yields results of kazoo's ``…_async`` calls and gets their values, or their exceptions raised; ``None``
lets others have a turn.  Being begun again must do no harm.  At the start and at the close the loop itself waits
(``block``, ``finish``).

Invariants: one operation is under way at a time; ``done(value, error)`` runs once for each, on the loop, in the order
of submission; kazoo's threads do one thing: ``call_threadsafe``.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from pybroker.cluster.store.metadata_store import StoreUnavailableError
from pybroker.env import Cancellable, Env

log = logging.getLogger(__name__)

Steps = Generator[Any, Any, Any]

AWAY: Final = (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_PAUSE_MS: Final = 50


class _Turn:
    """What a ``None`` that an operation yields is waited for with."""

    exception = None
    value = None

    def wait(self, timeout: float) -> bool:
        return True


class _Operation:
    __slots__ = ("awaited", "begin", "deadline_ms", "done", "session", "steps", "timer")

    def __init__(
        self, begin: Callable[[], Steps], done: Callable[[Any, Exception | None], None], deadline_ms: int, session: int
    ) -> None:
        self.begin = begin
        self.done = done
        self.deadline_ms = deadline_ms
        self.session = session
        self.steps: Steps | None = None  # while it is under way
        self.awaited: Any = None
        self.timer: Cancellable | None = None


class OperationQueue:
    """``is_connected()`` asks kazoo; an operation waits for ``timeout_ms`` at most."""

    def __init__(self, env: Env, is_connected: Callable[[], bool], timeout_ms: int) -> None:
        self.session = 0  # counts the sessions
        self._env = env
        self._is_connected = is_connected
        self.timeout_ms = timeout_ms
        self._waiting: deque[_Operation] = deque()

    def submit(
        self,
        begin: Callable[[], Steps],
        done: Callable[[Any, Exception | None], None],
        *,
        of_session: bool = False,
    ) -> None:
        """Queue an operation; one ``of_session`` comes to nothing in another session than this."""
        deadline_ms = self._env.clock.monotonic_ms() + self.timeout_ms
        operation = _Operation(begin, done, deadline_ms, self.session if of_session else -1)
        self._waiting.append(operation)
        operation.timer = self._env.timers.call_later(self.timeout_ms, self._look_at_deadline, operation)
        if len(self._waiting) == 1:
            self._env.timers.call_soon(self.go_on)

    def go_on(self) -> None:
        """Begin what is next, if the store can be reached: called when a connection is there, too."""
        while self._waiting:
            operation = self._waiting[0]
            if operation.steps is not None:
                return
            if operation.session not in {-1, self.session}:
                self._finish(operation, None, StoreUnavailableError("the session in ZooKeeper has expired"))
            elif not self._is_connected():
                self._look_at_deadline(operation)
                return
            else:
                operation.steps = operation.begin()
                self._advance(operation, None, None)
                return

    def block(self, begin: Callable[[], Steps]) -> Any:
        """Do an operation, behind all others, and wait for it on the loop.  StoreError when the store is away."""
        outcome: list[tuple[Any, Exception | None]] = []
        self.submit(begin, lambda value, error: outcome.append((value, error)))
        self.wait_for(lambda: bool(outcome))
        ((value, error),) = outcome
        if error is not None:
            raise error
        return value

    def finish(self) -> None:
        """Wait for everything; what cannot be done in time fails."""
        self.wait_for(lambda: not self._waiting)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Go on until the condition holds, without the loop."""
        while not condition():
            operation = self._waiting[0]
            if operation.awaited is not None:
                operation.awaited.wait(self.timeout_ms / 1000)
                self._answered(operation, operation.awaited)
                continue
            self.go_on()
            if self._waiting and self._waiting[0] is operation and operation.steps is None:
                time.sleep(_PAUSE_MS / 1000)

    def _advance(self, operation: _Operation, value: Any, error: Exception | None) -> None:
        assert operation.steps is not None
        try:
            awaited = operation.steps.throw(error) if error is not None else operation.steps.send(value)
        except StopIteration as end:
            self._finish(operation, end.value, None)
            self.go_on()
        except AWAY:
            operation.steps = None
            # Whether it is connected again may have been reported before what was lost with the connection.
            self._env.timers.call_later(_PAUSE_MS, self.go_on)
        except Exception as failure:
            self._finish(operation, None, failure)
            self.go_on()
        else:
            if awaited is None:
                operation.awaited = turn = _Turn()
                self._env.timers.call_soon(self._answered, operation, turn)
            else:
                operation.awaited = awaited
                awaited.rawlink(partial(self._on_result, operation))
                if not self._is_connected():
                    self._drop(operation)

    def _drop(self, operation: _Operation) -> None:
        """Kazoo fails what was asked for when the connection breaks, and keeps what is asked for behind that.

        It would come with the next connection, whenever that is.  What is sent then all the same is sent ahead of what
        the operation asks for when it begins anew, and so is found by that.
        """
        operation.awaited = None
        self._advance(operation, None, ConnectionLoss())

    def _on_result(self, operation: _Operation, awaited: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._env.call_threadsafe(self._answered, operation, awaited)

    def _answered(self, operation: _Operation, awaited: Any) -> None:
        if operation.awaited is not awaited:
            return
        operation.awaited = None
        error = awaited.exception
        if error is None and not isinstance(awaited, _Turn) and not awaited.ready():
            error = KazooTimeoutError()
        self._advance(operation, awaited.value, error)

    def _look_at_deadline(self, operation: _Operation) -> None:
        """What is under way is let be: it ends, or loses its connection (see ``_drop``)."""
        late = self._env.clock.monotonic_ms() >= operation.deadline_ms
        if late and self._waiting and self._waiting[0] is operation and operation.steps is None:
            self._finish(operation, None, StoreUnavailableError("ZooKeeper is away"))
            self.go_on()

    def _finish(self, operation: _Operation, value: Any, error: Exception | None) -> None:
        assert self._waiting.popleft() is operation
        operation.steps = None
        if operation.timer is not None:
            operation.timer.cancel()
        try:
            operation.done(value, error)
        except Exception:  # those behind it wait for theirs
            log.exception("a completion of the metadata store failed")
