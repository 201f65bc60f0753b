"""SCRAM-SHA-256 between brokers: who knows the secret gets in, and nobody else does."""

from __future__ import annotations

from base64 import b64decode

import pytest

from pybroker.cluster.scram import ITERATIONS_MAX, MESSAGE_BYTES_MAX, ScramClient, ScramError, ScramServer

SECRET = b"of the cluster"


def exchange(client: ScramClient, server: ScramServer) -> None:
    client.finish(server.final(client.final(server.first(client.first()))))


def pair(client_secret: bytes = SECRET, server_secret: bytes = SECRET) -> tuple[ScramClient, ScramServer]:
    return ScramClient("broker-1", client_secret, b"c" * 18), ScramServer(server_secret, b"s" * 18, b"salt" * 4)


def test_two_that_know_the_secret_believe_each_other() -> None:
    exchange(*pair())


def test_the_exchange_is_that_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7677, section 3; its nonces are not ours, which are base64."""
    monkeypatch.setattr("pybroker.cluster.scram.b64encode", lambda data: _RFC.get(data) or _encode(data))
    client = ScramClient("user", b"pencil", b"client")
    server = ScramServer(b"pencil", b"server", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = server.first(client.first())
    assert server_first == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    client_final = client.final(server_first)
    assert client_final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.final(client_final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


_RFC = {b"client": b"rOprNGfwEbeRWgbNEkqO", b"server": b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"}


def _encode(data: bytes) -> bytes:
    import base64

    return base64.b64encode(data)


def test_a_client_that_does_not_know_the_secret_is_refused() -> None:
    client, server = pair(client_secret=b"another")
    with pytest.raises(ScramError, match="client"):
        exchange(client, server)


def test_a_server_that_does_not_know_the_secret_is_not_believed() -> None:
    client, _ = pair()
    _, impostor = pair(server_secret=b"another")
    impostor.first(client.first())
    with pytest.raises(ScramError, match="secret"):
        client.finish(b"v=" + b"A" * 43 + b"=")


def test_what_was_exchanged_before_proves_nothing_again() -> None:
    client, server = pair()
    first = client.first()
    final = client.final(server.first(first))
    server.final(final)
    with pytest.raises(ScramError):
        server.final(final)
    later = ScramServer(SECRET, b"another nonce", b"salt" * 4)
    later.first(first)
    with pytest.raises(ScramError):
        later.final(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"y,,n=u,r=x",
        b"n,,r=x,n=u",
        b"n,,n=u",
        b"n,,n=" + b"u" * MESSAGE_BYTES_MAX + b",r=x",
        b"\xff" * 10,
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        pair()[1].first(message)


@pytest.mark.parametrize("message", [b"", b"c=biws", b"c=biws,r=x,p=y", b"c=?,r=x,p=", b"\x00" * 9])
def test_a_final_message_that_is_none_is_refused(message: bytes) -> None:
    client, server = pair()
    server.first(client.first())
    with pytest.raises(ScramError):
        server.final(message)


@pytest.mark.parametrize("iterations", [b"1", b"-5", b"x", b"%d" % (ITERATIONS_MAX + 1)])
def test_a_server_cannot_have_its_client_work_for_long_or_too_little(iterations: bytes) -> None:
    client, server = pair()
    answer = server.first(client.first())
    with pytest.raises(ScramError, match="iterations"):
        client.final(answer[: answer.rindex(b"i=") + 2] + iterations)
