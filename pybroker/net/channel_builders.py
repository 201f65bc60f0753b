"""Which kind of connection a socket becomes that a listener has accepted.

Owns: the choice by the listener's security protocol.  A listener's mechanisms and certificates may change while the
broker runs: new connections and new logins meet the new ones, and connections that stand go on.
Does not own sockets (``socket_server``) nor connections.  What logins need is imported where there are some.

Kafka counterpart: ChannelBuilders and its PlaintextChannelBuilder, SslChannelBuilder, SaslChannelBuilder.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.schema import ConfigError
from pybroker.config.secret_files import tell_of_exposure
from pybroker.net.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.listeners import Listener
    from pybroker.env import Clock, Env
    from pybroker.net.key_stores import KeyStores, WantedTls
    from pybroker.net.processor import Processor
    from pybroker.security.login import Mechanisms
    from pybroker.security.mechanisms import MechanismContext
    from pybroker.security.scram import ScramCredential, ScramMechanism
    from pybroker.security.tls_stores import Tls
    from pybroker.security.unknown_users import SaltForm

log = logging.getLogger(__name__)


class ChannelBuilder:
    """One listener's.  ``mechanisms`` is None where clients do not log in; ``tls`` is None where all is in the clear.

    ``asks``: nothing is served before a login, of at most ``receive_bytes_max`` bytes a message.
    """

    def __init__(
        self,
        name: str,
        mechanisms: Mechanisms | None = None,
        tls: Tls | None = None,
        *,
        asks: bool = False,
        receive_bytes_max: int = 0,
    ) -> None:
        self.name = name
        self.mechanisms = mechanisms
        self.tls = tls
        self.configured: dict[str, Any] = {}  # what the settings said of these
        self._asks = asks
        self._receive_bytes_max = receive_bytes_max

    @property
    def authenticates(self) -> bool:
        """Whether clients are served only with a login or a certificate."""
        return self._asks or (self.tls is not None and self.tls.wants_certificates)

    def connection(self, processor: Processor) -> asyncio.BufferedProtocol:
        """The connection of a socket that was accepted; where new ones may have to wait, one that waits."""
        rate_limiter = processor.rate_limiter
        if rate_limiter is None:
            return self._outermost(processor)
        return rate_limiter.pending_connection(self.name, partial(self._outermost, processor))

    def _outermost(self, processor: Processor) -> asyncio.BufferedProtocol:
        """The connection that reads what the socket brings."""
        if self.tls is None:
            return self._inside(processor, None)
        from pybroker.net.tls_connection import TlsServerConnection

        return TlsServerConnection(processor, self.name, self.tls, partial(self._inside, processor))

    def _inside(self, processor: Processor, principal: str | None) -> asyncio.BufferedProtocol:
        """The connection that reads what clients say; ``principal`` is their certificate's."""
        mechanisms = self.mechanisms
        if mechanisms is None:
            return Connection(processor, self.name, None, principal or limits.ANONYMOUS)
        from pybroker.security.login import Login

        login = Login(lambda: self.mechanisms or mechanisms, processor.clock, self._receive_bytes_max)
        if self._asks:
            from pybroker.net.login_connection import LoginConnection

            return LoginConnection(processor, self.name, login, self._receive_bytes_max)
        return Connection(processor, self.name, login, principal or limits.ANONYMOUS)


class ImageUsers:
    """Users of SCRAM, where the cluster's metadata has them.  See ``security.mechanisms.Users``."""

    __slots__ = ("_counted", "_forms", "_metadata")

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._counted: object = None  # the credentials that ``_forms`` are of
        self._forms: dict[int, Counter[SaltForm]] = {}

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._metadata.image.scram_credentials.get((mechanism.type, user))

    def forms(self, mechanism: ScramMechanism) -> Mapping[SaltForm, int]:
        from pybroker.security.unknown_users import forms_of

        credentials = self._metadata.image.scram_credentials
        if credentials is not self._counted:
            by_mechanism: defaultdict[int, list[ScramCredential]] = defaultdict(list)
            for (kind, _), credential in credentials.items():
                by_mechanism[kind].append(credential)
            self._counted = credentials
            self._forms = {kind: forms_of(found) for kind, found in by_mechanism.items()}
        return self._forms.get(mechanism.type, {})


class ChannelBuilders:
    """Those of all listeners.  Raises ConfigError, before anything of the broker is made, for what none can be.

    ``context`` may lack the cluster's secret, until ``set_cluster_secret``; it is None where clients do not log in.
    """

    def __init__(
        self, config: BrokerConfig, listeners: Sequence[Listener], context: MechanismContext | None, clock: Clock
    ) -> None:
        self._config = config
        self._listeners = {listener.name: listener for listener in listeners}
        self._context = context
        self._key_stores: KeyStores | None = None  # there is none where no listener has TLS, or nothing changes yet
        self._serving_brokers: str | None = None  # the name of the listener by which other brokers come
        self._channel_builders = {
            listener.name: ChannelBuilder(
                listener.name,
                self._mechanisms(listener, config),
                _tls(listener, config, clock),
                asks=listener.asks_who_it_is,
                receive_bytes_max=ListenerSettings(config, listener.name).get("sasl.server.max.receive.size"),
            )
            for listener in listeners
        }
        for name, channel_builder in self._channel_builders.items():
            channel_builder.configured = _security_of(name, config)
        _tell_of_exposed_keys(config, listeners)

    def set_cluster_secret(self, context: MechanismContext, serving_brokers: str | None) -> None:
        """The cluster's secret is known, and the listener by which its other brokers come."""
        self._context, self._serving_brokers = context, serving_brokers
        for name, listener in self._listeners.items():
            self._channel_builders[name].mechanisms = self._mechanisms(listener, self._config)

    def __getitem__(self, listener: str) -> ChannelBuilder:
        return self._channel_builders[listener]

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless all listeners can let clients log in as these settings say.

        One about which they say nothing new stays as it is.
        """
        for name, listener in self._listeners.items():
            if _security_of(name, config) != _security_of(name, self._config):
                self._mechanisms(listener, config)

    def look(self, config: BrokerConfig, done: Callable[[ConfigError | None], None]) -> None:
        """Whether all listeners can show the keys and certificates that these settings name: ``done``, maybe at once.

        Files are read on a thread.  What was read is what ``update`` with these settings takes, without another look.
        Where nothing new is said of a listener no file of it is a reason to refuse, be its certificate expired.
        """
        key_stores = self._key_stores
        if key_stores is None:
            done(None)
            return
        key_stores.look(self._wanted(config), done)

    def update(self, config: BrokerConfig) -> None:
        """Settings were altered, be it to what they were: listeners of which they say something new follow.

        So do those whose files of keys and certificates are others by now, as in Kafka: a moment later, unless they
        were read for this change.  A file, or what an earlier version has let through, may be wrong: then the listener
        stays as it was.
        """
        key_stores = self._key_stores
        for name, listener in self._listeners.items():
            configured = _security_of(name, config)
            if not listener.has_tls:
                if configured != self._channel_builders[name].configured:
                    self._renew(name, configured, None)
            elif key_stores is not None and (tls := key_stores.take(name, configured)) is not None:
                self._renew(name, configured, tls)
        if key_stores is not None:
            key_stores.read_anew(lambda: self._wanted(self._config.snapshot()), self._renew)

    def follow_files(self, env: Env) -> Callable[[], None]:
        """Files of keys are read on a thread of ``env`` from now on; what is given back ends it."""
        if not any(listener.has_tls for listener in self._listeners.values()):
            return lambda: None
        from pybroker.net.key_stores import KeyStores

        self._key_stores = KeyStores(env)
        return self._key_stores.close

    def _wanted(self, config: BrokerConfig) -> list[WantedTls]:
        """What each listener with TLS has, and what the settings say of it."""
        from pybroker.net.key_stores import WantedTls

        found = []
        for name, listener in self._listeners.items():
            channel_builder = self._channel_builders[name]
            if channel_builder.tls is not None:
                settings = ListenerSettings(config, name)
                configured = _security_of(name, config)
                found.append(
                    WantedTls(
                        name,
                        settings,
                        listener.asks_who_it_is,
                        configured,
                        configured == channel_builder.configured,
                        channel_builder.tls,
                    )
                )
        return found

    def _renew(self, name: str, configured: dict[str, Any], tls: Tls | None) -> None:
        """The listener shows these keys from now on, if its settings still say so."""
        if configured != _security_of(name, self._config):
            return
        channel_builder = self._channel_builders[name]
        try:
            if configured != channel_builder.configured:
                channel_builder.mechanisms = self._mechanisms(self._listeners[name], self._config)
            channel_builder.tls, channel_builder.configured = tls, configured
        except ConfigError as error:
            log.warning("listener %s stays as it was: %s", name, error)

    def _mechanisms(self, listener: Listener, config: BrokerConfig) -> Mechanisms | None:
        serves_brokers, context = listener.name == self._serving_brokers, self._context
        if context is None or not (listener.asks_who_it_is or serves_brokers):
            return None
        from pybroker.security.mechanisms import BrokerMechanisms, ListenerMechanisms

        if listener.asks_who_it_is:
            return ListenerMechanisms(ListenerSettings(config, listener.name), context, serves_brokers)
        return None if context.cluster is None else BrokerMechanisms(context.cluster)


def _security_of(listener: str, config: BrokerConfig) -> dict[str, Any]:
    return ListenerSettings(config, listener).all_of("ssl.", "sasl.", "connections.max.reauth.ms")


def _tell_of_exposed_keys(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    """Once, not again with each new certificate."""
    if any(listener.has_tls for listener in listeners):
        from pybroker.security.tls_stores import key_in_the_clear

        files = {key_in_the_clear(ListenerSettings(config, each.name)) for each in listeners if each.has_tls}
        for file in sorted(file for file in files if file is not None):
            tell_of_exposure(file, "a private key")


def _tls(listener: Listener, config: BrokerConfig, clock: Clock) -> Tls | None:
    """What a listener with TLS speaks; ConfigError."""
    if not listener.has_tls:
        return None
    from pybroker.security.tls_stores import tls_of

    settings = ListenerSettings(config, listener.name)
    return tls_of(settings, clock.now_ms(), with_sasl=listener.asks_who_it_is)
