"""Which request a connection repeats, and the fast path that serves those like it.

Owns: when a fast path is learned, and the one that a connection has.  Does not own what a fast path does
(``produce_fast_path``, ``fetch_fast_path``, ``commit_fast_path``: fast paths of the one path that all requests go), nor
any rule.

Invariants:
- A fast path is learned only from a request that has just succeeded the ordinary way, or that waits: a Fetch for
  records, a Produce for other replicas. It is not learned more often than pays.
- There is one at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker import storage_limits
from pybroker.net.dispatch import FETCH_KEY, OFFSET_COMMIT_KEY, PRODUCE_KEY

if TYPE_CHECKING:
    from pybroker.handlers.context import RequestContext
    from pybroker.net.commit_fast_path import CommitFastPath
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.fetch_fast_path import FetchFastPath
    from pybroker.net.framing import Framing
    from pybroker.net.produce_fast_path import ProduceFastPath
    from pybroker.net.reply_order import Replier

KEYS = frozenset((PRODUCE_KEY, FETCH_KEY, OFFSET_COMMIT_KEY))
KEYS_THAT_WAIT = frozenset((PRODUCE_KEY, FETCH_KEY))
_PAUSE = 64  # requests between two fast paths: making one costs more than a request


class FastPaths:
    """``current`` is the fast path of what the connection repeats, if it repeats something."""

    __slots__ = ("_framing", "_pause", "current")

    def __init__(self, framing: Framing) -> None:
        self.current: ProduceFastPath | FetchFastPath | CommitFastPath | None = None
        self._framing = framing
        self._pause = 0

    def learn(
        self, replier: Replier, ctx: RequestContext, api: ServedApi, request: Any, response: Any, frame: memoryview
    ) -> bool:
        """Remember a request with one batch, or offsets, so that the next one like it is served by a fast path.

        ``frame`` is the request without its length, as it was received.  Gives back whether ``ctx`` is kept.
        """
        if self._pause:
            self._pause -= 1
            return False
        if api.api_key == FETCH_KEY:
            return self._learn_fetch(replier, ctx, api, request, frame)
        if api.api_key == OFFSET_COMMIT_KEY:
            from pybroker.net.commit_fast_path import fast_path_of_commit

            self._pause = _PAUSE
            self.current = fast_path_of_commit(replier, ctx, api, request, response, frame)
            return self.current is not None
        if self._framing.frame_bytes_max < 2 * storage_limits.INLINE_WRITE_BYTES_MAX:
            return False  # a fast path looks at no frame's length
        topics = response.responses
        if len(topics) == 1 and len(topics[0].partition_responses) == 1:
            reply = topics[0].partition_responses[0]
            if not reply.error_code:
                from pybroker.net.produce_fast_path import fast_path_of_produce

                self._pause = _PAUSE
                self.current = fast_path_of_produce(replier, ctx, api, request, frame)
                return self.current is not None
        return False

    def learn_waiting(
        self, replier: Replier, ctx: RequestContext, api: ServedApi, request: Any, frame: memoryview
    ) -> None:
        """Remember a Fetch whose reply waits, or a Produce, if that is for other replicas; ``ctx`` may be kept."""
        if self._pause:
            self._pause -= 1
            return
        if api.api_key == FETCH_KEY:
            self._learn_fetch(replier, ctx, api, request, frame)
            return
        topics = request.topic_data
        if (
            len(topics) == 1
            and len(topics[0].partition_data) == 1
            and self._framing.frame_bytes_max >= 2 * storage_limits.INLINE_WRITE_BYTES_MAX
        ):
            from pybroker.net.produce_fast_path import fast_path_of_produce

            self._pause = _PAUSE
            fast_path = fast_path_of_produce(replier, ctx, api, request, frame)
            if fast_path is not None and fast_path.waits:
                self.current = fast_path

    def _learn_fetch(
        self, replier: Replier, ctx: RequestContext, api: ServedApi, request: Any, frame: memoryview
    ) -> bool:
        from pybroker.net.fetch_fast_path import fast_path_of_fetch

        self._pause = _PAUSE
        self.current = fast_path_of_fetch(replier, ctx, api, request, frame)
        return self.current is not None

    def forget(self) -> None:
        """There will be no further request."""
        self.current = None
