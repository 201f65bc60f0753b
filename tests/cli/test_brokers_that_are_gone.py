"""``pybroker produce`` and ``consume`` where the broker is gone: they end in time, and say what is missing."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S

from tests.broker.test_start_on_a_full_disk import disk, fill_up
from tests.cli.command import CommandLine

__all__ = ["disk"]

SOON = ("-X", "delivery.timeout.ms=3000", "-X", "linger.ms=0")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PybrokerProcess]:
    process = PybrokerProcess(tmp_path / "broker", {"auto.create.topics.enable": "false"})
    process.start()
    try:
        yield process
    finally:
        process.kill()


def writing(cli: CommandLine, topic: str, *options: str) -> subprocess.Popen[bytes]:
    """A producer whose first record is acknowledged."""
    process = cli.start("produce", topic, "-v", *options)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{topic}\t0\t0\n".encode()
    return process


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    assert process.stderr is not None
    assert process.wait(PATIENCE_S) is not None
    return process.returncode, process.stderr.read().decode().splitlines()


def test_a_producer_whose_broker_dies_ends_and_says_which_records_are_missing(broker: PybrokerProcess) -> None:
    cli = CommandLine(broker.bootstrap)
    cli.ok("topics", "create", "t", "-p", "1")
    with writing(cli, "t", *SOON) as process:
        broker.kill()
        assert process.stdin is not None
        process.stdin.write(b"".join(b"line %d\n" % number for number in range(2, 9)))
        # Its input stays open: it does not wait for the next line to say so.
        process.stdin.flush()
        exit_code, told = end_of(process)
    assert exit_code == 1
    assert told == [
        "pybroker: record 2: no acknowledgement within delivery.timeout.ms",
        "7 of 8 records were not acknowledged; the topic may have them even so:",
        *(f"  record {number}: line {number}" for number in range(2, 7)),
        "  and 2 more",
    ]


def test_a_producer_on_a_full_disk_ends_and_says_which_records_are_missing(disk: Path) -> None:
    broker = PybrokerProcess(disk / "broker")
    broker.start()
    try:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topics", "create", "t", "-p", "1")
        with writing(cli, "t", *SOON) as process:
            fill_up(disk / "ballast")
            assert process.stdin is not None
            process.stdin.write(b"x" * 10_000 + b"\n")
            process.stdin.flush()
            exit_code, told = end_of(process)
    finally:
        broker.kill()
    assert exit_code == 1
    assert told == [
        "pybroker: record 2: no acknowledgement within delivery.timeout.ms",
        "1 of 2 records were not acknowledged; the topic may have them even so:",
        f"  record 2: {'x' * 60}",
    ]


def test_a_record_that_is_no_line_does_not_hide_those_before_it(broker: PybrokerProcess) -> None:
    cli = CommandLine(broker.bootstrap)
    cli.ok("topics", "create", "t", "-p", "1")
    finished = cli.run("produce", "t", "--json", stdin=b'{"value": "a"}\n{"timestamp": 0}\n')
    assert finished.returncode == 1
    assert finished.stderr.startswith(b"pybroker: record 2: the client library cannot send the timestamp 0")
    assert cli.lines("consume", "t", "-e") == ["a"]


def test_a_topic_that_is_not_there_is_named(broker: PybrokerProcess) -> None:
    finished = CommandLine(broker.bootstrap).run(
        "produce", "nowhere", "-X", "topic.metadata.propagation.max.ms=100", stdin=b"a\n"
    )
    assert finished.returncode == 1
    assert finished.stderr.decode().splitlines() == [
        "pybroker: record 1: UNKNOWN_TOPIC_OR_PARTITION: the topic nowhere does not exist"
    ]


def test_a_reader_of_a_count_ends_where_its_broker_dies(broker: PybrokerProcess) -> None:
    cli = CommandLine(broker.bootstrap)
    cli.ok("topics", "create", "t", "-p", "1")
    cli.ok("produce", "t", stdin=b"a\n")
    with cli.start("consume", "t", "-c", "2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        broker.kill()
        exit_code, (told,) = end_of(process)
    assert exit_code == 1
    assert told.startswith("pybroker: for 1")
    assert told.endswith(f"{broker.bootstrap} refuses the connection; probably no broker listens there")


def test_a_reader_that_follows_says_that_it_waits_and_goes_on(broker: PybrokerProcess) -> None:
    cli = CommandLine(broker.bootstrap)
    cli.ok("topics", "create", "t", "-p", "1")
    cli.ok("produce", "t", stdin=b"a\n")
    with cli.start("consume", "t") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        broker.kill()
        assert process.stderr.readline().startswith(b"pybroker: waiting for a broker: ")
        broker.start()
        cli.ok("produce", "t", stdin=b"b\n")
        assert process.stdout.readline() == b"b\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_a_signal_ends_a_reader_whose_broker_is_gone(broker: PybrokerProcess) -> None:
    cli = CommandLine(broker.bootstrap)
    cli.ok("topics", "create", "t", "-p", "1")
    cli.ok("produce", "t", stdin=b"a\n")
    # For as long the client library would wait for the group's coordinator.
    session = ("-X", "session.timeout.ms=600000", "-X", "max.poll.interval.ms=600000")
    with cli.start("consume", "t", "-g", "readers", *session) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        broker.kill()
        assert b"waiting for a broker" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
