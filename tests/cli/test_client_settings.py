"""-X settings, the options of serve, and what stays out of serve's imports."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from harness.waiting import PATIENCE_S

from pybroker.cli.connection.admin_client import admin_client
from pybroker.cli.connection.client_file import file_settings
from pybroker.cli.connection.client_settings import ClientOptions, gathered, parse_addresses, parse_pairs
from pybroker.cli.connection.data_clients import library_settings
from pybroker.cli.serve.serve_command import build_parser, parse_setting
from pybroker.cli.terminal.failure import CommandFailed

OAUTH = "sasl.mechanism=OAUTHBEARER"
URL = "sasl.oauthbearer.token.endpoint.url"
WHO = "sasl.oauthbearer.client.credentials.client.id=me\nsasl.oauthbearer.client.credentials.client.secret=hunter2"


def test_settings_take_the_names_of_kafka_and_of_librdkafka() -> None:
    texts = ["security.protocol=SSL", "linger.ms=5", "ssl.check.hostname=false", "ssl.ca.location=/a=b"]
    assert library_settings(gathered(ClientOptions("", texts), lambda _: True), {"linger.ms": "0", "acks": "all"}) == {
        "security.protocol": "SSL",
        "linger.ms": "5",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/a=b",
        "acks": "all",
    }


@pytest.mark.parametrize("text", ["linger.ms", "=1"])
def test_a_setting_without_name_or_value_is_wrong_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="-X must be KEY=VALUE"):
        gathered(ClientOptions("", [text]), lambda _: True)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense=1",
        "request.timeout.ms=soon",
        "ssl.cipher.suites=ROT13",
        "security.protocol=TLS",
        "sasl.pasword=x",
        "bootstrap.servers=a",
    ],
)
def test_a_setting_that_the_client_does_not_take_is_wrong_use(text: str) -> None:
    with (
        pytest.raises(typer.BadParameter, match=text.partition("=")[0]),
        admin_client(ClientOptions("127.0.0.1:1", [text])),
    ):
        pass


@pytest.mark.parametrize(
    "text", ["ssl.crl.location=/crl.pem", "ssl.cipher.suites=x", "ssl.sigalgs.list=x", "sasl.kerberos.principal=x"]
)
def test_no_password_is_shown_by_a_connection_that_passes_over_a_setting_of_security(text: str) -> None:
    given = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=b"]
    assert gathered(ClientOptions("", given), lambda _: True).access().is_known
    assert not gathered(ClientOptions("", [*given, text]), lambda _: True).access().is_known


def test_a_setting_of_producers_alone_is_none_of_the_other_commands() -> None:
    wanted = ClientOptions("127.0.0.1:1", ["linger.ms=5", "bootstrap.timeout.ms=1"])
    with pytest.raises(CommandFailed, match="refuses the connection"), admin_client(wanted):
        pass


def test_names_of_kafka_python_are_taken_too() -> None:
    texts = ["sasl.plain.username=ada", "ssl.cafile=ca.pem", "sasl.mechanisms=PLAIN"]
    found = gathered(ClientOptions("", texts), lambda _: True).texts
    assert found == {"sasl.username": "ada", "ssl.ca.location": "ca.pem", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("broker", [("broker", 9092)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        ("SASL_SSL://broker:9094", [("broker", 9094)]),
    ],
)
def test_addresses_are_read_as_kafkas_clients_read_them(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:65536", "a:-1", ":1", "::1:9092", "a:1 b:2"])
def test_an_address_that_is_none_is_wrong_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--bootstrap"):
        parse_addresses(text)


def settings_of(path: Path, text: str) -> dict[str, str]:
    path.touch(0o600)
    path.write_text(text)
    return file_settings(str(path), lambda name: name in {"linger.ms", "security.protocol"}).texts


def test_a_file_of_javas_settings_says_the_same_here(tmp_path: Path) -> None:
    text = (
        "security.protocol=SASL_SSL\nlinger.ms=5\nkey.serializer=com.example.Mine\nbootstrap.servers=elsewhere:1\n"
        'sasl.jaas.config=a.B required username="ada" password="it\\\\"s";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\nssl.keystore.location=ada.pem\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    assert settings_of(tmp_path / "file", text) == {
        "security.protocol": "SASL_SSL",
        "linger.ms": "5",
        "sasl.username": "ada",
        "sasl.password": 'it"s',
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "ada.pem",
        "ssl.key.location": "ada.pem",
        "ssl.check.hostname": "false",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssl.truststore.location=ca.p12", "ssl.truststore.location: ca.p12 cannot be read: No such file"),
        ("ssl.keystore.type=BCFKS\nssl.keystore.location=/dev/null", "ssl.keystore.type is BCFKS: PEM and PKCS12"),
        ("ssl.keystore.certificate.chain=hunter2", "ssl.keystore.certificate.chain: its value holds no certificate"),
        (f"ssl.keystore.type=PKCS12\nssl.keystore.location={__file__}", "test_client_settings.py is no PKCS12 store"),
        ("ssl.keystore.type=PKCS12\nssl.provider=Mine", "unknown client setting 'ssl.provider'"),
        (
            f"{OAUTH}\nsasl.oauthbearer.token.endpoint.url=hunter2",
            "token.endpoint.url: a URL of https, http or file:///",
        ),
        (f"{OAUTH}\nsasl.login.callback.handler.class=com.Mine", "handler.class: only OAuthBearerLoginCallbackHandler"),
        (f"{OAUTH}\n{URL}=file:///nowhere", "token.endpoint.url: /nowhere cannot be read: No such file"),
        (f"{OAUTH}\n{URL}=file://{__file__}", "test_client_settings.py holds no token"),
        (f"{OAUTH}\n{URL}=http://127.0.0.1:1/", "client.credentials.client.id is not set"),
        (f"{OAUTH}\n{URL}=http://127.0.0.1:1/\n{WHO}", "token.endpoint.url: 127.0.0.1:1 does not answer"),
        ("sasl.jaas.config=a.B required password=hunter2;", "one login module with a username and a password"),
        ("sasl.jaas.config=hunter2", "Login module control flag not specified"),
        ("sasl.login.class=com.example.Mine", "unknown client setting 'sasl.login.class'"),
        ("ssl.key.password=hunter2\\u00zz", "is no file of properties"),
    ],
)
def test_what_of_security_cannot_be_taken_is_refused_without_a_secret(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        settings_of(tmp_path / "file", text)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "is_told"),
    [("ssl.keystore.password", True), ("ssl.truststore.password", True), ("sasl.password", True), ("linger.ms", False)],
)
def test_a_file_of_settings_with_a_secret_that_everybody_may_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, is_told: bool
) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o644)
    file.write_text(f"{setting}=7\n")
    file_settings(str(file), lambda name: True)
    assert (f"chmod 600 {file}" in capsys.readouterr().err) is is_told


def test_a_missing_file_of_settings_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="no such file"):
        file_settings(str(tmp_path / "missing"), lambda name: True)


def test_pairs_keep_their_order_and_everything_after_the_first_equals_sign() -> None:
    assert list(parse_pairs(["b=1=2", "a="], "--config").items()) == [("b", "1=2"), ("a", "")]


def test_serve_takes_every_option_of_the_command_contract() -> None:
    command = "--listen 127.0.0.1:0 --listen [::1]:9092 --data-dir d --config c --set a.b=1=2 --set e= --dev"
    options = build_parser().parse_args(command.split())
    assert options.listen == ["127.0.0.1:0", "[::1]:9092"]
    assert (options.data_dir, options.config, options.dev) == ("d", "c", True)
    assert options.settings == [("a.b", "1=2"), ("e", "")]


def test_a_setting_without_a_value_is_a_usage_error() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected KEY=VALUE"):
        parse_setting("num.partitions")


def test_serve_parses_its_options_without_the_libraries_of_the_client_commands() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['pybroker', 'serve', '--help']\n"
        "from pybroker.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'typer', 'rich', 'kafka', 'click', 'construct'} & sys.modules.keys()), file=sys.stderr)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert "--data-dir" in finished.stdout
    assert finished.stderr == "[]\n"


def test_client_commands_start_without_the_broker() -> None:
    program = (
        "import sys; from pybroker.cli.commands.app import app_of; app_of(); print('pybroker.server' in sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert finished.stdout == "False\n"


@pytest.mark.parametrize("command", ["certs", "dump-log"])
def test_a_command_waits_for_no_other_commands_imports(command: str) -> None:
    program = (
        "import sys\n"
        "from pybroker.cli.commands.app import COMMANDS, module_of, run_client\n"
        "run_client(sys.argv[1:])\n"
        "print(*(name for name in COMMANDS if module_of(name) in sys.modules), file=sys.stderr)\n"
    )
    arguments = [sys.executable, "-c", program, "--verbose", command, "--help"]
    finished = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert finished.stderr == f"{command}\n"
