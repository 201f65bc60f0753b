"""What stands behind each listener: which kind of connection an accepted socket becomes.

Owns: the choice by the listener's security protocol.  A door's mechanisms and certificates may change while the broker
runs: whoever comes from then on, or logs in anew, meets the new ones, and connections that stand go on.
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
    from collections.abc import Mapping, Sequence

    from pybroker.cluster.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.listeners import Listener
    from pybroker.net.processor import Processor
    from pybroker.security.login import Mechanisms
    from pybroker.security.mechanisms import Surroundings
    from pybroker.security.scram import ScramCredential, ScramMechanism
    from pybroker.security.tls_stores import Tls
    from pybroker.security.unknown_users import SaltForm

log = logging.getLogger(__name__)


class Door:
    """One listener's.  ``mechanisms`` is None where nobody is asked who it is, and nobody may say so; ``tls`` where all
    is in the clear.

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
        self.told: dict[str, Any] = {}  # what the settings said of these
        self._asks = asks
        self._receive_bytes_max = receive_bytes_max

    @property
    def knows_who_comes(self) -> bool:
        """Whether nobody is served without a login or a certificate."""
        return self._asks or (self.tls is not None and self.tls.wants_certificates)

    def connection(self, processor: Processor) -> asyncio.BufferedProtocol:
        """The connection of a socket that was accepted; where new ones may have to wait, one at the door."""
        doorkeeper = processor.doorkeeper
        if doorkeeper is None:
            return self._outermost(processor)
        return doorkeeper.newcomer(self.name, partial(self._outermost, processor))

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


class Doors:
    """The doors of all listeners.  Raises ConfigError, before anything of the broker is made, for what none can be.

    ``around`` may lack the cluster's secret, until ``know_the_cluster``; it is None where nobody logs in.
    """

    def __init__(self, config: BrokerConfig, listeners: Sequence[Listener], around: Surroundings | None) -> None:
        self._config = config
        self._listeners = {listener.name: listener for listener in listeners}
        self._around = around
        self._serving_brokers: str | None = None  # the name of the listener by which other brokers come
        self._doors = {
            listener.name: Door(
                listener.name,
                self._mechanisms(listener, config),
                _tls(listener, config),
                asks=listener.asks_who_it_is,
                receive_bytes_max=config.get_int("sasl.server.max.receive.size"),
            )
            for listener in listeners
        }
        for name, door in self._doors.items():
            door.told = _security_of(name, config)
        _tell_of_exposed_keys(config, listeners)

    def know_the_cluster(self, around: Surroundings, serving_brokers: str | None) -> None:
        """The cluster's secret is known, and the listener by which its other brokers come."""
        self._around, self._serving_brokers = around, serving_brokers
        for name, listener in self._listeners.items():
            self._doors[name].mechanisms = self._mechanisms(listener, self._config)

    def __getitem__(self, listener: str) -> Door:
        return self._doors[listener]

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless all listeners can be what these settings say.

        One about which they say nothing new stays as it is, even where its certificate has expired meanwhile.
        """
        for name, listener in self._listeners.items():
            if _security_of(name, config) == _security_of(name, self._config):
                continue
            self._inside_of(listener, config)

    def update(self, config: BrokerConfig) -> None:
        """Settings were altered, be it to what they were: listeners of which they say something new follow.

        So do those whose files of keys and certificates are others by now, as in Kafka.  A file, or what an earlier
        version has let through, may be wrong: then the listener stays as it was.
        """
        for name, listener in self._listeners.items():
            door, told = self._doors[name], _security_of(name, config)
            if told == door.told and (door.tls is None or not door.tls.has_newer_files):
                continue
            try:
                door.mechanisms, door.tls = self._inside_of(listener, config)
                door.told = told
            except ConfigError as error:
                log.warning("listener %s stays as it was: %s", name, error)

    def _inside_of(self, listener: Listener, config: BrokerConfig) -> tuple[Mechanisms | None, Tls | None]:
        """What a listener's door is made of, by these settings; ConfigError, also for a certificate of another one."""
        mechanisms, tls = self._mechanisms(listener, config), _tls(listener, config)
        before = self._doors[listener.name].tls
        if tls is not None and before is not None:
            _check_compatible(tls, before, ListenerSettings(config, listener.name))
        return mechanisms, tls

    def _mechanisms(self, listener: Listener, config: BrokerConfig) -> Mechanisms | None:
        serves_brokers, around = listener.name == self._serving_brokers, self._around
        if around is None or not (listener.asks_who_it_is or serves_brokers):
            return None
        from pybroker.security.mechanisms import BrokerMechanisms, ListenerMechanisms

        if listener.asks_who_it_is:
            return ListenerMechanisms(ListenerSettings(config, listener.name), around, serves_brokers)
        return None if around.cluster is None else BrokerMechanisms(around.cluster)


def _check_compatible(tls: Tls, before: Tls, settings: ListenerSettings) -> None:
    """Raise ConfigError where clients that trusted the one may not trust the other (SslFactory.CertificateEntries)."""
    name = settings.name_of("ssl.keystore.location")
    if tls.subject != before.subject and not settings.get("ssl.allow.dn.changes"):
        raise ConfigError(
            f"{name}: the new certificate is another one's "
            f"({tls.subject}, not {before.subject}); ssl.allow.dn.changes would let it"
        )
    lost = before.alternative_names - tls.alternative_names
    if lost and not settings.get("ssl.allow.san.changes"):
        raise ConfigError(
            f"{name}: the new certificate lacks {len(lost)} of the alternative names of the one before; "
            "ssl.allow.san.changes would let it"
        )


def _security_of(listener: str, config: BrokerConfig) -> dict[str, Any]:
    return ListenerSettings(config, listener).all_of("ssl.", "sasl.", "connections.max.reauth.ms")


def _tell_of_exposed_keys(config: BrokerConfig, listeners: Sequence[Listener]) -> None:
    """Once, not again with each new certificate."""
    if any(listener.has_tls for listener in listeners):
        from pybroker.security.tls_stores import key_in_the_clear

        files = {key_in_the_clear(ListenerSettings(config, each.name)) for each in listeners if each.has_tls}
        for file in sorted(file for file in files if file is not None):
            tell_of_exposure(file, "a private key")


def _tls(listener: Listener, config: BrokerConfig) -> Tls | None:
    """What a listener with TLS speaks; ConfigError."""
    if not listener.has_tls:
        return None
    from pybroker.security.tls_stores import tls_of

    return tls_of(ListenerSettings(config, listener.name), with_sasl=listener.asks_who_it_is)
