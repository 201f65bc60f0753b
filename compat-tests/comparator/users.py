"""Users who log in: the second listener of the brokers under comparison, and connections that have logged in by it.

Owns: the settings of that listener, where it is, and the SASL exchanges, which are not recorded.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from harness.broker_probe import free_port, host_and_port

from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.wire import Connection
from pybroker.security.scram import SHA_256, ScramClient

LISTENER: Final = "SASL_PLAINTEXT"
USERS: Final = ("alice", "bob", "carol")
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required "
    + " ".join(f'user_{name}="{name}"' for name in USERS)
    + ";",
    f"listener.name.{LISTENER.lower()}.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "delegation.token.secret.key": "the key of tokens",
}
_BROKER_RESOURCE: Final = 4

Greet = Callable[[Connection], None]


def new_listener() -> str:
    """Its URL on a port that is free."""
    return f"{LISTENER}://127.0.0.1:{free_port()}"


def address_of(broker: Broker) -> tuple[str, int]:
    """Where the listener is, by what the broker says of its settings."""
    asked = {"resource_type": _BROKER_RESOURCE, "resource_name": "1", "configuration_keys": ["listeners"]}
    (result,) = broker.quietly("DescribeConfigs", 4, resources=[asked])["results"]
    (entry,) = result["configs"]
    (url,) = (each for each in entry["value"].split(",") if each.startswith(f"{LISTENER}://"))
    return host_and_port(url.removeprefix(f"{LISTENER}://"))


@contextmanager
def logged_in(broker: Broker, greet: Greet) -> Iterator[Broker]:
    """The same broker by its second listener; what is asked of either is recorded in one place."""
    with Broker(address_of(broker), broker.steps, greet).opened() as known:
        yield known


def by_password(name: str) -> Greet:
    """Log in as one of ``USERS``."""

    def greet(connection: Connection) -> None:
        _ask(connection, "SaslHandshake", 1, mechanism="PLAIN")
        assert _ask(connection, "SaslAuthenticate", 2, auth_bytes=f"\0{name}\0{name}".encode())["error_code"] == 0

    return greet


def by_token(token_id: str, hmac: bytes) -> Greet:
    """Log in as the owner of a delegation token."""

    def greet(connection: Connection) -> None:
        assert log_in_by_token(connection, token_id, hmac)["error_code"] == 0

    return greet


def log_in_by_token(connection: Connection, token_id: str, hmac: bytes) -> Tree:
    """The answer to the last step of the login, or to the first if that fails."""
    password = b64encode(hmac)
    client = ScramClient(SHA_256, token_id, lambda salt, count: SHA_256.salted(password, salt, count), b"c" * 18)
    client._first_bare += b",tokenauth=true"
    _ask(connection, "SaslHandshake", 1, mechanism=SHA_256.name)
    first = _ask(connection, "SaslAuthenticate", 2, auth_bytes=client.first())
    if first.get("error_code") != 0:
        return first
    return _ask(connection, "SaslAuthenticate", 2, auth_bytes=client.final(bytes(first["auth_bytes"])))


def _ask(connection: Connection, api: str, version: int, **fields: Tree) -> Tree:
    return connection.receive(api, version, connection.send(api, version, fields))
