"""Where the broker listens, and what it tells clients to connect to.

Owns: the syntax and the rules of ``listeners``, ``advertised.listeners``, ``listener.security.protocol.map`` and
``--listen``.  Owns no socket (``net``): a port 0 gets its number there, and ``Listener.advertised`` takes it.

Invariants: names and addresses are unique; a wildcard address is never advertised; controller listeners are left
out, because no controller is reached over a socket here.

Counterpart in Kafka: ``AbstractKafkaConfig.listenerListToEndPoints`` and ``SocketServerConfigs``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pybroker.config.schema import ConfigError, WrongArgument

_IPV6_WILDCARDS: Final = frozenset({"::", "0:0:0:0:0:0:0:0"})
_IPV4_WILDCARD: Final = "0.0.0.0"
WILDCARDS: Final = frozenset({"", _IPV4_WILDCARD, *_IPV6_WILDCARDS})
# In the order of their numbers on the wire (org.apache.kafka.common.security.auth.SecurityProtocol).
KNOWN_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOOPBACK: Final = "127.0.0.1"
_PORT_MAX: Final = 65_535

_ENDPOINT: Final = re.compile(r"(.*?)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):(-?[0-9]+)", re.ASCII)
_HOST_AND_PORT: Final = re.compile(r"(?:\[([0-9a-zA-Z\-%._:]*)\]|([^:\[\]]*)):([0-9]+)", re.ASCII)


class Listener(NamedTuple):
    """One listener.  ``host`` is where to bind ("" is every address), ``advertised_port`` -1 is the bound one."""

    name: str
    host: str
    port: int
    security_protocol: str
    advertised_host: str
    advertised_port: int

    @property
    def asks_who_it_is(self) -> bool:
        """Whether nothing is served before a SASL login."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def security_protocol_id(self) -> int:
        """Its number in Kafka's requests."""
        return KNOWN_PROTOCOLS.index(self.security_protocol)

    def advertised(self, bound_port: int) -> tuple[str, int]:
        """Host and port that clients connect to."""
        return self.advertised_host, bound_port if self.advertised_port < 0 else self.advertised_port


def bound_hosts(host: str) -> list[str] | None:
    """Where to bind a listener's ``host``; ``None`` is every address of every family that this machine has.

    That of IPv6 takes IPv4 as well, as in Java, whose sockets serve both.  Here each family has a socket of its own, so
    that a client of IPv4 keeps its address in quotas, ACLs and the log.
    """
    if host in _IPV6_WILDCARDS:
        return [host, _IPV4_WILDCARD]
    return [host] if host else None


class Settings(Protocol):
    """What is asked of the broker's settings (``BrokerConfig``)."""

    def __getitem__(self, name: str) -> Any: ...

    def get_list(self, name: str) -> tuple[str, ...]: ...

    def get_str(self, name: str) -> str: ...

    def is_set(self, name: str) -> bool: ...


class _Endpoint(NamedTuple):
    name: str
    host: str
    port: int


def listeners_of(config: Settings) -> list[Listener]:
    """The client listeners, in the order configured; raises ``ConfigError``."""
    controllers = {name.upper() for name in config.get_list("controller.listener.names")}
    protocols = _security_protocols(config.get_str("listener.security.protocol.map"))
    endpoints = [e for e in _endpoints("listeners", config.get_list("listeners")) if e.name not in controllers]
    if not endpoints:
        raise ConfigError("listeners names no listener for clients (controller listeners are skipped)")
    _refuse_shared_ports(endpoints)
    advertised = {e.name: e for e in _endpoints("advertised.listeners", config["advertised.listeners"] or ())}
    unknown = sorted(set(advertised) - {endpoint.name for endpoint in endpoints} - controllers)
    if unknown:
        raise ConfigError(f"advertised.listeners names {', '.join(unknown)}, which listeners does not define")
    return [_listener(endpoint, advertised.get(endpoint.name), protocols) for endpoint in endpoints]


def inter_broker_listener(config: Settings, listeners: Sequence[Listener]) -> str:
    """The name of the listener by which brokers reach each other.

    That of ``inter.broker.listener.name``; else, as in Kafka, the one that is called by the protocol of
    ``security.inter.broker.protocol``; else the first, so that a single broker needs neither.  Raises ``ConfigError``
    where both are set.
    """
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if config.is_set(by_name) and config.is_set(by_protocol):
        raise ConfigError(f"Only one of {by_name} and {by_protocol} should be set.")
    name = config[by_name] or config.get_str(by_protocol)
    names = [listener.name for listener in listeners]
    return name.upper() if name.upper() in names else names[0]


def settings_of_arguments(listen: Sequence[str], static: Mapping[str, str]) -> dict[str, str]:
    """The settings that ``--listen HOST:PORT`` (or ``NAME://HOST:PORT``) stands for; raises ``WrongArgument``.

    The first listener without a name is PLAINTEXT, the second PLAINTEXT_2, and so on.
    """
    endpoints: list[str] = []
    protocols: list[str] = []
    for number, argument in enumerate(listen, 1):
        named = _ENDPOINT.fullmatch(argument)
        match = _HOST_AND_PORT.fullmatch(argument)
        if named is not None:
            endpoints.append(argument)
            continue
        if match is None or int(match[3]) > _PORT_MAX:
            raise WrongArgument(f"--listen expects HOST:PORT (an IPv6 address in brackets), got '{argument}'")
        name = "PLAINTEXT" if number == 1 else f"PLAINTEXT_{number}"
        host = f"[{match[1]}]" if match[1] is not None else match[2]
        endpoints.append(f"{name}://{host}:{match[3]}")
        protocols.append(f"{name}:PLAINTEXT")
    settings = {"listeners": ",".join(endpoints)}
    if len(protocols) > 1:
        from pybroker.config.broker_settings import PROTOCOL_MAP

        configured = static.get("listener.security.protocol.map", PROTOCOL_MAP)
        added = [entry for entry in protocols if entry not in configured.split(",")]
        settings["listener.security.protocol.map"] = ",".join([configured, *added])
    return settings


def _listener(endpoint: _Endpoint, advertised: _Endpoint | None, protocols: Mapping[str, str]) -> Listener:
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise ConfigError(f"No security protocol defined for listener {endpoint.name}")
    if advertised is None:
        host = canonical_host_name() if endpoint.host in WILDCARDS else endpoint.host
        return Listener(*endpoint, protocol, host, -1)
    if advertised.host in WILDCARDS - {""}:
        raise ConfigError(
            f"advertised.listeners cannot use the nonroutable meta-address {advertised.host}. "
            "Use a routable IP address."
        )
    # Port 0 in advertised.listeners means the port that was bound, as without the setting.
    return Listener(*endpoint, protocol, advertised.host or canonical_host_name(), advertised.port or -1)


def canonical_host_name() -> str:
    """This machine's own name if that leads somewhere, else the loopback address."""
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return _LOOPBACK
    return name


def _endpoints(setting: str, texts: Sequence[str]) -> list[_Endpoint]:
    endpoints: list[_Endpoint] = []
    names: set[str] = set()
    for text in texts:
        match = _ENDPOINT.fullmatch(text)
        if match is None or not match[1]:
            raise ConfigError(f"{setting}: unable to parse '{text}', expected NAME://HOST:PORT")
        host = match[2] if match[2] is not None else match[3]
        port = int(match[4])
        if not 0 <= port <= _PORT_MAX:
            raise ConfigError(f"{setting}: port {port} of '{text}' is out of range")
        endpoint = _Endpoint(match[1].upper(), host, port)
        if endpoint.name in names:
            raise ConfigError(f"{setting}: each listener must have a different name, listeners: {','.join(texts)}")
        names.add(endpoint.name)
        endpoints.append(endpoint)
    return endpoints


def _refuse_shared_ports(endpoints: Sequence[_Endpoint]) -> None:
    """One address is bound once; IPv4 and IPv6 may share a port, unless one of them is bound to every address."""
    for later, endpoint in enumerate(endpoints):
        for former in endpoints[:later]:
            if endpoint.port and endpoint.port == former.port and _overlap(former.host.lower(), endpoint.host.lower()):
                every = endpoint.host or "every address"
                raise ConfigError(f"listeners: port {endpoint.port} of {every} appears twice")


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts have an address in common, as far as that is known without asking for their names."""
    hosts = {one, other}
    if _IPV4_WILDCARD in hosts and not any(":" in each for each in hosts):
        return True
    return one == other or not hosts.isdisjoint(WILDCARDS - {_IPV4_WILDCARD})


def _security_protocols(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(f"Error parsing configuration property 'listener.security.protocol.map': {entry}")
        if protocol.upper() not in KNOWN_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
        protocols[name.strip().upper()] = protocol.upper()
    return protocols
