"""The action for workflows of GitHub: what ``action.yml`` runs, as a process, and what it hands over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND
from harness.waiting import PATIENCE_S

from tests.source_tree import ROOT

SCRIPT = ROOT / "scripts" / "start-broker"
ACTION = (ROOT / "action.yml").read_text()
PAGE = (ROOT / "docs" / "github-actions.md").read_text()
# An input or an output.
NAME = re.compile(r"^  (\w+):$", re.MULTILINE)
INSTALLED_WITHIN_S = 300


class Started(NamedTuple):
    """What a run of the script has ended with, said, and put into the file of its outputs."""

    returncode: int
    said: str
    outputs: dict[str, str]


def brokers_below(folder: Path) -> list[psutil.Process]:
    """The brokers that have their data in the folder."""
    data = f"--data-dir {folder}/"
    running = psutil.process_iter(["cmdline"])
    return [each for each in running if data in " ".join(each.info["cmdline"] or ()) and each.is_running()]


@contextmanager
def started(folder: Path, variables: Mapping[str, str], timeout_s: float = PATIENCE_S) -> Iterator[Started]:
    """Run it as a step does; at the end its broker is stopped, as the runner stops it at the end of a job."""
    outputs = folder / "outputs"
    outputs.touch()
    environment = {**os.environ, "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(outputs), **variables}
    try:
        done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
        pairs = (line.partition("=") for line in outputs.read_text().splitlines())
        yield Started(done.returncode, done.stdout + done.stderr, {name: value for name, _, value in pairs})
    finally:
        left = brokers_below(folder)
        for each in left:
            each.terminate()
        assert psutil.wait_procs(left, PATIENCE_S)[1] == [], "the broker ends at SIGTERM"


def listed(bootstrap: str) -> str:
    command = [str(COMMAND), "topics", "list", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout


def test_step_ends_when_the_broker_serves_with_settings_and_topics(tmp_path: Path) -> None:
    variables = {
        "PYBROKER_COMMAND": str(COMMAND),
        "PYBROKER_PORT": "0",
        "PYBROKER_SETTINGS": "\n  # of this job\n  num.partitions=5\n  auto.create.topics.enable=false\n",
        "PYBROKER_TOPICS": "orders:3\nreturns\n",
    }
    with started(tmp_path, variables) as step:
        assert step.returncode == 0, step.said
        assert set(step.outputs) == {"bootstrap", "command", "log"}
        names = listed(step.outputs["bootstrap"])
        assert "orders" in names
        assert "returns" in names
        log = Path(step.outputs["log"]).read_text()
        assert "serves as node 1" in log
        assert step.outputs["command"] == str(COMMAND)


def test_command_of_the_page_that_ends_the_broker_finds_it_and_not_the_step_that_runs_it(tmp_path: Path) -> None:
    """A step's lines are a file, whose name alone is in the arguments of its shell."""
    (pattern,) = re.findall(r"- run: pkill --full '(.*)'$", PAGE, re.MULTILINE)
    with started(tmp_path, {"PYBROKER_COMMAND": str(COMMAND), "PYBROKER_PORT": "0"}):
        (broker,) = brokers_below(tmp_path)
        assert re.search(pattern, " ".join(broker.cmdline()))
    assert not re.search(pattern, f"/usr/bin/bash -e {tmp_path}/step.sh")


def test_port_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, {"PYBROKER_COMMAND": str(COMMAND), "PYBROKER_PORT": str(port)}) as step:
        assert step.outputs["bootstrap"] == f"127.0.0.1:{port}"


def test_refused_start_is_an_error_of_the_step_with_the_reason(tmp_path: Path) -> None:
    settings = "num.partitons=3"
    with started(
        tmp_path, {"PYBROKER_COMMAND": str(COMMAND), "PYBROKER_PORT": "0", "PYBROKER_SETTINGS": settings}
    ) as step:
        assert (step.returncode, step.outputs) == (1, {})
        (line,) = [line for line in step.said.splitlines() if line.startswith("::error")]
        assert "unknown setting 'num.partitons'; did you mean 'num.partitions'?" in line


def test_topic_that_is_refused_is_an_error_of_the_step(tmp_path: Path) -> None:
    with started(
        tmp_path, {"PYBROKER_COMMAND": str(COMMAND), "PYBROKER_PORT": "0", "PYBROKER_TOPICS": "no good"}
    ) as step:
        assert step.returncode == 1
        assert "::error title=pybroker::the topic no good could not be made" in step.said


def test_each_input_of_the_action_reaches_the_script_and_each_output_leaves_it() -> None:
    inputs, _, rest = ACTION.partition("\noutputs:\n")
    outputs, _, steps = rest.partition("\nruns:\n")
    names = NAME.findall(inputs)
    assert re.findall(r"(\w+): \$\{\{ inputs\.(\w+) \}\}", steps) == [
        (f"PYBROKER_{name.upper()}", name) for name in names
    ]
    script = SCRIPT.read_text()
    assert [name for name in names if f"PYBROKER_{name.upper()}" not in script] == []
    assert re.findall(r"printf '(\w+)=%s", script) == NAME.findall(outputs)
    assert "run: '\"$GITHUB_ACTION_PATH/scripts/start-broker\"'" in steps


def test_page_has_the_inputs_and_outputs_of_the_action() -> None:
    inputs, _, outputs = PAGE.partition("\n| output | what |\n")
    action_inputs, _, rest = ACTION.partition("\noutputs:\n")
    assert re.findall(r"^\| `(\w+)` \|", inputs, re.MULTILINE) == NAME.findall(action_inputs)
    assert re.findall(r"^\| `(\w+)` \|", outputs, re.MULTILINE) == NAME.findall(rest.partition("\nruns:\n")[0])
    used = re.findall(r"^          (\w+): ", inputs.partition("with:\n")[2].partition("- run")[0], re.MULTILINE)
    assert set(used) <= set(NAME.findall(action_inputs))


@pytest.mark.slow
def test_without_a_version_the_action_installs_its_own_checkout(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {"PYBROKER_PORT": "0", "PYBROKER_TOPICS": "orders", "PATH": path}
    with started(tmp_path, variables, INSTALLED_WITHIN_S) as step:
        assert step.returncode == 0, step.said
        assert step.outputs["command"].startswith(str(tmp_path))
        assert "orders" in listed(step.outputs["bootstrap"])
