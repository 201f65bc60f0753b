"""Links that log in by OAUTHBEARER: tokens of a token endpoint, renewed, and logins that come again before they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness.broker_probe import refusing_port
from harness.waiting import PATIENCE_S, wait_until

from pybroker.net.peer_connection import PeerConnection
from pybroker.net.peer_link import PeerLink
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import wait_until_mirrored
from tests.links.test_wrong_links import create, described, states
from tests.security.token_server import CLIENT, SECRET, TokenServer, token_server
from tests.security.tokens import jwk, jwks, rsa_key, signed

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = "sasl.oauthbearer.client.credentials.client."


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    with token_server() as server:
        yield server


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Broker]:
    keys = tmp_path / "jwks.json"
    keys.write_bytes(jwks(jwk(rsa_key(), "one")))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connections.max.reauth.ms": "1500",
        "connection.failed.authentication.delay.ms": "20",
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def links(here: Broker) -> CommandLine:
    return CommandLine(here.bootstrap)


def produce(source: Broker, count: int) -> None:
    """Records of a client that has a token of its own."""
    settings: dict[str, Any] = {
        "bootstrap.servers": source.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "none",
        "oauth_cb": lambda _: (signed(sub="alice"), time.time() + 600),
    }
    producer = Producer(settings)
    for number in range(count):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0


def file_of(path: Path, url: str, **others: str) -> str:
    """A file of a Java client's settings that logs in by tokens from there (``_`` for ``.``)."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{MODULE.rpartition('.')[0]}.OAuthBearerLoginCallbackHandler",
        URL: url,
        f"{CREDENTIALS}id": CLIENT,
        f"{CREDENTIALS}secret": SECRET,
        **{name.replace("_", "."): text for name, text in others.items()},
    }
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items() if text))
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("in_jaas", [False, True])
def test_a_link_logs_in_by_a_token_of_its_endpoint(
    links: CommandLine, here: Broker, source: Broker, tokens: TokenServer, tmp_path: Path, in_jaas: bool
) -> None:
    line = f"{MODULE} required clientId={CLIENT} clientSecret={SECRET} scope=kafka;"
    others = {f"{CREDENTIALS}id": "", f"{CREDENTIALS}secret": "", "sasl.jaas.config": line} if in_jaas else {}
    file = file_of(tmp_path / "file", f"{tokens.url}/token", **others)
    assert create(links, "west", source.bootstrap, "-t", "*", "--source-config", file) == (0, "")
    produce(source, 20)
    wait_until_mirrored(source, here, "orders", 1)
    scope = {"scope": ["kafka"]} if in_jaas else {}
    assert all(form == {"grant_type": ["client_credentials"], **scope} for form in tokens.asked)
    assert SECRET not in str(described(links))
    shown = {each["name"]: each["value"] for each in links.json("configs", "describe", "--broker-defaults")}
    assert SECRET not in str(shown)


def test_a_link_logs_in_again_on_its_connections_before_their_sessions_end(
    links: CommandLine,
    here: Broker,
    source: Broker,
    tokens: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[PeerConnection] = []
    log_in_again = PeerLink._log_in_again

    def noted(link: PeerLink, connection: PeerConnection) -> None:
        again.append(connection)
        log_in_again(link, connection)

    monkeypatch.setattr(PeerLink, "_log_in_again", noted)
    file = file_of(tmp_path / "file", f"{tokens.url}/token")
    assert create(links, "west", source.bootstrap, "-t", "*", "--source-config", file) == (0, "")
    produce(source, 5)
    wait_until_mirrored(source, here, "orders", 1)
    wait_until(lambda: len(again) > len(set(map(id, again))), "one connection to be logged in three times")
    produce(source, 5)
    wait_until_mirrored(source, here, "orders", 1)
    assert described(links)["problem"] is None


def test_an_endpoint_that_refuses_the_link_is_named_and_the_right_secret_mends_it(
    links: CommandLine, source: Broker, tokens: TokenServer, tmp_path: Path
) -> None:
    wrong = file_of(tmp_path / "wrong", f"{tokens.url}/token", **{f"{CREDENTIALS}secret": "unguessable"})
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", wrong)
    assert code == 1
    assert "answers with 401 Unauthorized" in said
    assert "unguessable" not in said + str(described(links))
    links.ok("links", "alter", "west", "--source-config", file_of(tmp_path / "right", f"{tokens.url}/token"))
    wait_until(lambda: states(links) == {"orders": "mirroring"}, "the source to be mirrored")
    wait_until(lambda: described(links)["problem"] is None, "an end of the problem")


def test_an_endpoint_that_is_away_is_named(links: CommandLine, source: Broker, tmp_path: Path) -> None:
    with refusing_port() as port:
        file = file_of(tmp_path / "file", f"http://127.0.0.1:{port}/token")
        code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", file)
    assert code == 1
    assert "does not answer" in said


def test_a_token_that_the_source_does_not_take_is_told(
    links: CommandLine, source: Broker, tokens: TokenServer, tmp_path: Path
) -> None:
    tokens.lifetime_s = -10
    file = file_of(tmp_path / "file", f"{tokens.url}/token")
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", file)
    assert code == 1
    assert "invalid_token" in said
    tokens.lifetime_s = 600
    wait_until(lambda: states(links) == {"orders": "mirroring"}, "the source to be mirrored")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (URL, "file:///run/secrets/token", "must be a URL of https or http"),
        (URL, "", "a URL of https or http has to say where tokens are"),
        (f"{CREDENTIALS}id", "", "is not set: the token endpoint wants to know who asks"),
        ("sasl.jaas.config", "nonsense", "sasl.jaas.config: "),
    ],
)
def test_a_link_without_what_a_token_takes_names_the_setting(
    links: CommandLine, source: Broker, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = file_of(tmp_path / "file", "http://127.0.0.1:1/token", **{name: text})
    code, told = create(links, "west", source.bootstrap, "-t", "*", "--source-config", file)
    assert code == 1
    assert name in told
    assert said in told
