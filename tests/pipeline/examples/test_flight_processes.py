"""The demo's own broker: ready, ended cleanly, and its log in the error when it does not start."""

import socket
from pathlib import Path

import pytest

from examples.flights.processes import ProcessFailed, own_broker


def test_the_own_broker_serves_for_the_length_of_the_with(tmp_path: Path) -> None:
    with own_broker(tmp_path / "data", tmp_path / "broker.log") as bootstrap:
        host, port = bootstrap.split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_a_broker_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    no_directory = tmp_path / "data"
    no_directory.write_text("a file is in the way")
    never_ready = own_broker(no_directory, tmp_path / "broker.log")
    with pytest.raises(ProcessFailed, match=r"(?s)did not get ready.*broker\.log.*data"), never_ready:
        pytest.fail("the broker says that it is ready")
