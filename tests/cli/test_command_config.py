"""``--command-config`` gets a command in: by stores of Java's, certificates in the file itself, and bearer tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cli.connection import bearer_logins
from pybroker.cli.connection.client_file import file_settings
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.config import jaas
from pybroker.security.certificate_authority import write_certificates
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.security.token_server import token_server
from tests.security.tokens import jwk, jwks, rsa_key, signed

URL = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET = (f"sasl.oauthbearer.client.credentials.client.{what}" for what in ("id", "secret"))
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def topics_of(broker: Broker, file: Path, settings: dict[str, str], *options: str) -> list[str]:
    """What the command lists as whoever the settings say."""
    file.touch(0o600)
    escaped = {name: text.replace("\\", "\\\\").replace("\n", "\\n") for name, text in settings.items()}
    file.write_text("".join(f"{name}={text}\n" for name, text in escaped.items()))
    found = CommandLine(broker.bootstrap).json("topics", "list", "--command-config", str(file), *options)
    return [each["name"] for each in found]


# --- references to config providers ----------------------------------------------------------------------------------


def test_a_file_takes_its_passwords_from_the_config_providers_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASE_PASSWORD", "hunter2")
    file = tmp_path / "client.properties"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        f'sasl.jaas.config={plain} required username="u" password="${{env:CASE_PASSWORD}}";\n'
    )
    file.chmod(0o600)
    texts = file_settings(str(file), lambda name: name == "client.id").texts
    assert texts == {"sasl.username": "u", "sasl.password": "hunter2"}


def test_a_line_of_jaas_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    parse = jaas.parse

    def noted(text: str) -> list[jaas.LoginModule]:
        lines.append(text)
        return parse(text)

    monkeypatch.setattr(jaas, "parse", noted)
    file = tmp_path / "client.properties"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(f'sasl.jaas.config={scram} required username="id" password="hmac" tokenauth="true";\n')
    file.chmod(0o600)
    settings = file_settings(str(file), lambda _: False)
    assert (settings.texts, settings.is_delegation_token) == ({"sasl.username": "id", "sasl.password": "hmac"}, True)
    assert len(lines) == 1


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "sasl.jaas.config"])
def test_a_file_whose_secret_refers_to_nothing_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{name}=${{env:CASE_PASSWORD}}\n")
    file.chmod(0o600)
    with pytest.raises(CommandFailed, match=f"{name}: .* its text must not be the secret"):
        file_settings(str(file), lambda name: True)


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys") / "keys"
    write_certificates(directory, servers={"broker": ["localhost", "127.0.0.1"]}, clients=["alice"])
    return directory


@pytest.fixture(scope="module")
def secured(keys: Path) -> Iterator[Broker]:
    settings = {
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys / "ca.pem"),
    }
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        broker.create_topic("secured")
        yield broker


def test_stores_of_pkcs12_are_read(secured: Broker, keys: Path, tmp_path: Path) -> None:
    password = (keys / "store.password").read_text().strip()
    stores = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(keys / "truststore.p12"),
        "ssl.truststore.password": password,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(keys / "alice.p12"),
        "ssl.keystore.password": password,
    }
    assert topics_of(secured, tmp_path / "file", stores) == ["secured"]
    mixed = {**stores, "ssl.truststore.location": str(keys / "ca.pem"), "ssl.truststore.type": "PEM"}
    del mixed["ssl.truststore.password"]
    assert topics_of(secured, tmp_path / "file", mixed) == ["secured"]
    refused = CommandLine(secured.bootstrap).run(
        "topics", "list", "--command-config", str(tmp_path / "file"), "-X", "ssl.ca.location=elsewhere"
    )
    assert refused.returncode == 1
    assert b"exclude each other" in refused.stderr


def test_certificates_in_the_file_itself_are_read(secured: Broker, keys: Path, tmp_path: Path) -> None:
    key, _, chain = (keys / "alice.pem").read_text().partition("-----END PRIVATE KEY-----\n")
    inline = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"{key}-----END PRIVATE KEY-----",
        "ssl.keystore.certificate.chain": chain,
        "ssl.truststore.certificates": (keys / "ca.pem").read_text(),
    }
    assert topics_of(secured, tmp_path / "file", inline) == ["secured"]


# --- bearer tokens ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    file.write_bytes(jwks(jwk(rsa_key(), "one")))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        broker.create_topic("for-bearers")
        yield broker


def login(url: str, **more: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", URL: url, **more}


def test_a_token_comes_out_of_a_file(broker: Broker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{signed()}\n")
    handler = {"sasl.login.callback.handler.class": f"{MODULE.rpartition('.')[0]}.OAuthBearerLoginCallbackHandler"}
    settings = login(token.as_uri(), **{"sasl.jaas.config": f"{MODULE} required;"}, **handler)
    assert topics_of(broker, tmp_path / "file", settings) == ["for-bearers"]


@pytest.mark.parametrize("in_jaas", [False, True])
def test_a_token_comes_from_an_endpoint(broker: Broker, tmp_path: Path, in_jaas: bool) -> None:
    line = {"sasl.jaas.config": f"{MODULE} required clientId=me clientSecret=hunter2 scope='a b';"}
    who = line if in_jaas else {ID: "me", SECRET: "hunter2", "sasl.oauthbearer.scope": "a b"}
    with token_server() as server:
        assert topics_of(broker, tmp_path / "file", login(f"{server.url}/token", **who)) == ["for-bearers"]
    assert server.asked == [{"grant_type": ["client_credentials"], "scope": ["a b"]}], "once, for every connection"


@pytest.mark.parametrize(
    ("path", "secret", "message"),
    [
        ("/token", "wrong", "answers with 401 Unauthorized"),
        ("/elsewhere", "hunter2", "answers with 302 Found"),
        ("/nothing", "hunter2", "holds no token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_told_and_no_secret_is(path: str, secret: str, message: str) -> None:
    with token_server() as server, pytest.raises(ValueError, match=message) as caught:
        bearer_logins.bearer_tokens(login(server.url + path, **{ID: "me", SECRET: secret}))
    assert str(caught.value).startswith(URL)
    assert "hunter2" not in str(caught.value)


def test_a_token_that_is_not_fresh_any_more_is_fetched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(bearer_logins, "monotonic", lambda: now[0])
    with token_server() as server:
        tokens = bearer_logins.bearer_tokens(login(f"{server.url}/token", **{ID: "me", SECRET: "hunter2"}))
        for now[0], count in ((1, 1), (479, 1), (480, 2)):
            tokens.token()
            assert len(server.asked) == count


def test_a_file_with_passwords_that_everybody_may_read_is_told_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=x\n")
    file.chmod(0o644)
    for _ in range(2):
        file_settings(str(file), lambda _: True)
    assert capsys.readouterr().err.count("everybody on this machine may read it") == 1
