"""The words for a failed call: the system's, without numbers, whatever library brings the error."""

from __future__ import annotations

import errno
import socket
import ssl
from urllib.error import URLError

import pytest

from pybroker.system_errors import system_reason

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
