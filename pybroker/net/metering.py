"""What one connection uses of its client's quotas, and that it is muted while its client is to rest (KIP-219).

Owns: ``Meter``: which requests count and how, the throttle time that a reply tells, and until when its connection is
muted.  Does not own the rates (``quotas/client_quotas``), nor what a muted connection leaves undone (``connection``).

A connection has a meter while any quota of clients is set, and costs nothing more than the question otherwise.  The
connections of other brokers have none: what brokers ask of each other counts for no quota, as in Kafka.

What counts:
- Of Produce its bytes as they were received, when it is started.
- Of Fetch what it would bring, before it is sent (``handlers/fetch``).
- Of all requests the time in which the loop is busy with one, from the first look at it to its reply. 100 percent is
  the loop's whole time.

Kafka counts the time of network and I/O threads, 100 percent of each. Work of other threads, which the loop does not
wait for, counts for no client.

A fast path serves nothing of a client that is over its quota, nor what would bring it over. That goes the ordinary way,
request by request, where the reply tells the throttle time.

Invariants:
- A reply leaves at once.
- While its connection is muted nothing is read and nothing started, whatever is there already.
- A connection is muted until the last of its throttle times is over. That counts also where no reply has the time:
  a Produce with acks=0 has no reply, and one to SaslHandshake has no field for it.

Kafka counterparts: RequestHandlerHelper.throttle and ThrottledChannel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from pybroker.net.dispatch import PRODUCE_KEY
from pybroker.net.framing import LENGTH_BYTES
from pybroker.net.outbox import EncodedReplies, EncodedReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.env import Cancellable, Env
    from pybroker.net.dispatch import ServedApi
    from pybroker.quotas.client_quotas import ClientQuotas, ClientShare

# What fast paths and long requests hand over: its client was looked at when it was made.
_ENCODED: Final = (EncodedReply, EncodedReplies)


class RequestServer(Protocol):
    """What serves a connection's requests."""

    @property
    def client(self) -> tuple[str, str | None]:
        """The principal and the client id of what is served, or was served last."""
        ...

    def serve(self, frame: memoryview) -> None:
        """Serve one request."""
        ...


class Metered(Protocol):
    """A connection."""

    @property
    def requests(self) -> RequestServer: ...

    def on_muted(self) -> None:
        """Read and start nothing from now on."""
        ...

    def on_unmuted(self) -> None:
        """Go on."""
        ...


class Meter:
    __slots__ = (
        "_begun_ns",
        "_clock",
        "_connection",
        "_fast_path_pos",
        "_is_produce",
        "_muted_until_ms",
        "_now_ns",
        "_quotas",
        "_timer",
        "_timers",
        "_uncounted_bytes",
    )

    def __init__(self, connection: Metered, quotas: ClientQuotas, env: Env) -> None:
        self._connection = connection
        self._quotas = quotas
        self._clock = env.clock
        self._now_ns = env.clock.monotonic_ns
        self._timers = env.timers
        self._begun_ns: int | None = None  # since when the loop works for it; None while it does not
        self._uncounted_bytes = 0
        self._fast_path_pos = 0
        self._is_produce = False
        self._muted_until_ms = 0
        self._timer: Cancellable | None = None

    @property
    def is_muted(self) -> bool:
        """Whether its client is to rest."""
        return self._timer is not None

    def close(self) -> None:
        """The connection is gone, or is measured no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- while requests are served ---------------------------------------------------------------------------------

    def lets_fast_path_serve(self, view: memoryview, pos: int, end: int) -> bool:
        """Whether its client stays within its quotas with ``view[pos:end]``; if so, the loop begins to work for it."""
        if not self._share().may_produce(end - pos):
            return False
        self._fast_path_pos = pos
        self._is_produce = view[pos + LENGTH_BYTES] == 0 and view[pos + LENGTH_BYTES + 1] == PRODUCE_KEY
        self.begin()
        return True

    def fast_path_served(self, stop: int) -> None:
        """A fast path has served what stands before ``stop``, which may be nothing."""
        if self._is_produce:
            self._share().produced(stop - self._fast_path_pos)
        self.end()

    def work(self, goes_on: Callable[[], None]) -> None:
        """Have a part of a long request done; raises what that raises."""
        self.begin()
        try:
            goes_on()
        finally:
            self.end()

    def begin(self) -> None:
        """The loop works for it from now on."""
        now_ns = self._now_ns
        self._begun_ns = now_ns()

    def end(self) -> None:
        """The loop works for it no longer."""
        if self._begun_ns is not None:
            now_ns = self._now_ns
            self._share().worked(now_ns() - self._begun_ns)
            self._begun_ns = None

    def serve(self, frame: memoryview) -> None:
        """Have the connection serve a request; ``frame`` is it without its length.

        For a Produce the client rests at once, whether it hears of it or not (acks=0).
        """
        self.begin()
        produces = len(frame) > 1 and frame[0] == 0 and frame[1] == PRODUCE_KEY
        if produces:
            self._uncounted_bytes = len(frame)
        self._connection.requests.serve(frame)
        self.end()
        if produces:
            self._count_bytes()
            share = self._share()
            self.mute(max(share.produce_throttle_ms(), share.request_throttle_ms()))

    def throttled(self, api: ServedApi, response: Any) -> Any:
        """The response as it is to be sent, with the time for which its client is to rest; it rests from now on.

        It rests also where the response has no space for that time, as in Kafka (sendMaybeThrottle).
        A handler may have set such a time: of a fetch, of changes of the metadata.
        """
        response_ms = getattr(response, "throttle_time_ms", None)
        if response_ms is None and response.__class__ in _ENCODED:
            return response
        share = self._share()
        if self._begun_ns is not None:
            now_ns = self._now_ns()
            share.worked(now_ns - self._begun_ns)
            self._begun_ns = now_ns
        if response_ms is None:
            self.mute(share.request_throttle_ms())
            return response
        self._count_bytes()
        throttle_ms = max(response_ms, share.request_throttle_ms())
        if api.api_key == PRODUCE_KEY:
            throttle_ms = max(throttle_ms, share.produce_throttle_ms())
        if throttle_ms > response_ms:
            response = with_throttle_time(response, throttle_ms)
        self.mute(throttle_ms)
        return response

    def _count_bytes(self) -> None:
        """Of a Produce that is being served, once its client's id is read."""
        if self._uncounted_bytes:
            self._share().produced(self._uncounted_bytes)
            self._uncounted_bytes = 0

    # --- the mute --------------------------------------------------------------------------------------------------

    def mute(self, throttle_ms: int) -> None:
        """Have the connection rest for so long, if it does not rest for longer already."""
        if throttle_ms <= 0:
            return
        until_ms = self._clock.monotonic_ms() + throttle_ms
        self._muted_until_ms = max(self._muted_until_ms, until_ms)
        if self._timer is None:
            self._timer = self._timers.call_later(throttle_ms, self._on_time)
            self._connection.on_muted()

    def _on_time(self) -> None:
        rest_ms = self._muted_until_ms - self._clock.monotonic_ms()
        if rest_ms > 0:
            self._timer = self._timers.call_later(rest_ms, self._on_time)
            return
        self._timer = None
        self._connection.on_unmuted()

    def _share(self) -> ClientShare:
        return self._quotas.share(*self._connection.requests.client)


def with_throttle_time(response: Any, throttle_ms: int) -> Any:
    """The response, or one like it that is not shared, that tells the time."""
    if isinstance(response, tuple):
        return response._replace(throttle_time_ms=throttle_ms)  # type: ignore[attr-defined]
    response.throttle_time_ms = throttle_ms
    return response
