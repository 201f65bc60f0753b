"""What a listener lets its clients log in by: its SASL mechanisms, out of its settings.

Owns: which mechanisms there are, the settings that each needs, and their check at the start and before a change.
Owns no exchange (``plain``, ``scram``) and not where users of SCRAM lie (the cluster's image).

A mechanism is a row of ``_MECHANISMS``: a function of what it needs that begins an exchange.

Counterpart in Kafka: ``SaslChannelBuilder`` and ``JaasContext.loadServerContext``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pybroker.config import jaas
from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.schema import ConfigError
from pybroker.extras import how_to_install
from pybroker.security import oauthbearer, plain, scram
from pybroker.security.login import Started
from pybroker.security.sasl import NotYet, SaslServer
from pybroker.security.unknown_users import SaltForm, fake_credential

if TYPE_CHECKING:
    from random import Random

    from pybroker.security.key_sets import KeySets

# By which a broker proves on a SASL listener that it knows the cluster's secret; no client gets it.
CLUSTER_MECHANISM: Final = "PYBROKER-CLUSTER-SCRAM-SHA-256"
_FETCH_TIMEOUT_MS: Final = 10_000  # where no setting says how long a key set's server is waited for


class Users(Protocol):
    """Where the credentials of SCRAM are."""

    def credential(self, mechanism: scram.ScramMechanism, user: str) -> scram.ScramCredential | None: ...

    def forms(self, mechanism: scram.ScramMechanism) -> Mapping[SaltForm, int]:
        """How many users there are of each form."""
        ...


class Tokens(Protocol):
    """Who holds which delegation token."""

    def find(self, mechanism: scram.ScramMechanism, token_id: str) -> scram.Identity | NotYet: ...


class ClusterLogin:
    """The secret that brokers know each other by, its keys derived once."""

    __slots__ = ("_credential", "_random")

    def __init__(self, secret: bytes, random: Random) -> None:
        self._credential = scram.credential_of(scram.SHA_256, secret, scram.cluster_salt(secret))
        self._random = random

    def start(self) -> Started:
        """Begin a broker's exchange."""
        nonce = self._random.randbytes(scram.NONCE_BYTES)
        server = scram.ScramServer(scram.SHA_256, self._find, nonce)
        return Started(server, is_of_brokers=True)

    def _find(self, name: str, is_token: bool) -> scram.Identity:
        return scram.Identity(self._credential, None if is_token else name)


class MechanismContext(NamedTuple):
    """What the mechanisms of all listeners need of the broker."""

    users: Users
    random: Random
    fake_key: bytes  # by which unknown users are asked for proofs like others
    cluster: ClusterLogin | None = None
    tokens: Tokens | None = None  # None: there are none
    key_sets: KeySets | None = None  # by which bearer tokens are checked


Start = Callable[[], SaslServer]


class BrokerMechanisms:
    """Those of a listener without SASL: brokers alone log in.  See ``Mechanisms`` of ``login``."""

    names = (scram.SHA_256.name,)

    def __init__(self, cluster: ClusterLogin) -> None:
        self._cluster = cluster

    def start(self, name: str) -> Started | None:
        return self._cluster.start() if name in (*self.names, CLUSTER_MECHANISM) else None


class ListenerMechanisms:
    """Those of one SASL listener.  See ``Mechanisms`` of ``login``.  Raises ConfigError."""

    def __init__(self, settings: ListenerSettings, context: MechanismContext, serves_brokers: bool = False) -> None:
        enabled = settings.get("sasl.enabled.mechanisms")
        setting = settings.name_of("sasl.enabled.mechanisms")
        unknown = [name for name in enabled if name not in _MECHANISMS]
        if unknown or not enabled:
            raise ConfigError(
                f"{setting} names {', '.join(unknown) or 'no mechanism'}: {', '.join(_MECHANISMS)} are served"
            )
        self.names: tuple[str, ...] = tuple(enabled)
        for name in self.names:
            # The look-up refuses every handler but Kafka's own: another one would let in other users than these.
            settings.get("sasl.server.callback.handler.class", name)
        self._starts: dict[str, Start] = {name: _MECHANISMS[name](name, settings, context) for name in self.names}
        self._max_session_ms = {name: settings.get("connections.max.reauth.ms", name) for name in self.names}
        self._cluster = context.cluster if serves_brokers else None

    def start(self, name: str) -> Started | None:
        if name == CLUSTER_MECHANISM and self._cluster is not None:
            return self._cluster.start()
        start = self._starts.get(name)
        return None if start is None else Started(start(), self._max_session_ms[name])


def _plain(name: str, settings: ListenerSettings, context: MechanismContext) -> Start:
    options = _options(name, settings, plain.LOGIN_MODULE)
    if options is None:
        raise ConfigError(
            f"{settings.own_name('sasl.jaas.config', name)} is not set: it names the users of PLAIN "
            f'({plain.LOGIN_MODULE} required user_<name>="<password>";)'
        )
    return partial(plain.PlainServer, plain.users_of(options))


def _scram(name: str, settings: ListenerSettings, context: MechanismContext) -> Start:
    _options(name, settings, scram.LOGIN_MODULE)  # needed by nobody here; what is there has to be right
    mechanism = scram.MECHANISMS[name]
    users, random, fake_key = context.users, context.random, context.fake_key
    tokens = context.tokens

    def find(user: str, is_token: bool) -> scram.Identity | NotYet:
        if is_token and tokens is not None:
            return tokens.find(mechanism, user)
        # Made for all, so that time tells nothing.
        fake = fake_credential(mechanism, fake_key, user, users.forms(mechanism))
        credential = None if is_token else users.credential(mechanism, user)
        return scram.Identity(fake, None) if credential is None else scram.Identity(credential, user)

    return lambda: scram.ScramServer(mechanism, find, random.randbytes(scram.NONCE_BYTES))


def _oauthbearer(name: str, settings: ListenerSettings, context: MechanismContext) -> Start:
    _options(
        name, settings, oauthbearer.LOGIN_MODULE
    )  # its options are those of clients; what is there has to be right
    url = settings.get("sasl.oauthbearer.jwks.endpoint.url", name)
    setting = settings.name_of("sasl.oauthbearer.jwks.endpoint.url", name)
    if not url:
        raise ConfigError(f"{setting} is not set: it says where the keys of OAUTHBEARER's tokens are")
    if not url.startswith(("https://", "http://", "file:///")):
        raise ConfigError(f"{setting} is no URL of https, http or file:///")
    for claim, expected, anything in (
        ("audience", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience"),
        ("issuer", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
    ):
        # A token is for somebody, and of somebody: what it has to say is set, or it is said that it does not matter.
        if not settings.get(expected, name) and not settings.get(anything, name):
            raise ConfigError(
                f"{settings.name_of(expected, name)} is not set: it says which {claim} a token has to name; "
                f"{settings.name_of(anything, name)}=true takes tokens of any {claim}"
            )
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        setting = settings.name_of("sasl.enabled.mechanisms")
        raise ConfigError(f"{setting}: OAUTHBEARER needs the extra: {how_to_install('oauth')}")
    from pybroker.security.bearer_tokens import BearerTokenValidator, Expectations
    from pybroker.security.key_sets import KeySource

    def of(own: str) -> Any:
        return settings.get(own, name)

    source = KeySource(
        url,
        of("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        of("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        of("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        of("sasl.login.connect.timeout.ms") or _FETCH_TIMEOUT_MS,
        of("sasl.login.read.timeout.ms") or _FETCH_TIMEOUT_MS,
    )
    expectations = Expectations(
        tuple(of("sasl.oauthbearer.expected.audience")),
        of("sasl.oauthbearer.expected.issuer") or None,
        of("sasl.oauthbearer.clock.skew.seconds"),
        of("sasl.oauthbearer.sub.claim.name"),
        of("sasl.oauthbearer.scope.claim.name"),
    )
    assert context.key_sets is not None
    validator = BearerTokenValidator(context.key_sets.get(source), expectations)
    return lambda: oauthbearer.OAuthBearerServer(validator.check)


def _options(name: str, settings: ListenerSettings, login_module: str) -> Mapping[str, str] | None:
    """The options of the mechanism's JAAS configuration; None where there is none."""
    setting = settings.own_name("sasl.jaas.config", name)
    if not settings.is_own("sasl.jaas.config", name):
        return None
    try:
        modules = jaas.parse(settings.get("sasl.jaas.config", name))
    except jaas.JaasError as error:
        raise ConfigError(f"{setting}: {error}") from error
    if len(modules) != 1:
        raise ConfigError(f"{setting}: JAAS config property contains {len(modules)} login modules, should be 1 module")
    (module,) = modules
    if module.name != login_module:
        raise ConfigError(f"{setting} names a login module that is not {name}'s, {login_module}")
    return module.options


_MECHANISMS: Final[dict[str, Callable[[str, ListenerSettings, MechanismContext], Start]]] = {
    plain.MECHANISM: _plain,
    scram.SHA_256.name: _scram,
    scram.SHA_512.name: _scram,
    oauthbearer.MECHANISM: _oauthbearer,
}
