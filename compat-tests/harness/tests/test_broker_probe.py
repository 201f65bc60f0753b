"""Ports at which nothing listens."""

from __future__ import annotations

import socket

import pytest

from harness.broker_probe import refusing_port


def test_refusing_port_takes_no_connection_and_is_given_to_no_other() -> None:
    with refusing_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
    socket.create_server(("127.0.0.1", port)).close()
