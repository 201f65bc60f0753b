"""The command line of ``scripts/conformance``: whom it asks, and with which tests."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conformance import __main__ as command

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
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert set(re.findall(r"^\S+::\S+$", done.stdout, re.MULTILINE)) == ran
