"""The prompt on a terminal: statements of several lines, completion, history, and Ctrl-C that ends a query alone."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from tests.cli.command import COMMAND, CommandLine

# The space behind it may be shown as a move of the cursor.
PROMPT = "sql>"
CONTROLS = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])|\x07")


class Terminal:
    """A command on a terminal of its own: what is typed, and what is shown."""

    def __init__(self, cli: CommandLine, home: Path, *arguments: str) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**cli.environment(), "TERM": "xterm-256color", "XDG_STATE_HOME": str(home), "NO_COLOR": "1"}
        # Who opens a terminal first in a session of its own has Ctrl-C as a signal from it.
        script = 'exec "$0" sql "$@" <"$TERMINAL" >"$TERMINAL" 2>&1'
        self.process = subprocess.Popen(
            ["sh", "-c", script, COMMAND, *arguments],
            env={**environment, "TERMINAL": os.ttyname(theirs)},
            start_new_session=True,
        )
        # Kept until the end: the command may not have opened its own side yet.
        self._theirs = theirs
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, expected: str) -> str:
        """What is shown up to and with the text; it is not looked at again."""
        deadline = time.monotonic() + PATIENCE_S
        while expected not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{expected!r} is not in {self._shown[-2_000:]!r}"
            if select.select([self._terminal], [], [], left)[0]:
                shown = os.read(self._terminal, 1 << 16).decode(errors="replace")
                if "\x1b[6n" in shown:  # where is the cursor?
                    os.write(self._terminal, b"\x1b[1;1R")
                self._shown += CONTROLS.sub("", shown)
        before, _, self._shown = self._shown.partition(expected)
        return before + expected

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._theirs)
        os.close(self._terminal)


@pytest.fixture
def terminal(cli: CommandLine, tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(cli, tmp_path)
    try:
        found.wait_for(PROMPT)
        yield found
    finally:
        found.close()


def test_statement_may_have_several_lines(terminal: Terminal) -> None:
    terminal.type("SELECT 40 +\r")
    terminal.wait_for("->")
    terminal.type("2 AS answer;\r")
    terminal.wait_for("answer")
    terminal.wait_for("42")
    terminal.wait_for("1 row")


def test_error_leaves_the_prompt_and_exit_ends_it(terminal: Terminal) -> None:
    terminal.type("SELECT a FROM nowhere;\r")
    terminal.wait_for("there is no topic nowhere")
    terminal.wait_for(PROMPT)
    terminal.type("exit\r")
    assert terminal.process.wait(PATIENCE_S) == 0


def test_end_of_the_input_ends_it(terminal: Terminal) -> None:
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE_S) == 0


def test_ctrl_c_ends_the_query_and_not_the_session(terminal: Terminal, cli: CommandLine, topic: str) -> None:
    cli.ok("topics", "create", topic)
    terminal.type(f"SELECT value FROM {topic} EMIT CHANGES;\r")
    terminal.wait_for("value\r\n")
    terminal.type("\x03")
    terminal.wait_for("the query was ended")
    terminal.type("SELECT range AS n FROM range(10000000000);\r")
    terminal.wait_for("2999")
    terminal.type("\x03")
    terminal.wait_for("the query was ended")
    terminal.type("SELECT 'still ' || 'here' AS a;\r")
    terminal.wait_for("still here")


def test_ctrl_c_at_the_prompt_forgets_what_was_typed(terminal: Terminal) -> None:
    terminal.type("SELECT nonsense")
    terminal.type("\x03")
    terminal.type("SELECT 6 * 7 AS n;\r")
    terminal.wait_for("42")


def test_topics_columns_and_keywords_are_completed(terminal: Terminal, cli: CommandLine, topic: str) -> None:
    cli.ok("topics", "create", topic)
    cli.ok("produce", topic, stdin=b'{"remarkable": 5}\n')
    terminal.type(f"SELECT count(*) AS n FROM {topic[:10]}\t")
    terminal.wait_for(topic[10:])
    terminal.type(";\r")
    terminal.wait_for("1 row")
    terminal.type(f"DESCRIBE {topic};\r")
    terminal.wait_for("remarkable")
    terminal.wait_for(PROMPT)
    terminal.type("SELECT remark\t")
    terminal.wait_for("able")
    terminal.type(f" + 37 AS n FROM {topic};\r")
    terminal.wait_for("42")


def test_history_is_kept_for_the_next_session(terminal: Terminal, cli: CommandLine, tmp_path: Path) -> None:
    terminal.type("SELECT 6 * 7 AS n;\r")
    terminal.wait_for("42")
    terminal.type("exit\r")
    terminal.process.wait(PATIENCE_S)
    assert (tmp_path / "pybroker" / "sql_history").stat().st_mode & 0o077 == 0
    again = Terminal(cli, tmp_path)
    try:
        again.wait_for(PROMPT)
        again.type("\x1b[A\x1b[A\r")
        again.wait_for("42")
    finally:
        again.close()
