"""A reply of another broker that takes long to decode: some of it in each turn of the loop.

Owns: which replies these are, and the turns of one.  Does not own its request, nor the order of replies
(``peer_link``).

Invariant: ``done`` runs once, on the loop and never inside of the call that began it, unless the reply is dropped.

Kafka counterpart: none; there a thread of its own decodes each connection's replies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from pybroker_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env

# A shorter one is decoded within a few milliseconds.
LONG_REPLY_BYTES: Final = 16 << 10
# So long is decoded in one turn of the loop.
LONG_REPLY_SLICE_MS: Final = 2


class LongReply:
    """``steps`` decodes it, and returns the response; ``done(response, None)`` or ``done(None, error)``."""

    __slots__ = ("_done", "_env", "_steps", "_turn")

    def __init__(
        self,
        env: Env,
        steps: Generator[None, None, Any],
        done: Callable[[Any | None, ProtocolError | None], None],
    ) -> None:
        self._env = env
        self._steps = steps
        self._done = done
        self._turn: Cancellable = env.timers.call_soon(self._go_on)

    def _go_on(self) -> None:
        clock = self._env.clock
        end_ms = clock.monotonic_ms() + LONG_REPLY_SLICE_MS
        if self._decode(lambda: clock.monotonic_ms() >= end_ms):
            self._turn = self._env.timers.call_soon(self._go_on)

    def finish(self) -> None:
        """Decode all that is left at once: the next reply is there."""
        self._turn.cancel()
        self._decode(lambda: False)

    def drop(self) -> None:
        """Nothing waits for it any more."""
        self._turn.cancel()

    def _decode(self, is_enough: Callable[[], bool]) -> bool:
        """Decode until it is enough; whether anything is left."""
        try:
            while not is_enough():
                next(self._steps)
        except StopIteration as ended:
            self._done(ended.value, None)
            return False
        except ProtocolError as error:
            self._done(None, error)
            return False
        return True
