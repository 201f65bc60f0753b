"""What ``pybroker cluster up`` shows at a terminal: how many serve, and whose line is whose by its colour."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from harness.pybroker_process import COMMAND

WITHIN_S = 60
READY = re.compile(rb"pybroker ready on (\S+)\r\n")
LINE_OF_A_BROKER = re.compile(rb"\x1b\[(\d+)m(broker-\d) \| ")


def read_until(terminal: int, expected: re.Pattern[bytes]) -> bytes:
    """What is shown until that is."""
    shown, deadline = b"", time.monotonic() + WITHIN_S
    while not expected.search(shown):
        left = deadline - time.monotonic()
        assert left > 0, f"{expected!r} is not in {shown[-2_000:]!r}"
        if select.select([terminal], [], [], left)[0]:
            shown += os.read(terminal, 1 << 16)
    return shown


def read_to_its_end(terminal: int) -> bytes:
    """The rest; reading fails once nobody has the terminal any more."""
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:
            return shown


def test_a_terminal_shows_how_many_serve_and_each_brokers_lines_in_its_own_colour(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    command = [str(COMMAND), "cluster", "up", "--brokers", "3", "--port", "0", "--dev", "--data-dir", str(tmp_path)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        shown = read_until(terminal, READY)
        (addresses,) = READY.findall(shown)
        for port in map(int, re.findall(rb":(\d+)", addresses)):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert stranger.recv(1) == b""  # each broker has something to complain of
        process.send_signal(signal.SIGINT)
        shown += read_to_its_end(terminal)
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert b"brokers that serve" in shown
    assert b"0/3" in shown
    colours: dict[bytes, set[bytes]] = {}
    for colour, name in LINE_OF_A_BROKER.findall(shown):
        colours.setdefault(name, set()).add(colour)
    assert sorted(colours) == [b"broker-1", b"broker-2", b"broker-3"]
    assert all(len(own) == 1 for own in colours.values())
    assert len(set.union(*colours.values())) == 3
