"""What the pages tell to type: the command of every line in a block ``sh`` exists, and has the options that it names.

Nothing long is run: a command is asked for its help.  Lines that begin with ``pybroker`` have their test in
``test_pages``; ``pytest``, ``docker``, ``spark-pipelines`` and Kafka Connect's scripts are run elsewhere or not at all.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.apache_kafka import CONSUMER_GROUP_COMMAND, run_kafka_tool
from harness.connect_jars import MAIN_CLASSES

from pybroker.extras import DISTRIBUTION
from tests.docs.pages import PAGES, examples
from tests.source_tree import ROOT

BIN = Path(sys.executable).parent
HELP_WITHIN_S = 100
ELSEWHERE = {"pybroker", "pytest", "docker", "printf", "export", "spark-pipelines", *MAIN_CLASSES}
# Kafka's scripts, by the classes that they start.
KAFKA_TOOLS = {"kafka-consumer-groups.sh": CONSUMER_GROUP_COMMAND}
# Scripts make a long run ready before they look at their options: they are read, and what a demo starts is asked.
DEMO = "scripts/demo"
DEMO_STARTS = {
    "": (sys.executable, "-m", "examples.flights"),
    "--tour": (sys.executable, "-m", "examples.tour"),
    "--lake": (sys.executable, "-m", "examples.lake"),
    "--tenants": (sys.executable, "-m", "examples.tenants"),
}
USES = "examples.uses."


class Command(NamedTuple):
    """What a page tells to type."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def options(self) -> list[str]:
        return [word.split("=")[0] for word in self.words if word.startswith("--")]

    def begins(self, *words: str) -> bool:
        return self.words[: len(words)] == words


def commands() -> list[Command]:
    """Of all blocks, and those of the text that begin as if they were to be typed."""
    found = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        lines = [line for example in examples("sh", page) for line in example.code.splitlines()]
        lines += re.findall(r"`((?:scripts/|python -m |pip install )[^`\n…]*)`", page.read_text())
        split = [tuple(shlex.split(line, comments=True)) for line in lines]
        found += [Command(name, words) for words in split if words]
    return list(dict.fromkeys(found))


COMMANDS = commands()
ENVIRONMENTS = [each for each in COMMANDS if each.begins("python3", "-m", "venv")]
PIP = [each for each in COMMANDS if each.begins("pip", "install")]
SCRIPTS = [each for each in COMMANDS if each.words[0].startswith("scripts/")]
DEMOS = [each for each in SCRIPTS if each.begins(DEMO)]
MODULES = [each for each in COMMANDS if each.begins("python", "-m")]
SPARK_CLASSES = [each for each in COMMANDS if each.begins("spark-class")]
TOOLS = [each for each in COMMANDS if each.words[0] in KAFKA_TOOLS]


@cache
def helped(*command: str | Path) -> str:
    """What a command says of itself, in the environment as it is when it has been activated."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200", "TERM": "dumb"}
    done = subprocess.run(
        [*command, "--help"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HELP_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def check_options(command: Command, told: str) -> None:
    missing = [name for name in command.options if not re.search(rf"(?<![\w-]){name}(?![\w-])", told)]
    assert not missing, f"{command} has no {missing}"


def test_every_command_of_a_block_is_of_a_kind_that_is_checked() -> None:
    checked = {*ENVIRONMENTS, *PIP, *SCRIPTS, *MODULES, *SPARK_CLASSES, *TOOLS}
    assert not [str(each) for each in COMMANDS if each not in checked and each.words[0] not in ELSEWHERE]
    assert all((ENVIRONMENTS, PIP, DEMOS, MODULES, SPARK_CLASSES, TOOLS))


@pytest.mark.parametrize("command", ENVIRONMENTS, ids=str)
def test_pip_is_that_of_the_environment_which_a_page_tells_to_make(command: Command, tmp_path: Path) -> None:
    line = f"{' '.join(command.words)} && command -v pip"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=HELP_WITHIN_S, check=False
    )
    assert done.stdout == f"{tmp_path}/venv/bin/pip\n", done.stderr


@pytest.mark.parametrize("command", SCRIPTS, ids=str)
def test_a_script_is_there_and_can_be_started(command: Command) -> None:
    assert os.access(ROOT / command.words[0], os.X_OK)


def sources_of(script: str) -> str:
    """What decides which options a script takes: the modules that it starts and its commands, or its own text."""
    text = (ROOT / script).read_text()
    names = set(re.findall(r'-m ([\w.]+) "\$@"', text))
    if names:
        text = re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    specs = [spec for name in sorted(names) if (spec := find_spec(name)) is not None]
    files = [
        file for spec in specs for each in spec.submodule_search_locations or () for file in Path(each).glob("*.py")
    ]
    return "\n".join([text, *(file.read_text() for file in files)])


@pytest.mark.parametrize("command", [each for each in SCRIPTS if each.options and each not in DEMOS], ids=str)
def test_a_script_has_the_options_that_it_is_given(command: Command) -> None:
    check_options(command, sources_of(command.words[0]))


@pytest.mark.parametrize("command", PIP, ids=str)
def test_what_pip_is_to_install_can_be_asked_for(command: Command) -> None:
    """A checkout, or this project, has the extras that are named."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    check_options(command, helped(sys.executable, "-m", "pip", "install"))
    for wanted in (word for word in command.words[2:] if not word.startswith("-")):
        matched = re.fullmatch(r"([\w./-]+)(?:\[([\w,]+)\])?(==[\w.]+)?", wanted)
        assert matched is not None, wanted
        named = set((matched[2] or "").split(",")) - {""}
        assert not named or matched[1] in ("/path/to/checkout", DISTRIBUTION)
        assert named <= extras.keys()


@pytest.mark.jvm(needs="spark")
@pytest.mark.parametrize("command", DEMOS, ids=str)
def test_a_demo_has_the_options_that_it_is_given(command: Command) -> None:
    """Which demo it is the first option may say."""
    which = next((word for word in command.words[1:2] if word in DEMO_STARTS), "")
    given = Command(command.page, tuple(word for word in command.words if word != which))
    check_options(given, helped(*DEMO_STARTS[which]))


@pytest.mark.jvm(needs="spark")
@pytest.mark.parametrize("command", MODULES, ids=str)
def test_a_module_can_be_run_with_the_options_that_it_is_given(command: Command) -> None:
    _, _, module, *given = command.words
    if not module.startswith(USES):
        # It has no help, and does its work whatever it is told.
        assert find_spec(module) is not None
        assert not given
        return
    told = helped(sys.executable, "-m", module)
    check_options(command, told)
    # As the page says of each.
    check_options(Command(command.page, ("--bootstrap", "--master")), told)


@pytest.mark.jvm(needs="spark")
@pytest.mark.parametrize("command", SPARK_CLASSES, ids=str)
def test_sparks_own_classes_have_the_options_that_they_are_given(command: Command) -> None:
    check_options(command, helped(BIN / "spark-class", command.words[1]))


@pytest.mark.jvm
@pytest.mark.parametrize("command", TOOLS, ids=str)
def test_kafkas_own_tools_have_the_options_that_they_are_given(command: Command) -> None:
    done = run_kafka_tool(KAFKA_TOOLS[command.words[0]], "--help", check=False)
    check_options(command, done.stdout + done.stderr)
