"""The client of the commands that administer: kafka-python's, with the user's settings.

Owns: the translation of settings into kafka-python's keyword arguments, and the retry of answers that Kafka calls
retriable.  Producers and consumers are librdkafka's (``data_clients``); this one is what is left of kafka-python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pybroker.cli.client_settings import CLIENT_ID, ClientOptions, gathered, parse_addresses
from pybroker.cli.failure import CommandFailed
from pybroker.cli.reach import reach

if TYPE_CHECKING:
    from pybroker.cli.bearer_logins import BearerTokens

T = TypeVar("T")

# A person at a prompt should learn in seconds that nobody listens there; kafka-python would try for half a minute.
BOOTSTRAP_TIMEOUT_MS = 5_000

# How long a retriable answer (a coordinator that still loads, a leader not yet elected) is asked for again.
RETRY_TIMEOUT_S = 20.0
RETRY_BACKOFF_S = 0.1

# librdkafka's names for what kafka-python calls otherwise; every other name differs by its dots only.
ALIASES: Mapping[str, str] = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def coerce(value: str, default: Any) -> Any:
    """``value`` in the type of kafka-python's default for the same setting."""
    if isinstance(default, bool):
        return value.strip().lower() in {"true", "1", "yes"}
    if isinstance(default, (int, float)):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value


def client_config(texts: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """kafka-python's keyword arguments for settings by Kafka's or librdkafka's names.

    Raises a usage error for a name that this kind of client does not have, and for a value of the wrong type.
    """
    config: dict[str, Any] = {}
    for name, value in texts.items():
        argument = _argument(name)
        if argument not in defaults:
            raise typer.BadParameter(f"-X {name}: unknown client setting {name!r}")
        try:
            config[argument] = coerce(value, defaults[argument])
        except ValueError:
            raise typer.BadParameter(f"the client setting {name!r} does not take {value!r}") from None
    return config


def _argument(name: str) -> str:
    return ALIASES.get(name, name.replace(".", "_"))


def _token_provider(tokens: BearerTokens) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return tokens.token()

    return Provider()


@contextmanager
def admin_client(options: ClientOptions) -> Iterator[Any]:
    """A ``KafkaAdminClient`` of a cluster that has let the user in."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    addresses, defaults = parse_addresses(options.bootstrap), KafkaAdminClient.DEFAULT_CONFIG
    settings = gathered(options, lambda name: _argument(name) in defaults)
    config: dict[str, Any] = {
        "bootstrap_servers": [str(address) for address in addresses],
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "client_id": CLIENT_ID,
        **client_config(settings.texts, defaults),
    }
    if settings.tls is not None:
        config["ssl_context"] = settings.tls.context
    if settings.tokens is not None:
        config["sasl_oauth_token_provider"] = _token_provider(settings.tokens)
    reach(addresses, settings.access())
    try:
        client = KafkaAdminClient(**config)
    except KafkaError as error:
        raise CommandFailed(f"no broker answers at {options.bootstrap} ({type(error).__name__})") from error
    try:
        yield client
    finally:
        client.close()


def retried(call: Callable[[], T], timeout_s: float = RETRY_TIMEOUT_S, *, finds_brokers: bool = False) -> T:
    """``call()``, again while it raises what Kafka calls retriable, until ``timeout_s`` is over.

    ``finds_brokers``: it finds out which brokers run and asks those, of which one may be gone when it is asked.
    """
    from kafka.errors import RetriableError, UnknownBrokerIdError

    passing = (RetriableError, UnknownBrokerIdError) if finds_brokers else (RetriableError,)
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except passing:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_BACKOFF_S)
