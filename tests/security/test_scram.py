"""SCRAM: who knows the password gets in, nobody else does, and nobody learns who exists."""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import partial

import pytest

from pybroker.security.sasl import SaslError, SaslRefused
from pybroker.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    SHA_256,
    Identity,
    ScramClient,
    ScramMechanism,
    ScramServer,
    credential_of,
)
from pybroker.security.unknown_users import fake_credential

PASSWORD = b"pencil"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CREDENTIALS = {mechanism: credential_of(mechanism, PASSWORD, SALT) for mechanism in MECHANISMS.values()}
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)


def server_of(mechanism: ScramMechanism = SHA_256, nonce: bytes = b"s" * 18) -> ScramServer:
    def find(user: str, is_token: bool) -> Identity:
        if user in ("user", "a,b=c") and not is_token:
            return Identity(CREDENTIALS[mechanism], user)
        return Identity(fake_credential(mechanism, b"key", user, {}), None)

    return ScramServer(mechanism, find, nonce)


def client_of(user: str = "user", password: bytes = PASSWORD, mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(mechanism, user, lambda salt, count: mechanism.salted(password, salt, count), b"c" * 18)


def evaluate(server: ScramServer, token: bytes) -> bytes:
    answer = server.evaluate(token)
    assert isinstance(answer, bytes)
    return answer


def exchange(client: ScramClient, server: ScramServer) -> None:
    client.finish(evaluate(server, client.final(evaluate(server, client.first()))))


@each_mechanism
@pytest.mark.parametrize("user", ["user", "a,b=c"])
def test_who_knows_the_password_gets_in(mechanism: ScramMechanism, user: str) -> None:
    server = server_of(mechanism)
    exchange(client_of(user, mechanism=mechanism), server)
    assert server.user == user


def test_the_exchange_is_that_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7677, section 3; its nonces are not ours, which are base64."""
    nonces = {b"client": b"rOprNGfwEbeRWgbNEkqO", b"server": b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"}
    monkeypatch.setattr("pybroker.security.scram.b64encode", lambda data: nonces.get(data) or b64encode(data))
    client = ScramClient(SHA_256, "user", lambda salt, count: SHA_256.salted(PASSWORD, salt, count), b"client")
    server = server_of(nonce=b"server")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = evaluate(server, client.first())
    assert server_first == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    client_final = client.final(server_first)
    assert client_final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert evaluate(server, client_final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@each_mechanism
@pytest.mark.parametrize(("user", "password"), [("user", b"pencil2"), ("nobody", PASSWORD), ("user", b"")])
def test_who_does_not_know_it_is_asked_for_a_proof_and_refused(
    mechanism: ScramMechanism, user: str, password: bytes
) -> None:
    server = server_of(mechanism)
    with pytest.raises(SaslError) as caught:
        exchange(client_of(user, password, mechanism), server)
    assert not isinstance(caught.value, SaslRefused), "its client is told nothing of it"
    assert server.user is None


def test_a_server_that_does_not_know_of_the_password_is_not_believed() -> None:
    client = client_of()
    client.final(evaluate(server_of(), client.first()))
    with pytest.raises(SaslError, match="secret"):
        client.finish(b"v=" + b"A" * 43 + b"=")


def test_what_was_exchanged_before_proves_nothing_again() -> None:
    client, server = client_of(), server_of()
    final = client.final(evaluate(server, client.first()))
    evaluate(server, final)
    with pytest.raises(SaslError):
        evaluate(server, final)
    later = server_of(nonce=b"another nonce")
    evaluate(later, client.first())
    with pytest.raises(SaslError):
        evaluate(later, final)


def test_there_is_one_try_for_each_exchange() -> None:
    client, server = client_of(), server_of()
    final = client.final(evaluate(server, client.first()))
    with pytest.raises(SaslError):
        evaluate(server, final[:-4] + b"AAA=")
    with pytest.raises(SaslError):
        evaluate(server, final)


def test_a_nonce_that_is_not_extended_is_refused_by_both_sides() -> None:
    client, server = client_of(), server_of()
    first = evaluate(server, client.first())
    own = b64encode(b"c" * 18)
    with pytest.raises(SaslError, match="nonce"):
        client.final(first.replace(b64encode(b"s" * 18), b"", 1))
    with pytest.raises(SaslError, match="nonce"):
        evaluate(server, b"c=biws,r=" + own + b",p=" + b"A" * 43 + b"=")


def test_an_exchange_for_a_delegation_token_is_no_users() -> None:
    client = ScramClient(SHA_256, "user", partial(SHA_256.salted, PASSWORD), b"c" * 18, is_token=True)
    server = server_of()
    answer = evaluate(server, client.first())
    with pytest.raises(SaslError, match="proof"):
        evaluate(server, client.final(answer))


def test_who_wants_to_be_somebody_else_is_told_so() -> None:
    with pytest.raises(SaslRefused, match="authorization id"):
        evaluate(server_of(), b"n,a=admin,n=user,r=x")
    assert evaluate(server_of(), b"n,a=user,n=user,r=x")


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"y,,n=u,r=x", b"p=tls-unique,,n=u,r=x", b"n,,r=x,n=u", b"n,,n=u", b"n,,n=,r=x", b"n,,n=u,r=",
     b"n,,n=a=b,r=x", b"n,,n=a=3Z,r=x", b"n,x,n=u,r=x", b"\xff" * 10, b"n,,n=\xff,r=x", b"," * 100_000,
     b"n,,n=u,r=" + b"x" * 4096],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        evaluate(server_of(), message)


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_final_message_that_is_cut_is_refused(cut: int) -> None:
    client, server = client_of(), server_of()
    final = client.final(evaluate(server, client.first()))
    with pytest.raises(SaslError):
        evaluate(server, final[:cut])
    assert server.user is None


@pytest.mark.parametrize("binding", [b"", b"eSws", b"biwxLA==", b"?"])
def test_a_channel_binding_that_is_not_the_first_messages_is_refused(binding: bytes) -> None:
    client, server = client_of(), server_of()
    final = client.final(evaluate(server, client.first()))
    with pytest.raises(SaslError):
        evaluate(server, final.replace(b"c=biws", b"c=" + binding))


@pytest.mark.parametrize("iterations", [b"1", b"-5", b"x", b"%d" % (16 * ITERATIONS_MIN + 1)])
def test_a_server_cannot_have_its_client_work_for_long_or_too_little(iterations: bytes) -> None:
    client = client_of()
    answer = evaluate(server_of(), client.first())
    with pytest.raises(SaslError, match="iterations"):
        client.final(answer[: answer.rindex(b"i=") + 2] + iterations)


def test_a_credential_shows_nothing_of_itself() -> None:
    assert repr(CREDENTIALS[SHA_256]) == "ScramCredential([hidden])"
