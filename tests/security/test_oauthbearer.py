"""OAUTHBEARER: the client's message, and what is said of a token that is not accepted."""

from __future__ import annotations

import re

import pytest

from pybroker.security.oauthbearer import (
    INVALID_TOKEN,
    BearerToken,
    InvalidToken,
    OAuthBearerServer,
    parse,
)
from pybroker.security.sasl import NotYet, SaslError, SaslRefused

ACCEPTED = BearerToken("alice", 1_000)


def message(token: str = "abc.def.ghi", header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


def check(token: str) -> BearerToken | NotYet:
    if token == "good":
        return ACCEPTED
    raise InvalidToken("it is not good")


@pytest.mark.parametrize(
    ("data", "token", "authorization_id"),
    [
        (message(), "abc.def.ghi", ""),
        (message(header="n,a=alice,"), "abc.def.ghi", "alice"),
        (message(header="n,a=a=2Cb=3Dc,"), "abc.def.ghi", "a=2Cb=3Dc"),
        (message(more="auth=Bearer other\x01"), "other", ""),
        (message(more="x=1\x01x=2\x01"), "abc.def.ghi", ""),
        (message(more="traceId=123\x01other=x=y z\x01"), "abc.def.ghi", ""),
        (message().replace(b"Bearer ", b"bEARER   "), "abc.def.ghi", ""),
        (message("a-_~+/.9=="), "a-_~+/.9==", ""),
    ],
)
def test_a_message_is_read_as_kafka_reads_it(data: bytes, token: str, authorization_id: str) -> None:
    assert parse(data) == (token, authorization_id)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x01", b"n,,\x01", b"n,,\x01\x01", message()[:-1], message() + b"\x01", message() + b"x",
        message(header="y,,"), message(header="p=x,,"), message(header="n,alice,"), message(header="n,a=,"),
        message(header="n,a=a=b,"), message(header="n,,,"), message(""), message("a b"), message("a\x00b"),
        message("ä"), message().replace(b"auth", b"other"), message().replace(b"Bearer", b"Basic"),
        message(more="auth=other\x01"), message(more="a1=x\x01"), message(more="a\x01"), message(more="a=\x01"),
        message(more="\x01"), b"\xff\xfe", b"n,,\x01auth=Bearer\x01\x01",
    ],
)  # fmt: skip
def test_what_is_no_message_ends_the_exchange(data: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerServer(check).evaluate(data)


def test_a_good_token_says_who_it_is_and_for_how_long() -> None:
    server = OAuthBearerServer(check)
    assert server.evaluate(message("good", "n,a=alice,")) == b""
    assert (server.user, server.expires_at_ms, server.is_token) == ("alice", 1_000, False)


@pytest.mark.parametrize("consent", [b"\x01", message("good"), b""])
def test_who_shows_a_bad_token_is_told_so_and_has_no_second_try(consent: bytes) -> None:
    server = OAuthBearerServer(check)
    assert server.evaluate(message("bad")) == INVALID_TOKEN
    with pytest.raises(SaslRefused, match=re.escape(INVALID_TOKEN.decode())) as refused:
        server.evaluate(consent)
    assert refused.value.reason == "the token is not accepted: it is not good"
    assert server.user is None


def test_who_wants_to_be_somebody_else_is_refused() -> None:
    server = OAuthBearerServer(check)
    with pytest.raises(SaslRefused, match="authorization id"):
        server.evaluate(message("good", "n,a=admin,"))
    assert server.user is None


def test_keys_that_are_not_there_yet_are_waited_for() -> None:
    answers: list[BearerToken | NotYet] = [NotYet(lambda go_on: lambda: None), ACCEPTED]
    server = OAuthBearerServer(lambda token: answers.pop(0))
    assert isinstance(server.evaluate(message("good")), NotYet)
    assert server.user is None
    assert server.evaluate(message("good")) == b""
    assert server.user == "alice"
