"""The other brokers, over the network: implements ``cluster/membership/peers.py``.

Owns: which links there are (one per broker and channel), where each broker is reached, and the limits of what waits.
Does not own a link's requests and connection (``peer_link``).

Invariant: nothing is connected, and no link exists, before a request comes.

Kafka counterpart: NodeToControllerChannelManagerImpl and BrokerBlockingSender, each with a NetworkClient of its own.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pybroker import cluster_limits
from pybroker.cluster.membership.peers import CONTROL, FORWARDING, PeerError, PeerFailure
from pybroker.net.buffers import BufferPool
from pybroker.net.framing import FRAME_BYTES_MAX, Framing
from pybroker.net.peer_link import LinkContext, PeerLink
from pybroker.net.peer_login import PeerLogin, SaltedSecret
from pybroker.net.peer_requests import PeerEncoder
from pybroker.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.cluster.image.cluster_image import ClusterImage, Endpoint, ImageDelta
    from pybroker.cluster.image.metadata_cache import ImageListener
    from pybroker.cluster.membership.peers import PeerDone
    from pybroker.env import Env
    from pybroker.security.tls_stores import Tls
    from pybroker_protocol.schema import Request

# A reply to a login, of a broker that has not proved yet that it is one.  Its later replies are as long as a frame can
# say: a batch that one of them took must find its way, however long it is.
PEER_LOGIN_REPLY_BYTES_MAX = 128 << 10

log = logging.getLogger(__name__)


class Addresses(Protocol):
    """Where the brokers are: the follower of the cluster's metadata."""

    @property
    def image(self) -> ClusterImage: ...

    def subscribe(self, listener: ImageListener) -> Callable[[], None]: ...


class PeerClient:
    """``Peers`` on the running loop.  ``listener`` is the inter-broker listener's name, the same on all brokers.

    With a ``secret`` each connection begins with the proof that both sides know it.  ``over_sasl`` says whether that
    listener asks its clients who they are, too, and ``tls`` what it speaks.  ``request_bytes_max`` is the longest
    request that clients may send, here and to the other brokers.
    """

    def __init__(
        self,
        env: Env,
        metadata: Addresses,
        broker_id: int,
        listener: str,
        request_bytes_max: int = FRAME_BYTES_MAX,
        secret: bytes | None = None,
        *,
        over_sasl: bool = False,
        tls: Callable[[], Tls | None] = lambda: None,
    ) -> None:
        self.on_broken: Callable[[int], None] = lambda broker_id: None
        self._env = env
        self._metadata = metadata
        self._broker_id = broker_id
        self.is_leaving = False  # this broker stops in good order: that connections end is no news to it
        self._listener = listener
        client_id = f"broker-{broker_id}"
        self._encoder = PeerEncoder(client_id)
        self._links: dict[int, dict[str, PeerLink]] = {}
        self._forwarded_bytes_max = min(request_bytes_max, FRAME_BYTES_MAX - cluster_limits.ENVELOPE_BYTES_MAX)
        self._is_closed = False
        self._limited_log = RateLimitedLog(log, env.timers)
        self._shared = LinkContext(
            env,
            asyncio.get_running_loop(),
            Framing(PEER_LOGIN_REPLY_BYTES_MAX),
            Framing(),
            BufferPool(),
            self._limited_log,
            {},
            None if secret is None else partial(PeerLogin, env, client_id, SaltedSecret(secret), over_sasl),
            tls,
        )
        self._unsubscribe: Callable[[], None] = metadata.subscribe(self._on_image)

    def ask(
        self,
        broker_id: int,
        request: Request,
        version: int,
        done: PeerDone,
        *,
        timeout_ms: int,
        channel: str = CONTROL,
    ) -> None:
        """See ``Peers``."""
        deadline_ms = self._env.clock.monotonic_ms() + timeout_ms
        asked = self._encoder.encode(request, version, deadline_ms, done)
        if self._is_closed:
            self._refuse(done, PeerFailure.CLOSED)
            return
        link = self._link(broker_id, channel)
        if link is None:
            message = f"broker {broker_id} has no listener {self._listener}, or is not registered"
            self._refuse(done, PeerFailure.UNREACHABLE, message)
        elif not link.has_capacity_for(asked.size):
            self._refuse(done, PeerFailure.BUSY)
        else:
            link.ask(asked)

    def forward(
        self,
        broker_id: int,
        frame: bytes | memoryview,
        principal: str,
        client_host: str,
        done: PeerDone,
        *,
        timeout_ms: int,
        by_token: bool = False,
    ) -> None:
        """See ``Peers``.  ValueError for what the other broker would close the connection for, or no envelope takes."""
        from pybroker.net.envelopes import envelope

        if len(frame) > self._forwarded_bytes_max:
            raise ValueError(f"a request of {len(frame)} bytes is forwarded (at most {self._forwarded_bytes_max} are)")
        request = envelope(frame, principal, client_host, by_token=by_token)
        self.ask(broker_id, request, 0, done, timeout_ms=timeout_ms, channel=FORWARDING)

    def close(self) -> None:
        """See ``Peers``."""
        self._is_closed = True
        self._unsubscribe()
        self._close_links(list(self._links), PeerFailure.CLOSED)
        self._limited_log.close()

    async def wait_closed(self) -> None:
        """After ``close``: until what was under way on the loop is over, too."""
        await asyncio.gather(*self._shared.attempts, return_exceptions=True)

    # --- links -------------------------------------------------------------------------------------------------------

    def _link(self, broker_id: int, channel: str) -> PeerLink | None:
        """The link, made by its first request; None where the address is not known."""
        channels = self._links.get(broker_id)
        link = channels.get(channel) if channels is not None else None
        if link is None:
            endpoint = self._endpoint(self._metadata.image, broker_id)
            if endpoint is None:
                return None
            name, broken = f"broker {broker_id} ({channel})", partial(self._tell_broken, broker_id)
            link = PeerLink(name, endpoint, self._shared, broken, partial(self._is_stopping, broker_id))
            self._links.setdefault(broker_id, {})[channel] = link
        return link

    def _is_stopping(self, broker_id: int) -> bool:
        """Whether this broker or the other one leaves the cluster, which ends their connections."""
        if self.is_leaving:
            return True
        brokers = self._metadata.image.brokers
        return any(each in brokers and brokers[each].in_controlled_shutdown for each in (self._broker_id, broker_id))

    def _tell_broken(self, broker_id: int) -> None:
        self.on_broken(broker_id)

    def _endpoint(self, image: ClusterImage, broker_id: int) -> Endpoint | None:
        broker = image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(self._listener)

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        for broker_id in delta.brokers_changed:
            if broker_id not in self._links:
                continue
            endpoint = self._endpoint(image, broker_id)
            if endpoint is None:
                self._close_links([broker_id], PeerFailure.UNREACHABLE)
                continue
            for link in list(self._links.get(broker_id, {}).values()):
                link.on_registration(endpoint, image.brokers[broker_id].fenced)

    def _close_links(self, broker_ids: list[int], failure: PeerFailure) -> None:
        closing = [link for broker_id in broker_ids for link in self._links.pop(broker_id, {}).values()]
        for link in closing:
            link.close(failure, "")

    def _refuse(self, done: PeerDone, failure: PeerFailure, message: str = "") -> None:
        """Answer later: never inside of the call."""
        self._env.timers.call_soon(done, None, PeerError(failure, False, message))
