"""Producers and consumers of the commands: librdkafka's, which say of each record what became of it.

Owns: the settings that librdkafka is given, its clients' life, and the names of its errors.  Owns neither what is said
where no broker is reached (``reachability``) nor the clients that administer (``admin_client``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final, NamedTuple

import typer

from pybroker.cli.connection.client_settings import (
    ADDRESSES,
    ADDRESSES_ELSEWHERE,
    CLIENT_ID,
    Access,
    Address,
    ClientOptions,
    ClientSettings,
    canonical,
    checks_host_name,
    gathered,
    parse_addresses,
    parse_pairs,
)
from pybroker.cli.connection.reachability import reach
from pybroker.cli.connection.retries import PASSING_ERRORS
from pybroker.cli.records.record_format import Header
from pybroker.cli.terminal.failure import CommandFailed
from pybroker_protocol.errors import ErrorCode

# How long what was sent has to arrive where the command has failed for another reason, or is interrupted.
ABORTED_FLUSH_S: Final = 2.0

# librdkafka's own.
_MESSAGE_MAX_BYTES: Final = 1_000_000
# How often it is asked whether brokers that were gone are back.
_ASKED_EVERY_S: Final = 1.0
# By the client itself, which holds up the reader.
_ANSWERED_WITHIN_S: Final = 1.0
_CLOSED_WITHIN_S: Final = 5.0
# For who reads on, a leader that is still to be chosen passes, too, and a disk or a broker that is slow.
_PASSING: Final = PASSING_ERRORS | {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
}

_NO_TOKENS: Final = (
    "a login by a delegation token serves the commands that administer: librdkafka, by which records are sent "
    "and read, has no such login"
)
_log = logging.getLogger("librdkafka")
# Without which there is no consumer.
_LEAST: Final = {"group.id": CLIENT_ID}
# Settings that have an option of the command's own, by their names in librdkafka.
_OPTIONS: Final = {
    **dict.fromkeys(("acks", "request.required.acks", "enable.idempotence"), "--acks"),
    **dict.fromkeys(("compression.type", "compression.codec"), "--compression"),
}
# What is said to librdkafka otherwise, or heeded by the commands' own connections alone.
_NOT_LIBRDKAFKAS: Final = frozenset({"ssl.check.hostname", "bootstrap.timeout.ms"})


def is_known(name: str) -> bool:
    """Whether librdkafka has a setting; only the making of a client tells."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({name: ""}, logger=_log)
    except KafkaException as error:
        return "No such configuration property" not in error.args[0].str()
    return True


def library_settings(settings: ClientSettings, own: Mapping[str, str]) -> dict[str, Any]:
    """What librdkafka is given: the command's ``own`` settings, and over them those of the user."""
    texts = {**own, **settings.texts}
    given: dict[str, Any] = {name: text for name, text in texts.items() if name not in _NOT_LIBRDKAFKAS}
    if not checks_host_name(texts):
        given["ssl.endpoint.identification.algorithm"] = "none"
    if settings.tls is not None:
        pem = {
            "ssl.ca.pem": settings.tls.authorities,
            "ssl.certificate.pem": settings.tls.certificates,
            "ssl.key.pem": settings.tls.key,
            "ssl.key.password": settings.tls.key_password,
        }
        given |= {name: text for name, text in pem.items() if text}
    if settings.tokens is not None:
        given["oauth_cb"] = settings.tokens.with_expiry
    return given


class Watch:
    """Whether a cluster that was reached still is: librdkafka says that brokers go, and not that they are back.

    It is asked in a thread, which waits for an answer as long as at the start, while records are read.
    """

    def __init__(self, addresses: Sequence[Address], access: Access) -> None:
        # Asked where the client alone knows how to log in.
        self.client: Any = None
        self._addresses = addresses
        self._access = access
        self._gone_since_s: float | None = None
        self._last_error = ""
        self._asking: Thread | None = None
        self._asked_at_s = 0.0
        self._why: str | None = None

    def hear(self, error: Any) -> None:
        """librdkafka's ``error_cb``."""
        from confluent_kafka import KafkaError

        of_all = (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL)
        if error.code() in of_all:
            self._last_error = error.str()
            if self._gone_since_s is None:
                self._gone_since_s = time.monotonic()

    def see_record(self) -> None:
        """A record has come: the time without brokers begins anew.

        It may have been fetched before they went, and librdkafka does not say a second time that they are gone.
        """
        if self._gone_since_s is not None:
            self._gone_since_s = time.monotonic()
            self._why = None

    @property
    def is_out(self) -> bool:
        """Whether brokers were gone when it was last asked."""
        return self._gone_since_s is not None

    def outage(self) -> tuple[float, str] | None:
        """For how many seconds no broker lets this client in, and why; asked for now and then."""
        now_s = time.monotonic()
        if self._gone_since_s is None:
            return None
        is_asking = self._asking is not None and self._asking.is_alive()
        if not is_asking and now_s - self._asked_at_s >= _ASKED_EVERY_S:
            self._asked_at_s = now_s
            if self._access.is_known:
                self._asking = Thread(target=self._ask, daemon=True)
                self._asking.start()
            else:
                self._ask()
        since_s, why = self._gone_since_s, self._why
        return None if since_s is None or why is None else (now_s - since_s, why)

    def _ask(self) -> None:
        from confluent_kafka import KafkaException

        try:
            if self._access.is_known:
                reach(self._addresses, self._access)
            else:
                # Not in a thread: the client must not be closed meanwhile.
                self.client.list_topics(timeout=_ANSWERED_WITHIN_S)
        except CommandFailed as failed:
            self._why = str(failed)
        except KafkaException:
            self._why = self._last_error
        else:
            self._gone_since_s = self._why = None


def _made(client_class: Any, options: ClientOptions, own: Mapping[str, str]) -> tuple[Any, Watch, Mapping[str, Any]]:
    """A client of a cluster that has let the user in, and what it was given."""
    from confluent_kafka import Consumer, KafkaException

    for name in parse_pairs(options.properties, "-X").keys() & ADDRESSES:
        raise typer.BadParameter(f"-X {name}: {ADDRESSES_ELSEWHERE}")
    addresses = parse_addresses(options.bootstrap)
    settings = gathered(options, is_known)
    if settings.is_delegation_token:
        raise CommandFailed(_NO_TOKENS)
    access = settings.access()
    watch = Watch(addresses, access)
    given = library_settings(settings, own)
    given |= {"bootstrap.servers": ",".join(map(str, addresses)), "error_cb": watch.hear}
    given.setdefault("client.id", CLIENT_ID)
    try:
        client = client_class(given, logger=_log)
    except KafkaException as error:
        raise _unfit(error, client_class, options, own) from error
    watch.client = client
    try:
        reach(addresses, access, advises=True)
    except BaseException:
        if client_class is Consumer:
            client.close()
        raise
    return client, watch, given


def _unfit(error: Any, client_class: Any, options: ClientOptions, own: Mapping[str, str]) -> Exception:
    """For settings that librdkafka does not take: wrong use by a ``-X`` that is wrong by itself, or beside the rest."""
    pairs = parse_pairs(options.properties, "-X")
    for name, text in pairs.items():
        alone = {} if canonical(name) in _NOT_LIBRDKAFKAS else {canonical(name): text}
        if (of_one := _refusal(client_class, {**_LEAST, **alone})) is not None:
            return typer.BadParameter(f"-X {name}: {_told(of_one, name, text)}")
    for name in pairs:
        rest = [f"{other}={text}" for other, text in pairs.items() if other != name]
        if _refusal(client_class, library_settings(gathered(options._replace(properties=rest), is_known), own)) is None:
            return typer.BadParameter(f"-X {name}: {_told(error, name, pairs[name])}")
    return CommandFailed(_told(error))


def _refusal(client_class: Any, given: Mapping[str, Any]) -> Any:
    """What librdkafka says against settings, or None."""
    from confluent_kafka import Consumer, KafkaException

    try:
        client = client_class(dict(given), logger=_log)
    except KafkaException as error:
        return error
    if client_class is Consumer:
        client.close()
    return None


def _told(error: Any, name: str | None = None, value: str = "") -> str:
    """What librdkafka says, without what stands in front of it already: the name, of whose ``value`` it speaks."""
    reason: str = error.args[0].str().strip()
    for prefix in ("Failed to create producer: ", "Failed to create consumer: "):
        reason = reason.removeprefix(prefix)
    reason = reason.replace("No such configuration property: ", "unknown client setting ").replace('"', "'")
    if name is None:
        return reason
    if reason.startswith("unknown client setting"):
        reason = "unknown client setting"
    elif reason.startswith("Invalid value for configuration property"):
        reason = f"invalid value {value!r}"
    return f"{reason}; {_OPTIONS[canonical(name)]} sets it" if canonical(name) in _OPTIONS else reason


def producer(options: ClientOptions, own: Mapping[str, str]) -> tuple[Any, int]:
    """A ``confluent_kafka.Producer``, and how many bytes of a record it takes.

    Who uses it waits for what it has sent; see ``produce.Sender``.
    """
    from confluent_kafka import Producer

    client, _, given = _made(Producer, options, own)
    return client, int(given.get("message.max.bytes", _MESSAGE_MAX_BYTES))


@contextmanager
def consumer(options: ClientOptions, own: Mapping[str, str]) -> Iterator[tuple[Any, Watch]]:
    """A ``confluent_kafka.Consumer``, and whether its cluster is still there; leaving the block leaves the group."""
    from confluent_kafka import Consumer

    client, watch, _ = _made(Consumer, options, own)
    try:
        yield client, watch
    finally:
        # It leaves its group, and would wait for as long as a session for a coordinator that is gone.
        closing = Thread(target=client.close, daemon=True)
        closing.start()
        closing.join(_CLOSED_WITHIN_S)


class ConsumedRecord(NamedTuple):
    """What is known of a record; see ``record_format.Record``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @classmethod
    def of(cls, message: Any) -> ConsumedRecord:
        """A message of ``confluent_kafka`` that is no error."""
        kind, timestamp = message.timestamp()
        return cls(
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp if kind else -1,
            message.key(),
            message.value(),
            message.headers() or (),
        )


def passes(error: Any) -> bool:
    """Whether an error of librdkafka's passes by itself: a leader or a coordinator moves, or a broker starts anew."""
    from confluent_kafka import KafkaError

    of_transport = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD, KafkaError._RESOLVE)
    return bool(error.retriable()) or error.code() in of_transport or error.code() in _PASSING


def is_passing_error(error: Exception) -> bool:
    """``passes`` of an exception, for ``retried``."""
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and passes(error.args[0])
