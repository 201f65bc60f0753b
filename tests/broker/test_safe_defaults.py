"""What is open is told, what is secret is not, and what is wrong begins nothing."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.pybroker_process import COMMAND, serving

from pybroker.config.broker import BrokerConfig
from pybroker.config.schema import ConfigError
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Security
from tests.broker.wire_client import WireClient
from tests.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OPEN = "reached from beyond this machine without a login"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


# --- who may come in -------------------------------------------------------------------------------------------------


def test_an_address_beyond_loopback_without_authentication_is_told_in_one_line(tmp_path: Path) -> None:
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data")]
    listen = ("--listen", "0.0.0.0:0", "--listen", "127.0.0.1:0", "--listen", "OPEN://[::]:0")
    protocols = "OPEN:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    with open(tmp_path / "stderr.log", "w") as stderr:
        settings = ("--set", f"listener.security.protocol.map={protocols}")
        with serving([*command, *listen, *settings], stderr) as served:
            assert served.stop() == 0
    (line,) = [line for line in (tmp_path / "stderr.log").read_text().splitlines() if OPEN in line]
    assert line.endswith("PLAINTEXT, OPEN")


@pytest.mark.parametrize(
    ("listen", "security"),
    [
        ("127.0.0.1:0", None),
        ("localhost:0", None),
        ("0.0.0.0:0", Security("SASL_PLAINTEXT")),
        ("0.0.0.0:0", Security("SSL", client_auth=True)),
    ],
)
def test_nothing_is_told_where_it_is_known_who_comes(
    listen: str, security: Security | None, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(listen=listen, security=security):
        pass
    assert OPEN not in caplog.text


def test_tls_alone_says_nothing_of_who_comes(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(listen="0.0.0.0:0", security="SSL"):
        pass
    assert OPEN in caplog.text


# --- who may read files ----------------------------------------------------------------------------------------------


def test_files_with_secrets_that_everybody_may_read_are_told(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    key = authority.pem("broker")
    for mode, is_told in ((0o644, True), (0o640, False), (0o600, False)):
        key.chmod(mode)
        caplog.clear()
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
        with Broker(settings, listen="SSL://127.0.0.1:0"):
            pass
        assert (f"{key} has a private key, and everybody on this machine may read it" in caplog.text) is is_told


def test_a_key_that_is_encrypted_may_be_read(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    key = authority.pem("broker", password="hunter2")
    key.chmod(0o644)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key), "ssl.key.password": "hunter2"}
    with Broker(settings, listen="SSL://127.0.0.1:0"):
        pass
    assert "chmod" not in caplog.text
    assert "hunter2" not in caplog.text


def test_a_file_of_settings_with_passwords_is_told_and_one_without_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "server.properties"
    file.touch(0o644)
    file.chmod(0o644)
    for name, is_told in (("num.partitions", False), ("listener.name.x.plain.sasl.jaas.config", True)):
        file.write_text(f"{name}=7\n")
        caplog.clear()
        BrokerConfig.load(config_file=str(file))
        assert (f"{file} has passwords, and everybody on this machine may read it" in caplog.text) is is_told


@pytest.mark.parametrize("shared", [False, True])
def test_the_file_with_the_clusters_secret_is_its_owners(
    shared: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / ("shared.db" if shared else "pybroker-metadata.db")
    settings = {"pybroker.metadata": f"sqlite://{file}"} if shared else {}
    with Broker(settings, data_dir=tmp_path):
        files = list(tmp_path.glob(f"{file.name}*"))
        # Whoever may find out who writes finds out nothing else.
        secret = [each for each in files if not each.name.endswith(("-writer", "-room"))]
        assert file in secret
        assert all(not each.stat().st_mode & stat.S_IRWXO for each in secret)
    assert "everybody" not in caplog.text
    file.chmod(0o644)
    with Broker(settings, data_dir=tmp_path):
        pass
    assert "has the cluster's secrets, and everybody on this machine may read it" in caplog.text


# --- what is wrong ---------------------------------------------------------------------------------------------------


def pem(authority: Authority, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.pem("broker")),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def empty(authority: Authority) -> str:
    file = authority.ca.parent / "empty.pem"
    file.write_text("")
    return str(file)


def wrong_password_of_a_trust_store(authority: Authority) -> dict[str, str]:
    return pem(
        authority,
        ssl_truststore_type="PKCS12",
        ssl_truststore_location=str(authority.pkcs12("trusted", "hunter2")),
        ssl_truststore_password="wrong",
    )


def wrong_password_of_a_key(authority: Authority) -> dict[str, str]:
    return pem(authority, ssl_key_password="wrong") | {
        "ssl.keystore.location": str(authority.pem("locked", password="hunter2"))
    }


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "member"])
@pytest.mark.parametrize(
    ("listener", "settings_of", "setting"),
    [
        ("SSL", wrong_password_of_a_trust_store, "ssl.truststore.password"),
        ("SSL", wrong_password_of_a_key, "ssl.keystore.location"),
        ("SSL", lambda it: pem(it, ssl_keystore_location=str(it.pem("late", days=-1))), "ssl.keystore.location"),
        (
            "SSL",
            lambda it: pem(it, ssl_truststore_type="PEM", ssl_truststore_location=empty(it)),
            "ssl.truststore.location",
        ),
        ("SSL", lambda it: pem(it, ssl_principal_mapping_rules="RULE:^(CN=$/$1/"), "ssl.principal.mapping.rules"),
        ("SSL", lambda it: pem(it, ssl_client_auth="maybe"), "ssl.client.auth"),
        ("SASL_SSL", lambda it: pem(it, sasl_enabled_mechanisms="GSSAPI"), "sasl.enabled.mechanisms"),
        (
            "SASL_PLAINTEXT",
            lambda it: {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_a="hunter2"',
            },
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        ("PLAINTEXT", lambda it: {"authorizer.class.name": "com.example.Mine"}, "authorizer.class.name"),
        (
            "PLAINTEXT",
            lambda it: {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "admin"},
            "super.users",
        ),
    ],
)
def test_a_setting_of_security_that_is_wrong_is_named_in_a_sentence_and_nothing_is_begun(
    listener: str,
    settings_of: Callable[[Authority], dict[str, str]],
    setting: str,
    shared: bool,
    authority: Authority,
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = settings_of(authority)
    if shared:
        settings["pybroker.metadata"] = f"sqlite://{tmp_path}/metadata.db"
    with pytest.raises(ConfigError) as caught:
        Broker(settings, data_dir=tmp_path / "data", listen=f"{listener}://127.0.0.1:0").start()
    message = str(caught.value)
    assert setting in message
    assert "\n" not in message
    assert "hunter2" not in message
    assert list(tmp_path.iterdir()) == []


# --- who speaks something else ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "said", "line"),
    [
        ("SASL_SSL", b"\0\0\0\x11\0\x12\0\0\0\0\0\1\0\0", "a client without TLS on a listener with TLS"),
        ("SASL_PLAINTEXT", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS client on a listener without TLS"),
        ("SASL_PLAINTEXT", b"\0\0\0\x0f\0\3\0\1\0\0\0\1\0\1x\0\0\0\0", "is not served before authentication"),
    ],
)
def test_who_speaks_something_else_goes_at_once_with_a_line(
    protocol: str, said: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(security=protocol) as broker, WireClient((broker.host, broker.port)) as client:
        client.send_raw(said)
        assert client.receive_payload() is None
        assert line in caplog.text
