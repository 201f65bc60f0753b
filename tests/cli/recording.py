"""Commands as a person sees them: each one's help, its tables and its errors, in a terminal of a width.

``python -m tests.cli.recording FOLDER`` writes ``80.txt`` and ``120.txt``, to be read through.  What is looked at is in
``recorded_commands``; a table that is wider than its terminal, and a traceback, are told on standard error.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.forked_commands import import_all

from pybroker.cli.commands.app import app_of
from tests.cli.recorded_commands import STEPS, Step
from tests.source_tree import ROOT

WIDTHS = (80, 120)
CRASHED = 99
FRAME = re.compile("[ ╭│╰─]")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def helps() -> Iterator[list[str]]:
    """``--help`` of the whole, and of every command and its own commands."""
    import typer

    yield ["--help"]
    tree = typer.main.get_command(app_of())
    for name, command in tree.commands.items():  # type: ignore[attr-defined]  # a group's
        yield [name, "--help"]
        for own in getattr(command, "commands", ()):
            yield [name, own, "--help"]


def run_in_terminal(
    arguments: Sequence[str], width: int, step: Step, environment: Mapping[str, str], folder: Path
) -> tuple[str, int]:
    """What a terminal of this width shows of a command, without its colours, and the exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        become(arguments, environment, folder)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    # What is asked for is typed when it is asked for: what was typed before is thrown away.
    typed = step.stdin.encode().splitlines(keepends=True)
    if not step.prompt:
        os.write(terminal, b"".join(typed) + b"\x04")
    seen = bytearray()
    prompt, since = re.compile(step.prompt.encode()), 0
    while True:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
        if step.prompt and typed and prompt.search(seen, since):
            since = len(seen)
            os.write(terminal, typed.pop(0))
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return COLOURS.sub("", seen.decode(errors="replace")).replace("\r\n", "\n"), code


def become(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    """Be the command, once the terminal has its width."""
    while fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))[2:4] == b"\0\0":
        pass
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["pybroker", *arguments]
    from pybroker.cli.main import main

    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(int(ended.code or 0))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(CRASHED)


def record(width: int, places: Mapping[str, str], out: Path) -> None:
    """All of it in one width."""
    with TemporaryDirectory() as folder, out.open("w") as log:
        login = Path(folder) / "admin.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.username=admin\nsasl.password=admin-secret\n"
        )
        login.chmod(0o600)
        Path(folder, "copy.json").write_text('{"name": "copy", "connector.class": "JdbcSnik", "topics": "orders"}\n')
        for step in (*(Step(shlex.join(line)) for line in helps()), *STEPS):
            arguments = [word.format(**places) if "{" in word else word for word in shlex.split(step.line)]
            asked = step.asked.format(**places)
            options = ["--command-config", "admin.properties"] if asked == "secured" else []
            environment = {"PYBROKER_BOOTSTRAP": places.get(asked, asked), "TERM": "xterm-256color"}
            text, code = run_in_terminal([*arguments, *options], width, step, environment, Path(folder))
            log.write(f"\n$ pybroker {shlex.join(arguments)}    # {code}\n{text}")
            log.flush()
            lines = [] if "--json" in arguments else text.splitlines()
            wide = [line for line in lines if len(line) > width and FRAME.match(line)]
            if code == CRASHED or "Traceback" in text or wide:
                sys.stderr.write(f"{width}: {shlex.join(arguments)}: {wide[:1] or 'a traceback'}\n")


def main() -> None:
    """Record in each width, with brokers made anew."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    import_all()
    for width in WIDTHS:
        asked = [sys.executable, "-m", "tests.cli.recorded_world"]
        world = subprocess.Popen(asked, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert world.stdin is not None
        assert world.stdout is not None
        with world:
            places = json.loads(world.stdout.readline())
            record(width, places, folder / f"{width}.txt")
            world.stdin.close()


if __name__ == "__main__":
    main()
