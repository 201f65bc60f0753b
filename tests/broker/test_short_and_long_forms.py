"""Every request is answered, and alike, whichever path serves it: short, long, in pieces, at once or in steps.

Twins are two brokers of the same settings that are asked the same, one after another; the one gets each request as it
is, the other in a form of its own.  What differs by nature between two brokers is left out of the comparison.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from harness.wire import LENGTH, api_key_of, read_reply

from pybroker import limits
from pybroker.apis import APIS, Api
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.messages import request_class
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from pybroker_protocol.schema import Request, Struct, schema_of
from tests.broker.long_requests import TOPIC, short_request
from tests.broker.wire_client import WireClient
from tests.certificates import Authority
from tests.net.conftest import each_step_taking_a_turn, processor_of

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# At most sasl.server.max.receive.size, as a login's requests are.
PADDING_BYTES = limits.WHOLE_FRAME_BYTES + 1_000
HEADER_BYTES = 12  # length, key, version, correlation id
LOGIN = (17, 36)  # what is asked in the middle of a session ends it
BY_NATURE = frozenset(
    {
        "client_instance_id", "cluster_id", "current_leader", "current_voters", "directory_id",
        "expiry_timestamp", "finalized_features_epoch", "high_watermark", "hmac", "issue_timestamp",
        "last_caught_up_timestamp", "last_fetch_timestamp", "leader", "leader_epoch", "leader_id", "log_dir",
        "max_timestamp", "member_id", "members", "port", "replica_directory_id", "session_id",
        "session_lifetime_ms", "subscription_id", "throttle_time_ms", "timestamp", "token_id", "topic_id",
        "total_bytes", "usable_bytes",
    }
)  # fmt: skip


def tag(tagged: int, size: int) -> bytes:
    """One unknown tagged field, with the count in front."""

    def unsigned(value: int) -> bytes:
        written = bytearray()
        while value > 127:
            written.append(value & 127 | 128)
            value >>= 7
        return bytes([*written, value])

    return b"\x01" + unsigned(tagged) + unsigned(size) + bytes(size)


class Form(NamedTuple):
    """How a frame is sent.  ``padded``: where its length comes from; ``pieces``: the lengths of the first sends."""

    name: str
    padded: str = ""
    pieces: Sequence[int] = ()

    def frame(self, frame: bytes, api_key: int, version: int) -> bytes:
        """The frame in this form."""
        body = frame[len(LENGTH.pack(0)) :]
        is_flexible = codec.is_flexible(request_class(api_key), version)
        client_id_end = HEADER_BYTES - 4 + 2 + int.from_bytes(body[8:10], "big")
        if self.padded == "header" and is_flexible:
            assert body[client_id_end] == 0
            body = body[:client_id_end] + tag(999, PADDING_BYTES) + body[client_id_end + 1 :]
        elif self.padded == "client id":
            size = 32_000
            body = body[:8] + size.to_bytes(2, "big") + b"c" * size + body[client_id_end:]
        elif self.padded and is_flexible and body[-1] == 0:  # no tagged fields, and there is room for one
            body = body[:-1] + tag(99_999, PADDING_BYTES)
        elif self.padded:
            body += bytes(PADDING_BYTES)
        return LENGTH.pack(len(body)) + body

    def send(self, client: WireClient, frame: bytes) -> None:
        """By its pieces."""
        pos = 0
        for size in self.pieces:
            client.send_raw(frame[pos : pos + size])
            pos += size
        if pos < len(frame):
            client.send_raw(frame[pos:])


IN_PIECES = Form("with an unknown field in pieces", padded="body", pieces=[1, 2, 3, 60_000, 3, 70_000])
FORMS = (
    Form("byte by byte", pieces=[1] * 60),
    Form("with an unknown field", padded="body"),
    IN_PIECES,
    Form("with an unknown field in the header", padded="header"),
    Form("with a long client id", padded="client id"),
)
by_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


class Paces:
    """How far a long request comes in its turn."""

    @staticmethod
    @contextmanager
    def unhurried(broker: Broker) -> Iterator[None]:
        """As a rule it is over in its connection's share."""
        yield

    @staticmethod
    @contextmanager
    def step_by_step(broker: Broker) -> Iterator[None]:
        """Each step takes a whole share."""
        with each_step_taking_a_turn(broker):
            yield

    @staticmethod
    @contextmanager
    def behind_others(broker: Broker) -> Iterator[None]:
        """It waits for a place before it begins, and whatever is not tiny is large."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "LARGE_REQUESTS_BEGUN_MAX", 0)
            patch.setattr("pybroker.net.long_requests.MANY_LONG_REQUESTS", 0)
            patch.setattr("pybroker.net.long_requests.WHOLE_FRAME_BYTES_AMONG_MANY", 16)
            processor = processor_of(broker)
            all_of_them = (processor.long_requests, processor.logins.long_requests)
            for requests in all_of_them:
                requests.whole_frame_bytes = 16
            yield
            for requests in all_of_them:
                requests.whole_frame_bytes = limits.WHOLE_FRAME_BYTES


PACES = (Paces.unhurried, Paces.step_by_step, Paces.behind_others)
by_pace = pytest.mark.parametrize("pace", PACES, ids=lambda pace: pace.__name__)


class Twin:
    """One of two brokers, and a client that asks it in one form; ``client`` is None where its connection has ended."""

    def __init__(self, broker: Broker, protocol: str, authority: Authority, form: Form | None = None) -> None:
        self.broker, self.form, self._protocol, self._authority = broker, form, protocol, authority
        self.client: WireClient | None = None

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def ask(self, request: Request, version: int) -> Any:
        """The answer, as plain values; None where the connection ended."""
        if self.client is None:
            self.client = self._connected()
        return self._ask(self.client, request, version)

    def _ask(self, client: WireClient, request: Request, version: int) -> Any:
        key = api_key_of(type(request))
        frame = client.frame(request, version)
        if self.form is not None:
            frame = self.form.frame(frame, key, version)
        (self.form or Form("as it is")).send(client, frame)
        payload = client.receive_payload()
        if payload is None:
            client.close()
            self.client = None
            return None
        correlation_id = int.from_bytes(frame[8:12], "big")
        return plain(read_reply(key, version, payload, correlation_id))

    def _connected(self) -> WireClient:
        client = WireClient((self.broker.host, self.broker.port))
        if self._protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=str(self._authority.ca))
            client._socket = context.wrap_socket(client._socket, server_hostname="localhost")
            client._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._protocol.startswith("SASL"):
            self.client = client
            for answer in self.logged_in(client):
                assert answer is not None
                assert answer["error_code"] == 0, answer
        return client

    def logged_in(self, client: WireClient) -> Iterator[Any]:
        """The answers to the requests of a login."""
        yield self._ask(client, ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
        yield from self.login_anew(client)

    def login_anew(self, client: WireClient) -> Iterator[Any]:
        yield self._ask(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        yield self._ask(client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)


def plain(value: Any) -> Any:
    """A message without what differs by nature."""
    if isinstance(value, Struct):
        fields = {field.name: getattr(value, field.name) for field in schema_of(type(value)).fields}
        return {name: plain(each) for name, each in fields.items() if name not in BY_NATURE}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@contextmanager
def twins(protocol: str, authority: Authority, form: Form) -> Iterator[tuple[Twin, Twin]]:
    """The first is asked in short."""
    settings: dict[str, str | int] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.pem("broker")),
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": 3_600_000,
        "auto.create.topics.enable": False,
    }
    if protocol.startswith("SASL"):
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        settings[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"] = jaas
    with ExitStack() as stack:
        both = []
        for own_form in (None, form):
            broker = stack.enter_context(Broker(settings, listen=f"{protocol}://127.0.0.1:0"))
            broker.create_topic(TOPIC, partitions=2)
            twin = Twin(broker, protocol, authority, own_form)
            stack.callback(twin.close)
            both.append(twin)
        yield both[0], both[1]


def requests_of(twin: Twin, apis: Sequence[Api], *, every_version: bool) -> Iterator[tuple[Request, int]]:
    image = twin.broker._running().services.metadata.image
    topic_id = image.topics_by_name[TOPIC].topic_id
    for api in apis:
        first, last = api.versions
        for version in range(first, last + 1) if every_version else (first, last):
            yield short_request(api.key, version, topic_id), version


def differences(short: Twin, long: Twin, *, every_version: bool) -> Iterator[str]:
    apis = [api for api in APIS if api.key not in LOGIN]
    asked = zip(
        requests_of(short, apis, every_version=every_version),
        requests_of(long, apis, every_version=every_version),
        strict=True,
    )
    for (request, version), (same, _) in asked:
        answer, other = short.ask(request, version), long.ask(same, version)
        if answer is None or answer != other:
            yield f"{type(request).__name__} {version}: {answer} in short, {other} in this form"


@by_pace
def test_each_version_of_each_request_is_answered_alike(authority: Authority, pace: Any) -> None:
    with twins("PLAINTEXT", authority, IN_PIECES) as (short, long), pace(long.broker):
        assert not list(differences(short, long, every_version=True))


@by_form
def test_requests_are_answered_alike_in_each_form(authority: Authority, form: Form) -> None:
    with twins("PLAINTEXT", authority, form) as (short, long), Paces.behind_others(long.broker):
        assert not list(differences(short, long, every_version=False))


@pytest.mark.parametrize("protocol", LISTENERS[1:])
def test_requests_are_answered_alike_by_each_listener(authority: Authority, protocol: str) -> None:
    with twins(protocol, authority, IN_PIECES) as (short, long), Paces.step_by_step(long.broker):
        assert not list(differences(short, long, every_version=False))


@by_pace
@pytest.mark.parametrize(
    ("protocol", "form"),
    [*(("SASL_PLAINTEXT", form) for form in FORMS), ("SASL_SSL", IN_PIECES)],
    ids=lambda value: getattr(value, "name", value),
)
def test_each_request_of_a_login_is_answered_and_so_is_a_login_anew(
    authority: Authority, protocol: str, form: Form, pace: Any
) -> None:
    with twins(protocol, authority, form) as (_, long), pace(long.broker):
        assert long.ask(MetadataRequest(topics=None), 9)["brokers"], "it has logged in"
        assert long.client is not None
        assert [answer and answer["error_code"] for answer in long.login_anew(long.client)] == [0, 0]
        assert long.ask(MetadataRequest(topics=None), 9)["brokers"], "it has logged in anew"


@by_pace
def test_what_comes_with_a_login_is_answered_however_little_room_there_is(authority: Authority, pace: Any) -> None:
    form = Form("with an unknown field", padded="body")
    with twins("SASL_PLAINTEXT", authority, form) as (_, long), pace(long.broker):
        client, requests = WireClient((long.broker.host, long.broker.port)), login_and_more()
        with client:
            frames = [form.frame(client.frame(*asked), api_key_of(type(asked[0])), asked[1]) for asked in requests]
            budget = processor_of(long.broker).budget
            of_others = budget.bytes_max * 3 // 4  # so that little is read at once
            taken = long.broker._call(lambda _, done: done(budget.count_copy(of_others)))
            client.send_raw(b"".join(frames))
            for number, (request, version) in enumerate(requests, 1):
                payload = client.receive_payload()
                assert payload is not None, request
                read_reply(api_key_of(type(request)), version, payload, number)
            long.broker._call(lambda _, done: done(taken.release()))


def login_and_more() -> list[tuple[Request, int]]:
    """Whole requests, and more of them than a login holds before it is over."""
    return [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2),
        *[(MetadataRequest(topics=[]), 9)] * 2,
    ]
