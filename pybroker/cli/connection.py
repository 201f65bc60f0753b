"""Clients for the commands: kafka-python's admin client, producer and consumer with the user's settings.

Owns: the translation of ``-X key=value`` into kafka-python's keyword arguments, time-outs that suit a person who
waits, and the retry of answers that Kafka calls retriable.  Every client is a context manager and is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import typer

from pybroker.cli.failure import CommandFailed

T = TypeVar("T")

# A person at a prompt should learn in seconds that nobody listens there; kafka-python would try for half a minute.
BOOTSTRAP_TIMEOUT_MS = 5_000

# How long a producer whose command has failed goes on delivering what it had taken.
ABORTED_CLOSE_S = 5.0

# How long a retriable answer (a coordinator that still loads, a leader not yet elected) is asked for again.
RETRY_TIMEOUT_S = 20.0
RETRY_BACKOFF_S = 0.1

# librdkafka's names for what kafka-python calls otherwise; every other name differs by its dots only.
ALIASES: Mapping[str, str] = {
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


class ClientOptions(NamedTuple):
    """What every command is told of its client: addresses, ``-X KEY=VALUE``, and a file, over which
    those and the command's own options win."""

    bootstrap: str
    properties: Sequence[str] = ()
    file: str | None = None


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dict, in order; the value may be empty and may hold further ``=``.

    Raises ``typer.BadParameter``.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{what} must be KEY=VALUE, got {text!r}")
        pairs[name] = value
    return pairs


def coerce(value: str, default: Any) -> Any:
    """``value`` in the type of kafka-python's default for the same setting."""
    if isinstance(default, bool):
        return value.strip().lower() in {"true", "1", "yes"}
    if isinstance(default, (int, float)):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value


def client_config(properties: Iterable[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """kafka-python's keyword arguments for the user's ``-X`` properties.

    Raises ``CommandFailed`` for a name that this kind of client does not have, and for a value of the wrong type.
    """
    config: dict[str, Any] = {}
    for name, value in parse_pairs(properties, "-X").items():
        argument = ALIASES.get(name, name.replace(".", "_"))
        if argument not in defaults:
            raise CommandFailed(f"unknown client setting {name!r}")
        try:
            # The only number of Kafka's that has a name, too.
            config[argument] = value if (argument, value) == ("acks", "all") else coerce(value, defaults[argument])
        except ValueError:
            raise CommandFailed(f"client setting {name!r} does not take {value!r}") from None
    return config


def file_config(path: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """kafka-python's keyword arguments for a file of Kafka's client settings; CommandFailed."""
    from pybroker.cli.client_file import file_settings

    settings = file_settings(path, lambda name: ALIASES.get(name, name.replace(".", "_")) in defaults)
    texts = [f"{name}={value}" for name, value in settings.texts.items()]
    return {**client_config(texts, defaults), **settings.arguments}


def _open(client_class: Any, options: ClientOptions, own: Mapping[str, Any]) -> Any:
    from kafka.errors import KafkaError

    bootstrap, defaults = options.bootstrap, client_class.DEFAULT_CONFIG
    addresses = [address.strip() for address in bootstrap.split(",") if address.strip()]
    if not addresses:
        raise CommandFailed(f"--bootstrap (or PYBROKER_BOOTSTRAP) names no broker: {bootstrap!r}")
    of_file = {} if options.file is None else file_config(options.file, defaults)
    of_options = client_config(options.properties, defaults)
    if "ssl_context" in of_file and any(name.startswith("ssl_") for name in of_options):
        raise CommandFailed(f"-X of TLS and the stores of {options.file} exclude each other: name all in the file")
    config = {
        "bootstrap_servers": addresses,
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "client_id": "pybroker",
        **of_file,
        # What the command's own options say, and leave open.
        **{name: value for name, value in own.items() if value is not None or name not in of_file},
        **of_options,
    }
    try:
        return client_class(**config)
    except RuntimeError as error:
        # The library's way to say that a codec's package is not installed.
        raise CommandFailed(str(error)) from error
    except KafkaError as error:
        raise CommandFailed(f"no broker answers at {bootstrap} ({type(error).__name__})") from error


@contextmanager
def admin_client(options: ClientOptions) -> Iterator[Any]:
    """A ``KafkaAdminClient``."""
    from kafka import KafkaAdminClient

    client = _open(KafkaAdminClient, options, {})
    try:
        yield client
    finally:
        client.close()


@contextmanager
def producer(options: ClientOptions, **config: Any) -> Iterator[Any]:
    """A ``KafkaProducer``; when the block raises, what was sent before has a few seconds to arrive."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError

    client = _open(KafkaProducer, options, config)
    try:
        yield client
    except BaseException:
        with suppress(KafkaTimeoutError):
            client.close(timeout=ABORTED_CLOSE_S)
        raise
    client.close()


@contextmanager
def consumer(options: ClientOptions, **config: Any) -> Iterator[Any]:
    """A ``KafkaConsumer``; leaving the block commits (with a group) and leaves the group."""
    from kafka import KafkaConsumer

    client = _open(KafkaConsumer, options, config)
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
