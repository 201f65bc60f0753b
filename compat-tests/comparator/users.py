"""Users who log in: the second listener of the brokers under comparison, and connections that have logged in by it.

Owns: the settings of that listener, where it is, and the SASL exchanges, which are not recorded.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from harness.broker_probe import free_port, host_and_port

from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.wire import Connection
from pybroker.security.scram import ITERATIONS_MIN, SHA_256, ScramClient

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
    # Sessions of PLAIN end, and so are renewed; those of SCRAM end with a token alone.
    f"listener.name.{LISTENER.lower()}.plain.connections.max.reauth.ms": "600000",
    "delegation.token.secret.key": "the key of tokens",
    # What comes of logins is compared, and not how long guessing takes.
    "connection.failed.authentication.delay.ms": "0",
}
_BROKER_RESOURCE: Final = 4
_SALT: Final = b"salt-of-16-bytes"
_FENCE: Final = ("fence",)

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


def by_scram(name: str) -> Greet:
    """Log in as somebody whom ``make`` has made."""

    def greet(connection: Connection) -> None:
        client = scram_client(name)
        _ask(connection, "SaslHandshake", 1, mechanism=SHA_256.name)
        first = _ask(connection, "SaslAuthenticate", 2, auth_bytes=client.first())
        assert first["error_code"] == 0, first
        last = _ask(connection, "SaslAuthenticate", 2, auth_bytes=client.final(bytes(first["auth_bytes"])))
        assert last["error_code"] == 0, last

    return greet


def scram_client(name: str, password: str | None = None) -> ScramClient:
    """The client's side of an exchange; a user's password is its name."""
    secret = (name if password is None else password).encode()
    return ScramClient(SHA_256, name, lambda salt, count: SHA_256.salted(secret, salt, count), os.urandom(18))


@contextmanager
def made(broker: Broker, *names: str) -> Iterator[None]:
    """Users of SCRAM, who can log in, and who are gone in the end."""
    _alter(broker, names)
    # Kafka tells of users a moment before it lets them in; what is changed last is done last.
    _alter(broker, _FENCE)
    _alter(broker, _FENCE, are_made=False)
    try:
        yield
    finally:
        _alter(broker, names, are_made=False)


def _alter(broker: Broker, names: Sequence[str], *, are_made: bool = True) -> None:
    """Make users or delete them; the broker tells so when this returns."""
    named: list[dict[str, Any]] = [{"name": name, "mechanism": SHA_256.type} for name in names]
    upsertions = [
        {
            **each,
            "iterations": ITERATIONS_MIN,
            "salt": _SALT,
            "salted_password": SHA_256.salted(each["name"].encode(), _SALT, ITERATIONS_MIN),
        }
        for each in named
    ]
    changed = {"deletions": [], "upsertions": upsertions} if are_made else {"deletions": named, "upsertions": []}
    reply = broker.quietly("AlterUserScramCredentials", 0, **changed)
    assert all(each["error_code"] == 0 for each in reply["results"]), reply

    def is_told() -> bool:
        asked = [{"name": name} for name in names]
        reply = broker.quietly("DescribeUserScramCredentials", 0, users=asked)
        return all(bool(each["credential_infos"]) == are_made for each in reply["results"])

    broker.wait_until(is_told, f"users of SCRAM: {names}")


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
