"""Every command's help reads as it was meant."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import typer
from harness.waiting import PATIENCE_S

from pybroker.cli.app import command_of
from pybroker.cli.command_names import COMMANDS
from tests.cli.command import COMMAND


@pytest.fixture
def helps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Help texts of every command and of every group of commands, by the name."""
    monkeypatch.setenv("COLUMNS", "160")
    root = command_of()
    waiting = [(root, typer.Context(root, info_name="pybroker", **root.context_settings))]
    texts: dict[str, str] = {}
    while waiting:
        command, context = waiting.pop()
        command.get_help(context)  # typer prints it
        texts[context.command_path] = capsys.readouterr().out
        for name, child in getattr(command, "commands", {}).items():
            waiting.append((child, typer.Context(child, info_name=name, parent=context)))
    return texts


def test_no_help_shows_python_instead_of_a_default_or_a_value(helps: dict[str, str]) -> None:
    assert "pybroker consume" in helps
    assert {name: found for name, text in helps.items() if (found := re.findall(r"<[a-z]\w*.*?>", text))} == {}


def test_flag_has_no_value_and_an_option_with_a_value_names_it(helps: dict[str, str]) -> None:
    lines = [line.strip("│ ").split() for line in helps["pybroker groups list"].splitlines()]
    options = {words[0]: words[1:] for words in lines if words and words[0].startswith("--")}
    assert options["--json"][0] == "Print"
    assert options["--type"][0] == "TYPE"
    assert options["--state"][:2] == ["-s", "STATE"]


def test_argument_is_shown_as_it_is_to_be_given(helps: dict[str, str]) -> None:
    assert "Usage: pybroker groups describe [OPTIONS] GROUP… " in helps["pybroker groups describe"]
    assert "Usage: pybroker topics list [OPTIONS] [PATTERN…] " in helps["pybroker topics list"]
    assert [name for name, text in helps.items() if "{" in text.partition("╭")[0]] == []


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["--version"]])
def test_the_module_is_the_command(arguments: list[str]) -> None:
    def said(*command: str) -> bytes:
        return subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=PATIENCE_S).stdout

    assert said(sys.executable, "-m", "pybroker") == said(COMMAND)


def test_the_commands_stand_in_the_order_of_their_names() -> None:
    assert tuple(command_of().commands) == COMMANDS


def test_a_paragraph_of_help_is_as_wide_as_the_terminal() -> None:
    texts = [command_of().commands["partitions"].commands["reassign"].help, command_of().commands["users"].help]
    assert all("\n" not in paragraph for text in texts for paragraph in text.split("\n\n"))
    assert len(texts[0].split("\n\n")) == 2
