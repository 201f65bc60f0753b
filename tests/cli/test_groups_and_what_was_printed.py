"""``pybroker consume --group``: what is committed is what its stdout has got."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness.waiting import PATIENCE_S

from tests.cli.command import COMMAND, CommandLine


def run_with_stdout(cli: CommandLine, stdout: int, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        # Without a buffer the write itself would fail.
        env={name: text for name, text in cli.environment().items() if name != "PYTHONUNBUFFERED"},
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(("kind", "exit_code"), [("full disk", 1), ("closed pipe", 0)])
def test_a_record_that_stdout_has_not_got_is_printed_by_the_next_reader(
    cli: CommandLine, name: str, kind: str, exit_code: int
) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\nb\n")
    if kind == "full disk":
        stdout = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, stdout = os.pipe()
        os.close(reading)
    try:
        failed = run_with_stdout(cli, stdout, "consume", name, "-g", name, "-e")
    finally:
        os.close(stdout)
    assert failed.returncode == exit_code, failed.stderr
    assert cli.lines("consume", name, "-g", name, "-e") == ["a", "b"]


def test_records_before_one_that_cannot_be_printed_are_committed(
    cli: CommandLine, name: str, avro_of_texts: str
) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"\x02a\n\x01\n")
    reader = ("consume", name, "-g", name, "-e")
    failed = cli.run(*reader, "--avro", avro_of_texts)
    assert (failed.returncode, failed.stdout) == (1, b'"a"\n')
    assert cli.ok(*reader) == b"\x01\n"


@pytest.fixture
def avro_of_texts(tmp_path: os.PathLike[str]) -> str:
    path = os.path.join(tmp_path, "text.avsc")
    with open(path, "w") as file:
        file.write('"string"')
    return path
