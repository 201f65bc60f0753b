"""How a connection to a source begins: what the source must speak, and logins against the broker's own side of SASL."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.cluster.links.source_port import NEEDED_VERSIONS
from pybroker.config import jaas
from pybroker.config.link_config import LinkConfig
from pybroker.config.schema import ConfigError
from pybroker.net.peer_login import LoginRefused
from pybroker.net.source_login import SourceLogin, SourceUser
from pybroker.security import oauthbearer, plain, scram
from pybroker_protocol import codec
from pybroker_protocol.messages import response_header_version
from pybroker_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pybroker_protocol.messages.headers import ResponseHeader
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeResponse
from pybroker_protocol.schema import Response

PASSWORD = "unguessable"
ENV = cast(Any, SimpleNamespace(random=Random(1)))


def config(mechanism: str | None = None, line: str | None = None) -> LinkConfig:
    texts = {"bootstrap.servers": "source:9092"}
    if mechanism is not None:
        texts |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if line is not None:
        texts["sasl.jaas.config"] = line
    return LinkConfig("west", texts)


def line(**options: str) -> str:
    return jaas.text_of(jaas.LoginModule(scram.LOGIN_MODULE, "required", options))


def reply(response: Response, version: int, correlation_id: int) -> memoryview:
    key = type(response).__declaration__.key
    assert key is not None
    header = codec.encode(ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))
    return memoryview(header + codec.encode(response, version))


def versions(**changed: tuple[int, int]) -> memoryview:
    served = {key: (0, version) for key, version in NEEDED_VERSIONS.items()}
    served |= {int(name.removeprefix("key_")): bounds for name, bounds in changed.items()}
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()]
    return reply(ApiVersionsResponse(error_code=0, api_keys=keys), 0, 0)


def login(user: SourceUser) -> SourceLogin:
    made = SourceLogin(ENV, "link-west-1", user)
    assert made.begin()
    return made


def test_without_sasl_a_connection_begins_with_the_versions_alone() -> None:
    made = login(SourceUser(config()))
    assert made.on_reply(versions()) == b""
    assert made.is_over


@pytest.mark.parametrize("key", NEEDED_VERSIONS)
@pytest.mark.parametrize("side", ["older", "newer", "without it"])
def test_a_source_that_does_not_speak_what_is_asked_is_named_with_the_reason(key: int, side: str) -> None:
    version = NEEDED_VERSIONS[key]
    bounds = {"older": (0, version - 1), "newer": (version + 1, version + 2), "without it": (0, -1)}[side]
    with pytest.raises(LoginRefused, match=r"Apache Kafka 3\.1 or later"):
        login(SourceUser(config())).on_reply(versions(**{f"key_{key}": bounds}))


def test_plain_sends_name_and_password_once() -> None:
    made = login(SourceUser(config(plain.MECHANISM, line(username="alice", password=PASSWORD))))
    made.on_reply(versions())
    frame = made.on_reply(reply(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, 1))
    assert frame.endswith(b"\0alice\0" + PASSWORD.encode())
    assert made.on_reply(reply(SaslAuthenticateResponse(error_code=0, auth_bytes=b""), 1, 2)) == b""
    assert made.is_over


def test_a_refused_login_says_what_the_source_says_and_no_password() -> None:
    made = login(SourceUser(config(plain.MECHANISM, line(username="alice", password=PASSWORD))))
    made.on_reply(versions())
    made.on_reply(reply(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, 1))
    refusal = SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password", auth_bytes=b"")
    with pytest.raises(LoginRefused, match="Invalid username or password") as refused:
        made.on_reply(reply(refusal, 1, 2))
    assert PASSWORD not in str(refused.value)


def test_a_token_is_shown_once_and_says_how_long_the_session_lasts() -> None:
    made = bearer("t0ken")
    accepted = SaslAuthenticateResponse(error_code=0, auth_bytes=b"", session_lifetime_ms=5_000)
    assert made.on_reply(reply(accepted, 1, 2)) == b""
    assert (made.is_over, made.session_lifetime_ms) == (True, 5_000)


def test_a_token_that_is_refused_is_consented_to_and_the_reason_told_without_it() -> None:
    made = bearer("t0ken")
    challenge = SaslAuthenticateResponse(error_code=0, auth_bytes=oauthbearer.INVALID_TOKEN)
    assert made.on_reply(reply(challenge, 1, 2)).endswith(oauthbearer.CONSENT)
    refusal = SaslAuthenticateResponse(error_code=58, error_message="invalid_token", auth_bytes=b"")
    with pytest.raises(LoginRefused, match="invalid_token") as refused:
        made.on_reply(reply(refusal, 1, 3))
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize("auth_bytes", [b"", oauthbearer.INVALID_TOKEN])
def test_a_source_that_refuses_a_token_and_says_no_error_is_left(auth_bytes: bytes) -> None:
    made = bearer("t0ken")
    made.on_reply(reply(SaslAuthenticateResponse(error_code=0, auth_bytes=oauthbearer.INVALID_TOKEN), 1, 2))
    with pytest.raises(LoginRefused, match="it does not take the token"):
        made.on_reply(reply(SaslAuthenticateResponse(error_code=0, auth_bytes=auth_bytes), 1, 3))


def test_a_login_that_comes_again_begins_with_a_handshake() -> None:
    user = SourceUser(config(plain.MECHANISM, line(username="alice", password=PASSWORD)))
    made = SourceLogin(ENV, "link-west-1", user)
    assert b"PLAIN" in made.begin(again=True)
    frame = made.on_reply(reply(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, 1))
    assert frame.endswith(PASSWORD.encode())


def bearer(token: str) -> SourceLogin:
    """A login that has shown a token."""
    tokens = cast(Any, SimpleNamespace(token=lambda: token, refused=lambda _: None))
    made = login(SourceUser(config(oauthbearer.MECHANISM), tokens))
    made.on_reply(versions())
    frame = made.on_reply(reply(SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"]), 1, 1))
    assert frame.endswith(oauthbearer.message_of(token))
    return made


@pytest.mark.parametrize("text", [None, "nonsense", line(username="alice"), line(password=PASSWORD)])
def test_a_link_with_sasl_needs_a_user_and_a_password(text: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        SourceUser(config("SCRAM-SHA-256", text))
    assert "pybroker.links.west.sasl.jaas.config" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_user_is_printed_without_the_password() -> None:
    assert PASSWORD not in repr(SourceUser(config("SCRAM-SHA-512", line(username="alice", password=PASSWORD))))
