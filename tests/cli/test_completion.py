"""``pybroker completion``: what shells offer behind a Tab."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from pybroker.cli.command_names import COMMANDS
from tests.cli.command import CommandLine

CLI = CommandLine("127.0.0.1:1")
ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_pybroker
printf "%s\\n" "${COMPREPLY[@]}"
"""
ASK_ZSH = """
compdef() { : }
source "$1"; shift
_describe() { print -l -- "${(@P)2}" }
_files() { }
words=("$@") CURRENT=$#
_pybroker
"""
ASK_FISH = "source $argv[1]; complete -C (string join -- ' ' $argv[2..])"
ASK = {"bash": ["bash", "-c", ASK_BASH, "-"], "zsh": ["zsh", "-f", "-c", ASK_ZSH, "-"]}
ASK["fish"] = ["fish", "--no-config", "-c", ASK_FISH, "--"]


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A shell that this machine has, and its script."""
    if shutil.which(request.param) is None:
        pytest.skip(f"this machine has no {request.param}")
    script = tmp_path_factory.mktemp("completion") / "script"
    script.write_bytes(CLI.ok("completion", request.param))
    return request.param, script


def offered(shell: tuple[str, Path], *words: str) -> set[str]:
    """The words that a shell has for the last one."""
    name, script = shell
    command = [*ASK[name], str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    found = (line.split("\t")[0].split(":")[0] for line in done.stdout.splitlines())
    return {word for word in found if word.startswith(words[-1]) and word}


def test_commands_are_offered_at_each_level(shell: tuple[str, Path]) -> None:
    assert offered(shell, "pybroker", "t") == {name for name in COMMANDS if name.startswith("t")}
    assert offered(shell, "pybroker", "topics", "de") == {"delete", "delete-records", "describe"}


def test_options_of_the_command_are_offered_and_those_of_serve_too(shell: tuple[str, Path]) -> None:
    assert offered(shell, "pybroker", "topics", "describe", "--u") == {"--under-replicated", "--unavailable"}
    assert offered(shell, "pybroker", "serve", "--da") == {"--data-dir"}


def test_options_before_a_command_do_not_hide_it(shell: tuple[str, Path]) -> None:
    assert offered(shell, "pybroker", "--verbose", "topics", "cr") == {"create"}


def test_no_word_is_offered_for_the_value_of_an_option(shell: tuple[str, Path]) -> None:
    if shell[0] == "fish":
        pytest.skip("fish knows by itself, and offers files")
    assert offered(shell, "pybroker", "topics", "create", "t", "--partitions", "-") == set()


def test_shell_that_there_is_no_script_for_is_wrong_use() -> None:
    assert CLI.run("completion", "ksh").returncode == 2
