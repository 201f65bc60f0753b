"""The command line of ``scripts/conformance``: whom it asks, and with which tests."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from conformance import __main__ as command
from conformance.client_folder import ClientFolder
from conformance.outcomes import BUILDS_FAILED
from harness import process_tree

from report.page import DOCUMENT, HTML
from report.parts import MUTANTS, RAN, PartRun, Run

TIMEOUT_S = 100


@contextmanager
def _started(image: str) -> Iterator[str]:
    yield "example:9092"


@pytest.mark.parametrize(
    ("words", "arguments", "told"),
    [
        ([], [], "pybroker"),
        (["--apache"], ["--apache"], "Apache Kafka"),
        (["--bootstrap", "there:1"], ["--bootstrap", "there:1"], "there:1"),
        (["--container"], ["--bootstrap", "example:9092"], "pybroker in a container"),
        (["--container", "apache/kafka:4.3.1"], ["--bootstrap", "example:9092"], "apache/kafka:4.3.1 in a container"),
    ],
)
def test_a_report_is_about_the_broker_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, words: list[str], arguments: list[str], told: str
) -> None:
    monkeypatch.setattr(command, "missing_engine", lambda: None)
    monkeypatch.setattr(command, "broker_in_container", _started)
    with command.target(command.parser().parse_args(words)) as target:
        assert (target.arguments(), str(target)) == (arguments, told)


def test_a_container_without_an_engine_ends_the_command_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "missing_engine", lambda: "no Docker engine answers")
    with (
        pytest.raises(SystemExit, match="no Docker engine answers"),
        command.target(command.parser().parse_args(["--container"])),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        (["-k", "protocol"], {"suite/test_wire.py::test_protocol"}),
        (["protocol"], {"protocol/test_elsewhere.py::test_protocol"}),
    ],
)
def test_a_path_stands_for_the_suite_and_the_word_of_an_option_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], ran: set[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for path in (tmp_path / "suite" / "test_wire.py", tmp_path / "protocol" / "test_elsewhere.py"):
        path.parent.mkdir()
        path.write_text("def test_protocol(): ...\n")
    (tmp_path / "suite" / "test_other.py").write_text("def test_other(): ...\n")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "SUITE", tmp_path / "suite")
    made = command.pytest_command(words)
    # This one writes the report's results.
    made[made.index("conformance.outcomes")] = "xdist"
    done = subprocess.run(
        [*made, "--collect-only", "-q", "-n", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert set(re.findall(r"^\S+::\S+$", done.stdout, re.MULTILINE)) == ran


def test_report_of_a_run_that_is_cut_off_has_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(run: Run, *_: object) -> NoReturn:
        run.parts[MUTANTS] = PartRun(state=RAN, reason="", exit_code=0, found=[])
        raise SystemExit(143)

    monkeypatch.setattr(command, "run_parts", cut_off)
    with pytest.raises(SystemExit):
        command.report(command.parser().parse_args(["--report", str(tmp_path)]), [])
    document = json.loads((tmp_path / DOCUMENT).read_text())
    assert document["finished"]
    assert document["parts"][MUTANTS]["state"] == RAN
    assert (tmp_path / HTML).exists()


@pytest.mark.parametrize("address", ["nonsense", "host:", ":9092", "host:port", "host:0", "host:65536", "a:1,b:2"])
def test_what_is_no_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parser().parse_args(["--bootstrap", address])
    assert ended.value.code == 2
    assert f"not HOST:PORT: {address}" in capsys.readouterr().err


def _echo(listener: socket.socket) -> None:
    accepted, _ = listener.accept()
    with accepted:
        while received := accepted.recv(1000):
            accepted.sendall(received)


def _close(listener: socket.socket) -> None:
    listener.accept()[0].close()


@pytest.mark.parametrize("answer", [_echo, _close, None])
def test_what_is_no_broker_is_refused_before_anything_is_built(
    answer: Callable[[socket.socket], None] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "build", lambda *_: pytest.fail("built"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        threads = [threading.Thread(target=answer, args=(listener,))] if answer else []
        if not threads:
            listener.close()  # refuses
        for thread in threads:
            thread.start()
        monkeypatch.setattr(sys, "argv", ["scripts/conformance", "--bootstrap", address])
        with pytest.raises(SystemExit) as ended:
            command.main()
        for thread in threads:
            thread.join()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"scripts/conformance: no Kafka broker answers at {address}\n"


def test_client_that_cannot_be_built_fails_the_run_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(folder: ClientFolder) -> None:
        built.append(folder.name)
        if folder.name == "kafkajs":
            raise RuntimeError("npm failed")

    def run(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[str]:
        told.update(env)
        return subprocess.CompletedProcess([], 0)

    built: list[str] = []
    told: dict[str, str] = {}
    monkeypatch.setattr(ClientFolder, "build", build)
    monkeypatch.setattr(process_tree, "run", run)
    monkeypatch.setattr(sys, "argv", ["scripts/conformance", "--client", "kafkajs", "--client", "sarama"])
    assert command.main() == 1
    assert built == ["kafkajs", "sarama"]
    assert json.loads(told[BUILDS_FAILED]) == {"kafkajs": "npm failed"}
    assert "could not be built: kafkajs" in capsys.readouterr().err


def test_report_of_which_no_part_ran_does_not_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--report", str(tmp_path), "--report-parts", "wire,mutants", "--bootstrap", "there:1"]
    assert command.report(command.parser().parse_args(words), ()) == 5
    assert "no part of the report ran: wire: scripts/compare is about pybroker alone" in capsys.readouterr().err
