"""What the system says: the words for a failed call, whatever library brings the error, and the processors."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from urllib.error import URLError

import pytest

from pybroker.operating_system import processor_count, system_reason

UNKNOWN_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (URLError(ConnectionRefusedError(errno.ECONNREFUSED, "whatever")), "Connection refused"),
        (URLError(UNKNOWN_NAME), "Name or service not known"),
        (URLError("unknown url type: htp"), "unknown url type: htp"),
        (UNKNOWN_NAME, "Name or service not known"),
        (TimeoutError("timed out"), "timed out"),
        (OSError("Multiple exceptions: one, two"), "Multiple exceptions: one, two"),
        (ValueError("no port"), "no port"),
    ],
)
def test_words_have_no_numbers(error: BaseException, words: str) -> None:
    assert system_reason(error) == words


def test_a_refused_certificate_is_no_error_of_the_system() -> None:
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours.write(b"no TLS")
    with pytest.raises(ssl.SSLError) as raised:
        ssl.create_default_context().wrap_bio(ours, theirs, server_hostname="host").do_handshake()
    assert "wrong version number" in system_reason(raised.value).lower()


def test_processors_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5}, raising=False)
    assert processor_count() == 2


def test_where_a_process_cannot_be_bound_to_processors_all_of_them_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert processor_count() == 2
