"""Every command's help reads as it was meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from harness.waiting import PATIENCE_S

from pybroker.cli.app import app_of
from tests.cli.command import COMMAND


def helps() -> Iterator[tuple[str, str]]:
    """Name and help text of every command and of every group of commands."""
    root = typer.main.get_command(app_of())
    waiting = [(root, typer.Context(root, info_name="pybroker"))]
    while waiting:
        command, context = waiting.pop()
        options = [record for parameter in command.params if (record := parameter.get_help_record(context))]
        yield context.command_path, "\n".join(f"{left} {right}" for left, right in options)
        for name, child in getattr(command, "commands", {}).items():
            waiting.append((child, typer.Context(child, info_name=name, parent=context)))


def test_no_help_shows_python_instead_of_a_default() -> None:
    texts = dict(helps())
    assert "pybroker consume" in texts
    assert [name for name, text in texts.items() if "<class" in text] == []


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["--version"]])
def test_the_module_is_the_command(arguments: list[str]) -> None:
    def said(*command: str) -> bytes:
        return subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=PATIENCE_S).stdout

    assert said(sys.executable, "-m", "pybroker") == said(COMMAND)
