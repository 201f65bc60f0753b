"""Logins by people who are not whom they say: replayed, cut, mixed up, out of turn, and slow."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until

from pybroker.net import half_open
from pybroker.security.plain import LOGIN_MODULE as PLAIN_MODULE
from pybroker.security.scram import SHA_256, ScramClient
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient

SCRAM, PLAIN = "SCRAM-SHA-256", "PLAIN"
JAAS = f'{PLAIN_MODULE} required user_alice="secret-1" user_bob="secret-2";'
SETTINGS: dict[str, str | int] = {
    "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": 20,
    "connections.max.reauth.ms": 60_000,  # without it nobody logs in anew
}
ALICE, BOB = b"\0alice\0secret-1", b"\0bob\0secret-2"
PASSWORD, SALT, ITERATIONS = b"secret-3", b"\xfe" * 40, 8192
ANY_TOPIC = MetadataRequest(topics=None)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With the SCRAM users carol and dave."""
    with Broker(SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        with connected(broker) as client:
            assert handshaken(client, PLAIN) == 0
            assert said(client, ALICE).error_code == 0
            salted = SHA_256.salted(PASSWORD, SALT, ITERATIONS)
            upsertions = [
                ScramCredentialUpsertion(
                    name=user, mechanism=1, iterations=ITERATIONS, salt=SALT, salted_password=salted
                )
                for user in ("carol", "dave")
            ]
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
            assert [result.error_code for result in client.ask(request, 0).results] == [0, 0]
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with connected(broker) as client:
        yield client


def connected(broker: Broker) -> WireClient:
    return WireClient((broker.host, broker.port))


def handshaken(client: WireClient, mechanism: str = SCRAM, version: int = 1) -> int:
    code: int = client.ask(SaslHandshakeRequest(mechanism=mechanism), version).error_code
    return code


def said(client: WireClient, token: bytes) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def scram_client(user: str = "carol", password: bytes = PASSWORD, nonce: bytes = b"c" * 18) -> ScramClient:
    return ScramClient(SHA_256, user, lambda salt, count: SHA_256.salted(password, salt, count), nonce)


def begun(client: WireClient, scram: ScramClient) -> bytes:
    """The server's first message."""
    assert handshaken(client) == 0
    return bytes(said(client, scram.first()).auth_bytes)


def is_over(client: WireClient) -> bool:
    """Nothing more is served, and the connection ends."""
    client.send(ANY_TOPIC, 9)
    return client.receive() is None


# --- replayed and cut ------------------------------------------------------------------------------------------------


def test_an_exchange_that_was_overheard_opens_no_other_connection(broker: Broker) -> None:
    scram = scram_client()
    with connected(broker) as victim:
        final = scram.final(begun(victim, scram))
        scram.finish(bytes(said(victim, final).auth_bytes))
        assert victim.ask(ANY_TOPIC, 9).brokers
    with connected(broker) as thief:
        begun(thief, scram)
        assert said(thief, final).error_code == FAILED
        assert is_over(thief)


def test_the_proof_of_one_connection_is_none_on_another_that_is_open_at_the_same_time(broker: Broker) -> None:
    scram = scram_client()
    with connected(broker) as one, connected(broker) as other:
        final = scram.final(begun(one, scram))
        begun(other, scram)
        assert said(other, final).error_code == FAILED
        scram.finish(bytes(said(one, final).auth_bytes))
        assert one.ask(ANY_TOPIC, 9).brokers, "whose it is notices nothing"


@pytest.mark.parametrize(
    "forged",
    [
        lambda final: final[: len(final) // 2],
        lambda final: final[:-1],
        lambda final: final + b"A",
        lambda final: b"",
        lambda final: final.replace(b",p=", b",x=1,p="),
        lambda final: final + b",p=" + b"A" * 43 + b"=",
        lambda final: b"c=biws," + final,
    ],
    ids=["half", "one byte less", "one more", "nothing", "an extension nobody signed", "two proofs", "two bindings"],
)
def test_a_proof_that_is_cut_or_lengthened_ends_the_login(client: WireClient, forged: Callable[[bytes], bytes]) -> None:
    scram = scram_client()
    final = scram.final(begun(client, scram))
    refused = said(client, forged(final))
    assert refused.error_code == FAILED
    assert "carol" not in refused.error_message
    assert is_over(client)


def test_a_nonce_that_is_not_the_servers_or_not_extended_proves_nothing(client: WireClient) -> None:
    scram = scram_client()
    first = begun(client, scram)
    nonce = first.split(b",")[0][2:]
    own = nonce[:24]
    assert said(client, scram.final(first).replace(nonce, own)).error_code == FAILED
    assert is_over(client)


def test_the_server_has_another_nonce_each_time(broker: Broker) -> None:
    nonces = set()
    for _ in range(20):
        with connected(broker) as client:
            nonces.add(begun(client, scram_client()).split(b",")[0])
    assert len(nonces) == 20


@pytest.mark.parametrize("size", [1, 4, 9, 20])
def test_who_leaves_in_the_middle_of_a_message_leaves_nothing(broker: Broker, size: int) -> None:
    sockets = broker._running()._sockets
    assert sockets is not None
    half_open = sockets.processor.logins.half_open
    with connected(broker) as client:
        begun(client, scram_client())
        client.send_raw(client.frame(SaslAuthenticateRequest(auth_bytes=b"x" * 100), 2)[:size])
    wait_until(lambda: len(half_open) == 0, "it is forgotten")


# --- mixed up and out of turn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_out_of_turn", "version"),
    [
        (SaslHandshakeRequest(mechanism=PLAIN), 1),
        (SaslHandshakeRequest(mechanism=SCRAM), 0),
        (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
        (ApiVersionsRequest(), 0),
    ],
    ids=["another mechanism", "the same anew", "ApiVersions", "ApiVersions of old"],
)
@pytest.mark.parametrize("tokens", [0, 1])
def test_another_request_in_the_middle_is_told_so_and_ends_the_login(
    client: WireClient, request_out_of_turn: Any, version: int, tokens: int
) -> None:
    scram = scram_client()
    assert handshaken(client) == 0
    final = b""
    if tokens:
        final = scram.final(bytes(said(client, scram.first()).auth_bytes))
    client.send(request_out_of_turn, version)
    client.send(SaslAuthenticateRequest(auth_bytes=final or scram.first()), 2)
    assert client.receive().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.receive() is None, "what would go on is not served"


def test_no_other_request_is_as_much_as_decoded_in_the_middle(client: WireClient) -> None:
    handshaken(client)
    client.send_raw(struct.pack(">ihhih", 200, 3, 9, 1, -1) + b"\xff" * 190)
    assert client.receive_payload() is None


def test_bare_tokens_and_requests_do_not_mix(client: WireClient) -> None:
    assert handshaken(client, PLAIN, 0) == 0
    client.send(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert client.receive() is None, "a request is no token"


def test_requests_behind_a_failing_login_are_never_served(client: WireClient) -> None:
    frames = [
        client.frame(SaslHandshakeRequest(mechanism=PLAIN), 1),
        client.frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2),
        client.frame(SaslHandshakeRequest(mechanism=PLAIN), 1),
        client.frame(SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        *(client.frame(ANY_TOPIC, 9) for _ in range(50)),
    ]
    client.send_raw(b"".join(frames))
    assert client.receive_payload() is not None
    refused = client.receive_payload()
    assert refused is not None
    assert struct.unpack(">i", refused[:4])[0] == 2
    assert client.receive_payload() is None


@pytest.mark.parametrize("user", ["dave", "nobody"])
def test_a_principal_does_not_change_as_it_logs_in_anew(client: WireClient, user: str) -> None:
    scram = scram_client()
    scram.finish(bytes(said(client, scram.final(begun(client, scram))).auth_bytes))
    other = scram_client(user)
    client.send(SaslHandshakeRequest(mechanism=SCRAM), 1)
    assert client.receive().error_code == 0
    refused = said(client, other.final(bytes(said(client, other.first()).auth_bytes)))
    assert refused.error_code == FAILED
    assert is_over(client), "neither as the one nor as the other"


def test_nothing_is_served_in_the_middle_of_a_login_anew(client: WireClient) -> None:
    assert handshaken(client, PLAIN) == 0
    assert said(client, ALICE).error_code == 0
    assert handshaken(client, PLAIN) == 0
    assert is_over(client)


# --- who exists ------------------------------------------------------------------------------------------------------


def test_what_is_asked_of_somebody_who_does_not_exist_looks_like_what_is_asked_of_who_does(broker: Broker) -> None:
    def asked(user: str) -> tuple[int, bytes]:
        with connected(broker) as client:
            _, salt, iterations = begun(client, scram_client(user)).split(b",")
            return len(salt), iterations

    real = asked("carol")
    assert real[1] == b"i=%d" % ITERATIONS
    assert {asked(user) for user in ("nobody", "root", "carol2", "дave")} == {real}


def test_who_does_not_exist_has_the_same_salt_each_time(broker: Broker) -> None:
    salts = set()
    for user in ("nobody", "nobody", "somebody"):
        with connected(broker) as client:
            salts.add(begun(client, scram_client(user)).split(b",")[1])
    assert len(salts) == 2


# --- slow ------------------------------------------------------------------------------------------------------------


def test_who_takes_none_of_its_replies_before_it_has_logged_in_is_let_go(broker: Broker) -> None:
    asked = (
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff" * 1_000
    )  # ApiVersions, to which everybody is told some hundred bytes
    with socket.create_connection((broker.host, broker.port)) as deaf:
        deaf.setblocking(False)
        unsent = asked

        def is_let_go() -> bool:
            nonlocal unsent
            try:
                unsent = unsent[deaf.send(unsent) :] or asked
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            return False

        wait_until(is_let_go, "it is let go", patience_s=PATIENCE_S)


def test_a_client_that_trickles_its_login_has_no_more_time_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open, "HALF_OPEN_MS", 400)
    began = time.monotonic()
    with (
        Broker(SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker,
        socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as slow,
    ):
        frame = struct.pack(">i", 500_000)
        slow.settimeout(0.02)
        ended = False
        while not ended and time.monotonic() - began < PATIENCE_S:
            try:
                slow.sendall(frame[:1] or b"x")
                frame = frame[1:]
                ended = slow.recv(1) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                ended = True
        assert ended
        assert time.monotonic() - began > 0.3
