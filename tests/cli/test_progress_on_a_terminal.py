"""The progress of ``consume`` and ``produce``, whose standard error is a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest
from harness.waiting import PATIENCE_S

from tests.cli.command import COMMAND, CommandLine

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DIFFERENT = 4


def test_progress_moves_while_the_command_waits_for_records(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    cli.ok("produce", name, stdin=b"a\n")
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**cli.environment(), "TERM": "xterm-256color", "NO_COLOR": "1"}
    command = [COMMAND, "consume", name, "--count", "5"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown, deadline = b"", time.monotonic() + PATIENCE_S
        try:
            while len(waiting := set(re.findall(r"[^\r\n]*1/5[^\r\n]*", CONTROLS.sub("", shown.decode())))) < DIFFERENT:
                left = deadline - time.monotonic()
                assert left > 0, f"it stands still: {waiting}"
                if select.select([terminal], [], [], left)[0]:
                    shown += os.read(terminal, 1 << 16)
        finally:
            process.kill()
            os.close(terminal)


def shown_until_the_end(terminal: int) -> str:
    """What a process shows on a terminal whose other side it alone holds open."""
    shown = b""
    try:
        while part := os.read(terminal, 1 << 16):
            shown += part
    except OSError:  # as Linux says that the other side is closed
        pass
    return CONTROLS.sub("", shown.decode())


@pytest.mark.parametrize("is_typed", [True, False])
def test_progress_of_produce_is_a_number_and_is_not_drawn_over_what_is_typed(
    cli: CommandLine, name: str, is_typed: bool
) -> None:
    cli.ok("topics", "create", name)
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**cli.environment(), "TERM": "xterm-256color", "NO_COLOR": "1"}
    with subprocess.Popen(
        [COMMAND, "produce", name],
        stdin=theirs if is_typed else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        if process.stdin is None:
            os.write(terminal, b"typed\n\x04")  # the end of a terminal's input
        else:
            process.stdin.write(b"typed\n")
            process.stdin.close()
        shown = shown_until_the_end(terminal)
        os.close(terminal)
    assert f"1 record to {name}" in shown
    assert ("records sent" in shown) is not is_typed
    assert "/?" not in shown
