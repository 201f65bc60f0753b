"""The brokers of a link's source, over the network: implements ``cluster/links/source_port.py``.

Owns: which connections there are (one per broker and channel), where each broker is, and which of them is asked what
any of them knows.  Does not own a connection's requests (``peer_link``), nor its begin (``source_login``,
``source_tokens``).

Invariant: nothing is connected, and no connection exists, before a request comes.

Counterpart in Kafka: ``NetworkClient`` with its metadata.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pybroker.cluster.image.cluster_image import Endpoint
from pybroker.cluster.links.source_port import ANY_NODE
from pybroker.cluster.membership.peers import CONTROL, PeerError, PeerFailure
from pybroker.net.buffers import BufferPool
from pybroker.net.framing import Framing
from pybroker.net.peer_link import LinkContext, PeerLink
from pybroker.net.peer_requests import PeerEncoder
from pybroker.net.source_login import SourceLogin, SourceUser
from pybroker.net.source_tokens import tokens_of
from pybroker.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from pybroker.cluster.membership.peers import PeerDone
    from pybroker.config.link_config import LinkConfig
    from pybroker.env import Env
    from pybroker_protocol.schema import Request

# A reply before a connection is begun: ApiVersions of a broker with all that there is, or a step of a login.
_LOGIN_REPLY_BYTES_MAX = 128 << 10

# A source has ten thousands of partitions, groups and ACLs: ListOffsets, Metadata, OffsetFetch, ListGroups,
# OffsetForLeaderEpoch, DescribeAcls, and the settings of topics.
_LONG_REPLIES = frozenset((2, 3, 9, 16, 23, 29, 32))

log = logging.getLogger(__name__)


class SourceTls(NamedTuple):
    """What is spoken towards the source."""

    client: ssl.SSLContext
    checks_host: bool


class SourceClient:
    """``Source`` on the running loop; ConfigError for keys and passwords that cannot be used."""

    def __init__(self, env: Env, config: LinkConfig, broker_id: int) -> None:
        self._env = env
        self._name = config.link
        client_id = f"link-{config.link}-{broker_id}"
        self._bootstrap = [_endpoint(address) for address in config.get("bootstrap.servers")]
        self._bootstrap_index = broker_id % len(self._bootstrap)  # not all brokers ask the same one
        self._nodes: dict[int, Endpoint] = {}
        self._links: dict[tuple[Endpoint, str], PeerLink] = {}
        self._encoder = PeerEncoder(client_id)
        self._is_closed = False
        self._limited_log = RateLimitedLog(log, env.timers)
        tls = _tls(config)
        self._tokens = tokens_of(config, env)
        self._shared = LinkContext(
            env,
            asyncio.get_running_loop(),
            Framing(_LOGIN_REPLY_BYTES_MAX),
            Framing(),
            BufferPool(),
            self._limited_log,
            {},
            partial(SourceLogin, env, client_id, SourceUser(config, self._tokens)),
            lambda: tls,
            _LONG_REPLIES,
        )

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
        """See ``Source``."""
        deadline_ms = self._env.clock.monotonic_ms() + timeout_ms
        if self._tokens is None:
            self._ask(broker_id, request, version, done, deadline_ms, channel)
        else:
            self._tokens.when_known(partial(self._ask, broker_id, request, version, done, deadline_ms, channel))

    def _ask(
        self, broker_id: int, request: Request, version: int, done: PeerDone, deadline_ms: int, channel: str
    ) -> None:
        endpoint = self._any_node() if broker_id == ANY_NODE else self._nodes.get(broker_id)
        if self._is_closed or endpoint is None:
            failure = PeerFailure.CLOSED if self._is_closed else PeerFailure.UNREACHABLE
            self._env.timers.call_soon(done, None, PeerError(failure, False, f"broker {broker_id} of the source"))
            return
        answered = self._turning(done) if broker_id == ANY_NODE else done
        asked = self._encoder.encode(request, version, deadline_ms, answered)
        link = self._links.get((endpoint, channel))
        if link is None:
            name = f"link {self._name}: {endpoint.host}:{endpoint.port} ({channel})"
            link = self._links[endpoint, channel] = PeerLink(name, endpoint, self._shared)
        if link.has_capacity_for(asked.size):
            link.ask(asked)
        else:
            self._env.timers.call_soon(answered, None, PeerError(PeerFailure.BUSY, False))

    def _any_node(self) -> Endpoint:
        """One of the bootstrap servers, and where these are gone by now one of the brokers that were learned of."""
        known = dict.fromkeys((*self._bootstrap, *self._nodes.values()))
        return [*known][self._bootstrap_index % len(known)]

    def _turning(self, done: PeerDone) -> PeerDone:
        """The next question goes to another one, where this one is not answered."""
        index = self._bootstrap_index

        def answered(response: object | None, error: PeerError | None) -> None:
            if error is not None and index == self._bootstrap_index:
                self._bootstrap_index += 1
            done(response, error)

        return answered

    def learn(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """See ``Source``.  A connection to where no broker is any more ends."""
        self._nodes = {broker_id: Endpoint(host, port) for broker_id, (host, port) in nodes.items()}
        known = {*self._nodes.values(), *self._bootstrap}
        for key in [key for key in self._links if key[0] not in known]:
            self._links.pop(key).close(PeerFailure.UNREACHABLE, "it is no broker of the source any more")

    def close(self) -> None:
        """See ``Source``."""
        self._is_closed = True
        if self._tokens is not None:
            self._tokens.close()
        links, self._links = self._links, {}
        for link in links.values():
            link.close(PeerFailure.CLOSED, "")
        self._limited_log.close()

    @property
    def is_over(self) -> bool:
        """Whether it is closed, and nothing of it is under way on the loop."""
        return self._is_closed and not self._shared.attempts

    async def wait_closed(self) -> None:
        """After ``close``: until what was under way on the loop is over, too."""
        await asyncio.gather(*self._shared.attempts, return_exceptions=True)


def _endpoint(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))


def _tls(config: LinkConfig) -> SourceTls | None:
    if not config.get("security.protocol").endswith("SSL"):
        return None
    from pybroker.security.tls_stores import client_tls

    context = client_tls(config).context
    return SourceTls(context, context.check_hostname)
