"""Strangers who only hold a connection keep nobody out, and not for long."""

from __future__ import annotations

import socket
import ssl
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld
from harness.waiting import PATIENCE_S
from harness.wire import request_frame

from pybroker import limits
from pybroker.net import tls_connection
from pybroker.net.half_open import HALF_OPEN_MS, HalfOpenConnections
from pybroker.testing import Broker
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient
from tests.certificates import Authority

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'
HEADER = urlsafe_b64encode(b'{"alg":"RS256","kid":"one"}')


class Stranger:
    """Says nothing."""

    def __init__(self) -> None:
        self.end: str | None = None

    def give_up(self, reason: str) -> None:
        self.end = reason


def test_the_oldest_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HALF_OPEN_MAX", 2)
    half_open = HalfOpenConnections(VirtualWorld().env)
    first, second, third = strangers = [Stranger() for _ in range(3)]
    for stranger in strangers:
        half_open.add(stranger)
    assert first.end is not None
    assert (second.end, third.end, len(half_open)) == (None, None, 2)
    half_open.discard(first)
    half_open.discard(second)
    assert len(half_open) == 1


def test_each_goes_after_its_time_and_who_got_in_stays() -> None:
    world = VirtualWorld()
    half_open = HalfOpenConnections(world.env)
    first, second, guest = Stranger(), Stranger(), Stranger()
    half_open.add(first)
    half_open.add(guest)
    world.advance(HALF_OPEN_MS // 2)
    half_open.add(second)
    half_open.discard(guest)
    world.advance(HALF_OPEN_MS // 2)
    assert (first.end is None, second.end, guest.end) == (False, None, None)
    world.advance(HALF_OPEN_MS // 2)
    assert second.end is not None
    assert guest.end is None


def test_the_oldest_that_holds_anything_goes_when_all_of_them_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HALF_OPEN_BYTES_MAX", 100)
    half_open = HalfOpenConnections(VirtualWorld().env)
    _, first, second, third = strangers = [Stranger() for _ in range(4)]
    for stranger in strangers:
        half_open.add(stranger)
    half_open.hold(first, 40)
    half_open.hold(second, 40)
    half_open.hold(first, 60)
    assert [stranger.end for stranger in strangers] == [None] * 4
    half_open.hold(second, 0)
    half_open.hold(third, 40)
    assert [stranger.end for stranger in strangers] == [None] * 4
    half_open.hold(second, 1)
    assert [each.end is None for each in strangers] == [True, False, True, True]
    half_open.discard(third)
    half_open.hold(third, 1_000)  # who is in is no longer counted
    half_open.hold(second, 99)
    assert [each.end is None for each in strangers] == [True, False, True, True]
    half_open.hold(second, 101)
    assert [each.end is None for each in strangers] == [True, False, False, True]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(limits, "HALF_OPEN_MAX", 20)
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        yield broker


def test_a_crowd_that_never_says_who_it_is_keeps_nobody_out(broker: Broker) -> None:
    address = (broker.host, broker.port)
    with ExitStack() as stack:
        guest = stack.enter_context(WireClient(address))
        guest.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        guest.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2)
        crowd = [stack.enter_context(WireClient(address)) for _ in range(60)]
        for _ in range(3):
            with WireClient(address) as client:
                assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
                assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2).error_code == 0
        assert crowd[0].receive_payload() is None, "the oldest was closed"
        assert guest.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code, "who is in stays in"


def test_strangers_hold_no_more_than_their_bound_of_unfinished_requests(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HALF_OPEN_BYTES_MAX", 1 << 20)
    address = (broker.host, broker.port)
    unfinished = (500_000).to_bytes(4, "big") + bytes(400_000)
    with ExitStack() as stack:
        crowd = [stack.enter_context(WireClient(address)) for _ in range(6)]
        for stranger in crowd:
            stranger.send_raw(unfinished)
        for stranger in crowd[:3]:
            assert stranger.receive_payload() is None, "the oldest is closed"
        with WireClient(address) as client:
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2).error_code == 0


def announced_hello() -> bytes:
    """The beginning of a TLS client's first message, which is to be as long as OpenSSL takes."""
    return b"\x16\x03\x01\x00\x40" + b"\x01" + (131_000).to_bytes(3, "big") + bytes(60)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is closed but by the bound of bytes."""
    monkeypatch.setattr(limits, "HALF_OPEN_BYTES_MAX", 1 << 20)
    monkeypatch.setattr("pybroker.net.half_open.HALF_OPEN_MS", 1_000_000)


def the_oldest_are_closed(crowd: list[WireClient], closed: int) -> bool:
    return all(stranger.receive_payload() is None for stranger in crowd[:closed])


@pytest.mark.usefixtures("crowded")
def test_strangers_hold_no_more_than_their_bound_of_messages_of_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.pem("broker"))}
    context = ssl.create_default_context(cafile=str(authority.ca))
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker, ExitStack() as stack:
        address = (broker.host, broker.port)
        crowd = [stack.enter_context(WireClient(address)) for _ in range(8)]
        for stranger in crowd:
            stranger.send_raw(announced_hello())
        assert the_oldest_are_closed(crowd, 8 - limits.HALF_OPEN_BYTES_MAX // tls_connection.TLS_MESSAGE_BYTES)
        with (
            socket.create_connection(address, timeout=PATIENCE_S) as honest,
            context.wrap_socket(honest, server_hostname="localhost") as client,
        ):
            assert client.version() == "TLSv1.3"


@pytest.mark.usefixtures("crowded")
def test_strangers_hold_no_more_than_their_bound_of_client_ids(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HALF_OPEN_BYTES_MAX", 10 * 32_767 + 1_000)
    address = (broker.host, broker.port)
    with ExitStack() as stack:
        crowd = [stack.enter_context(WireClient(address)) for _ in range(15)]
        for stranger in crowd:
            stranger.send_raw(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, client_id="x" * 32_767))
            stranger.receive_payload()
        assert the_oldest_are_closed(crowd, 5)
        assert crowd[5].ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2).error_code == 0


@pytest.mark.usefixtures("crowded")
def test_strangers_hold_no_more_than_their_bound_of_tokens_whose_keys_are_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"http://127.0.0.1:{silent.getsockname()[1]}/keys",
            "sasl.oauthbearer.allow.unverified.audience": "true",
            "sasl.oauthbearer.allow.unverified.issuer": "true",
        }
        broker = stack.enter_context(Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0"))
        crowd = [stack.enter_context(WireClient((broker.host, broker.port))) for _ in range(6)]
        token = b"n,,\x01auth=Bearer " + HEADER + b"." + b"A" * 400_000 + b".AAAA\x01\x01"
        for stranger in crowd:
            stranger.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            stranger.send_raw(request_frame(SaslAuthenticateRequest(auth_bytes=token), 2))
        assert the_oldest_are_closed(crowd, 4)
        silent.close()  # whoever fetches keys is told so
