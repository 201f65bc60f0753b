"""The page on security, typed from its top to its end in an empty directory; and ``scripts/run --secure``."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.apache_kafka import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPIC_COMMAND, run_kafka_tool
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND, Serving, serving
from harness.waiting import PATIENCE_S
from kafka import KafkaProducer

from pybroker.security.certificate_authority import write_certificates
from tests.cli.command import forked_commands
from tests.docs.pages import Example, examples, pasted, without_echo
from tests.secure_script import block_of, secure_broker
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "security.md"
BIN = Path(sys.executable).parent
_ANY_LANGUAGE = ("console", "properties", "sh", "python")


class Reader:
    """Does what the page says, one block after another, with free ports in place of the page's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._ports = {port: str(free_port()) for port in ("9093", "9094")}

    def _here(self, text: str) -> str:
        for port, own in self._ports.items():
            text = text.replace(port, own)
        return text

    def write(self, example: Example) -> None:
        """A file, whose name is the first line's comment."""
        name = example.code.splitlines()[0].removeprefix("# ")
        Path(name).write_text(self._here(example.code))

    def type(self, example: Example) -> None:
        """Commands, each of which prints the lines up to the next."""
        for command, prints in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", example.code, re.MULTILINE):
            if command.startswith("export "):
                for pair in self._here(command).split()[1:]:
                    self._monkeypatch.setenv(*pair.split("=", 1))
                continue
            shell = ["bash", "-o", "pipefail", "-c", self._here(command)]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert (done.returncode, done.stdout) == (0, prints), (command, done.stderr)

    def paste(self, example: Example) -> None:
        """Python, with what it prints."""
        assert example.prints is not None, "say what it prints"
        printed = pasted(example, self._here(example.code))
        assert without_echo(printed, example.prints) == example.prints


def in_order() -> list[Example]:
    """All of the page's blocks, as they stand."""
    text = PAGE.read_text()
    found = [example for language in _ANY_LANGUAGE for example in examples(language, PAGE)]
    return sorted(found, key=lambda example: text.index(example.code))


def test_the_page_does_what_it_says_from_its_top_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{forked_commands().bin}:{BIN}", prepend=":")
    reader = Reader(monkeypatch)
    blocks = in_order()
    (serve,) = [block for block in blocks if block.language == "sh"]
    at = blocks.index(serve)

    def read(several: list[Example]) -> None:
        does = {"console": reader.type, "properties": reader.write, "python": reader.paste}
        for block in several:
            does[block.language](block)

    read(blocks[:at])
    (line,) = serve.code.splitlines()
    with open("stderr.log", "w") as stderr, serving([COMMAND, *line.split()[1:]], stderr) as served:
        read(blocks[at + 1 :])
        assert served.stop() == 0
    said = Path("stderr.log").read_text()
    for told in ("chmod", "who it is", "ada-secret", "change-me"):
        assert told not in said, said


def test_brokers_by_the_pages_example_replicate_between_listeners_with_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {block.code.splitlines()[0].removeprefix("# "): block.code for block in examples("properties", PAGE)}
    for name in ("users", "admin.properties"):
        Path(name).write_text(files[name])
    with ExitStack() as stack:
        for number in ("1", "2"):
            run([str(COMMAND), "certs", "--broker", f"broker-{number}", "--no-java"])
            text = files["broker-1.properties"].replace("broker-1.pem", f"broker-{number}.pem")
            text = text.replace("node.id=1", f"node.id={number}").replace("log.dirs=data", f"log.dirs=data-{number}")
            for port in ("9093", "9095"):
                text = text.replace(f"one.example:{port}", f"127.0.0.1:{free_port()}")
            Path(f"broker-{number}.properties").write_text(text)
            command = [str(COMMAND), "serve", "--config", f"broker-{number}.properties", "--add-scram", "@users"]
            served = stack.enter_context(serving([*command, "--metadata", f"sqlite://{tmp_path}/metadata.db"]))
        client = ["-b", served.bootstrap, "--command-config", "admin.properties"]
        create = ["topics", "create", "orders", "--replicas", "2", "-c", "min.insync.replicas=2"]
        run([str(COMMAND), *create, *client])
        producer = KafkaProducer(
            bootstrap_servers=served.bootstrap,
            acks="all",
            security_protocol="SASL_SSL",
            ssl_cafile="certificates/ca.pem",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="admin",
            sasl_plain_password="change-me",
        )
        assert producer.send("orders", b"one").get(timeout=PATIENCE_S).offset == 0
        producer.close()


# --- scripts/run --secure --------------------------------------------------------------------------------------------


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_secure_broker_by_one_script_tells_its_clients_how_to_get_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    listen = f"127.0.0.1:{free_port()}"
    command = [str(ROOT / "scripts" / "run"), "--secure", "--listen", listen, "--data-dir", str(data)]
    passwords = []
    for start in ("first", "second"):
        with serving(command) as served:
            passwords.append((tmp_path / "data-keys" / "admin.password").read_text())
            check_what_is_told(served, f"{start}-topic")
            assert served.stop() == 0
    assert passwords[0] == passwords[1]
    exposed = [file.name for file in (tmp_path / "data-keys").iterdir() if file.stat().st_mode & 0o077]
    assert exposed == ["ca.pem"]


def check_what_is_told(served: Serving, topic: str) -> None:
    printed = served.before
    (password,) = re.findall(r"open\('(.*)'\)\.read\(\)", block_of(printed, "kafka-python"))
    assert Path(password).read_text() not in printed
    send = f"\nprint(KafkaProducer(**settings).send({topic!r}, b'x').get(timeout=10).offset)"
    assert run([sys.executable, "-c", block_of(printed, "kafka-python") + send]) == "0\n"
    look = f"\nprint({topic!r} in Producer(settings).list_topics(timeout=10).topics)"
    assert run([sys.executable, "-c", block_of(printed, "confluent-kafka") + look]) == "True\n"
    (path, export, *_) = block_of(printed, "pybroker's commands").splitlines()
    assert topic in run(["bash", "-c", f"{path}; {export}; pybroker topics list -q"])
    read, _ = block_of(printed, "Spark").splitlines()
    shown = "print(settings['security.protocol'], settings['sasl.jaas.config'].count(';'))"
    assert run([sys.executable, "-c", f"{read}\n{shown}"]) == "SASL_SSL 1\n"
    assert "--command-config" in block_of(printed, "Java, and Kafka's own tools")


@pytest.mark.parametrize("lost", [["ca.pem"], ["ca.pem", "ca.key"]], ids=["certificate", "authority"])
def test_a_lost_authority_ends_the_start_in_a_line_that_says_what_to_do(tmp_path: Path, lost: list[str]) -> None:
    keys = tmp_path / "data-keys"
    write_certificates(keys, servers={"broker": ["localhost"]}, clients=["admin"], for_java=False)
    for name in lost:
        (keys / name).unlink()
    command = [sys.executable, str(ROOT / "scripts" / "secure.py"), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.endswith(f"remove ca.pem, ca.key, broker.pem, admin.pem from {keys}, and they are made anew\n")


def test_certificates_that_have_ended_are_made_anew_and_the_password_stays(tmp_path: Path) -> None:
    keys = tmp_path / "data-keys"
    write_certificates(keys, servers={"broker": ["localhost"]}, clients=["admin"], days=0, for_java=False)
    (keys / "admin.password").write_text("kept")
    with secure_broker(tmp_path) as served:
        check_what_is_told(served, "greetings")
        assert "have ended, and are made anew" in served.before
        assert served.stop() == 0
    assert (keys / "admin.password").read_text() == "kept"


@pytest.mark.jvm
def test_kafkas_own_tools_get_in_by_what_a_secure_broker_tells(tmp_path: Path) -> None:
    with secure_broker(tmp_path) as served:
        _, *told = shlex.split(block_of(served.before, "Java, and Kafka's own tools"))
        listing = told.index("--list")
        how = [*told[:listing], *told[listing + 1 :]]
        run_kafka_tool(CONSOLE_PRODUCER, *how, "--topic", "greetings", standard_input="hello\nagain\n")
        reading = ("--topic", "greetings", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
        assert run_kafka_tool(CONSOLE_CONSUMER, *how, *reading).stdout.split() == ["hello", "again"]
        assert "greetings" in run_kafka_tool(TOPIC_COMMAND, *told).stdout.split()
        assert served.stop() == 0
