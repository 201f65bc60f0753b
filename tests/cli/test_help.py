"""Every command's help reads as it was meant."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout

import pytest
import typer
from harness.waiting import PATIENCE_S

from pybroker.cli.command_names import COMMANDS, EXIT_STATUS, base_help
from pybroker.cli.commands.app import command_of
from pybroker.cli.serve.serve_command import build_parser
from tests.cli.command import COMMAND


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Help texts of every command and of every group of commands, by the name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        return all_helps()


def all_helps() -> dict[str, str]:
    root = command_of()
    waiting = [(root, typer.Context(root, info_name="pybroker", **root.context_settings))]
    texts: dict[str, str] = {}
    while waiting:
        command, context = waiting.pop()
        with redirect_stdout(io.StringIO()) as printed:
            command.get_help(context)  # typer prints it
        texts[context.command_path] = printed.getvalue()
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


def test_an_option_that_may_be_given_again_says_so_once(helps: dict[str, str]) -> None:
    one_line = {name: " ".join(text.replace("│", " ").split()) for name, text in helps.items()}
    assert "A header for every record; repeatable." in one_line["pybroker produce"]
    assert "repeatable; repeatable" not in " ".join(one_line.values())


def test_limits_of_a_number_are_said_in_words_where_they_are_a_persons(helps: dict[str, str]) -> None:
    assert [name for name, text in helps.items() if "<=" in text or ">=" in text] == []
    assert "The number of brokers; 1 to 64." in helps["pybroker cluster up"]
    assert "2147483647" not in "".join(helps.values())


def test_default_in_seconds_has_no_fraction_that_says_nothing(helps: dict[str, str]) -> None:
    assert "[default: 30]" in helps["pybroker topics delete-records"]
    assert [name for name, text in helps.items() if re.search(r"default: \d+\.0\]", text)] == []


def test_what_is_required_is_marked(helps: dict[str, str]) -> None:
    marked = [line.strip("│ ").split()[1] for line in helps["pybroker acls add"].splitlines() if "│ *" in line]
    assert marked == ["--principal", "--operation"]


def test_exit_statuses_are_in_the_help(helps: dict[str, str]) -> None:
    assert EXIT_STATUS in " ".join(helps["pybroker"].split())
    assert EXIT_STATUS in " ".join(base_help().split())


def test_no_help_speaks_of_persons_without_a_noun(helps: dict[str, str]) -> None:
    vague = re.compile(r"\b(nobody|whoever|who)\b", re.IGNORECASE)
    assert {name: found for name, text in helps.items() if (found := vague.findall(text))} == {}


def test_help_of_serve_breaks_no_name_at_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = build_parser().format_help()
    assert text.startswith("Usage: pybroker serve ")
    assert "/tmp/kafka-logs" in text
    assert "SCRAM-SHA-512=[name=alice,password=...]" in text


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
