"""A reader of a page, who does what it says: writes its files, types its commands, starts what it tells to start.

Owns: how a page is cut into steps, and a directory in which they are done.  A block of ``properties`` or ``sql`` names
its file in the first line, one of ``json`` in the line before it.  Commands of ``console`` print what the page says;
each line of ``sh`` is a process.  What stands for something of the reader's own, such as a port, is replaced in the
page's whole text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.broker_probe import free_port
from harness.waiting import PATIENCE_S

from kafka_connect.processes import PageProcess

_BIN = Path(sys.executable).parent
_SECTION = re.compile(r"^## (.*)\n((?:(?!## ).*\n)*)", re.MULTILINE)
_BLOCK = re.compile(r"(?:^`([\w.-]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_PORT = re.compile(r"127\.0\.0\.1:(\d+)")
# What holds for the commands behind it.
_LASTING = ("export ", "alias ")


class _Block(NamedTuple):
    language: str
    file: str  # the name that stands before it, empty if none does
    text: str


class Reader:
    """Reads ``page`` in ``directory``, with free ports in place of those that stand behind 127.0.0.1 there.

    ``instead`` has what is to stand for other texts of the page, ports among them.  Commands that are typed are looked
    for in the folder ``commands`` first; processes are started by the ordinary ones, so that a kill is theirs.
    """

    def __init__(self, page: Path, directory: Path, instead: Mapping[str, str], commands: Path = _BIN) -> None:
        text = page.read_text()
        ports = {port: str(free_port()) for port in dict.fromkeys(_PORT.findall(text)) if port not in instead}
        for theirs, own in {**ports, **instead}.items():
            text = re.sub(rf"(?<![\w.]){re.escape(theirs)}(?!\w)", own, text)
        self.ports = {**ports, **instead}
        self.directory = directory
        self.environment = {"PATH": f"{_BIN}:{os.environ['PATH']}"}
        self.processes: list[PageProcess] = []
        self._commands = commands
        self._sections = dict(_SECTION.findall(text))
        self._lasting: list[str] = []

    def read(self, *sections: str) -> None:
        """Do what these sections say, in their order."""
        for section in sections:
            for block in self._blocks(section):
                self._do(block)

    def kill(self) -> None:
        """Kill what runs: what its end takes is not of interest."""
        for process in self.processes:
            process.kill()

    def _blocks(self, section: str) -> Iterator[_Block]:
        for file, language, text in _BLOCK.findall(self._sections[section]):
            yield _Block(language, file, text)

    def _do(self, block: _Block) -> None:
        if block.language == "sh":
            self._start(block.text.splitlines())
        elif block.language == "console":
            for command, prints in _COMMAND.findall(block.text):
                self._type(command, prints)
        else:
            name = block.file or block.text.partition("\n")[0].lstrip("#- ")
            (self.directory / name).write_text(block.text)

    def _start(self, lines: list[str]) -> None:
        """All of a block side by side; returns when each is ready."""
        started = []
        for line in lines:
            name = f"{len(self.processes)}.log"
            started.append(PageProcess(line, self.directory, name, self.environment))
            self.processes.append(started[-1])
            started[-1].start()
        for process in started:
            process.wait_until_ready()

    def _type(self, command: str, prints: str) -> None:
        if command.startswith(_LASTING):
            self._lasting.append(command)
            return
        script = "\n".join(("shopt -s expand_aliases", *self._lasting, command))
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", script],
            cwd=self.directory,
            env={**os.environ, **self.environment, "PATH": f"{self._commands}:{self.environment['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, prints), (command, done.returncode, done.stdout, done.stderr)
