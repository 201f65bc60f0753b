"""The workflow of a release: what its steps run here, as GitHub runs it, and what the pages say of its tags.

What needs GitHub, an account or Docker is not run.  ``test_wheel`` builds and installs, ``test_start_broker`` has the
action, ``test_workflows`` reads all workflows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from textwrap import dedent

import pytest

from pybroker import __version__
from tests.distribution.environments import INSTALLED_WITHIN_S, environment_with
from tests.source_tree import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = (ROOT / ".github" / "workflows" / "release.yml").read_text()
PAGES = [ROOT / "docs" / "github-actions.md", ROOT / "docs" / "releasing.md"]
PIPX = "pipx==1.18.4"
DATED = f"## {__version__} - 2026-12-24\n"


def run_step(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the lines of a step of the release, in a folder that stands for the checkout."""
    _, _, step = RELEASE.partition(f"name: {name}\n")
    lines = step.partition("run: |\n")[2].splitlines()
    script = dedent("\n".join(takewhile(lambda line: not line or line.startswith(" " * 10), lines)))
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "GITHUB_OUTPUT": str(folder / "outputs"), **variables}
    command = ["bash", "-e", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False
    )


@pytest.mark.parametrize(
    ("tag", "heading", "refusal"),
    [
        (f"v{__version__}", DATED, None),
        ("v9.9.9", DATED, f"::error::the tag is v9.9.9, and the package's version {__version__}\n"),
        (
            f"v{__version__}",
            f"## {__version__} - not released yet\n",
            f"::error::CHANGELOG.md has no section {__version__} with a date\n",
        ),
    ],
    ids=["right", "other tag", "no date"],
)
def test_release_of_another_version_or_without_a_date_is_refused(
    tmp_path: Path, tag: str, heading: str, refusal: str | None
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n- A change.\n")
    done = run_step("The tag, the package and the changelog name one version", tmp_path, TAG=tag)
    assert (done.returncode, done.stdout) == ((1, refusal) if refusal else (0, ""))
    outputs = tmp_path / "outputs"
    assert (outputs.read_text() if outputs.exists() else "") == ("" if refusal else f"version={__version__}\n")


def test_notes_of_a_release_are_its_section_with_links_that_lead_to_its_tag(tmp_path: Path) -> None:
    own, _, _ = (ROOT / "CHANGELOG.md").read_text().partition(f"## {__version__} - ")[2].partition("\n## ")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{DATED}{own}\n## 0.0.9 - 2026-01-01\n\n- An older change.\n")
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "a.whl").touch()
    (tmp_path / "bin").mkdir()
    github = tmp_path / "bin" / "gh"
    github.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > asked\n')
    github.chmod(0o700)
    where = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "owner/repository"}
    done = run_step("The release, with its section of the changelog", tmp_path, VERSION=__version__, **where)
    assert done.returncode == 0, done.stderr
    notes = (tmp_path / "notes.md").read_text()
    assert "- An older change." not in notes
    assert notes.count("\n- ") == own.count("\n- ") > 100
    docs = f"https://github.example/owner/repository/blob/v{__version__}/docs/"
    links = re.findall(r"\]\(([^)]+)\)", notes)
    assert links
    assert not [link for link in links if not link.startswith(docs)]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:4] == ["release", "create", f"v{__version__}", "release/a.whl"]
    assert asked[-2:] == ["--notes-file", "notes.md"]


@pytest.mark.slow
def test_sboms_have_what_an_install_consists_of(tmp_path: Path, wheel: Path) -> None:
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    # GitHub's machines have pipx.
    tools = environment_with(tmp_path / "tools", PIPX)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pipx").symlink_to(tools.folder / "bin" / "pipx")
    where = {"RUNNER_TEMP": str(tmp_path / "temp"), "PIPX_HOME": str(tmp_path / "pipx")}
    (tmp_path / "temp").mkdir()
    step = "What a base install, and one with the client commands, consists of"
    done = run_step(step, tmp_path, **where)
    assert done.returncode == 0, done.stderr
    base, cli = (components(tmp_path / f"pybroker-kafka-{extra}.cdx.json") for extra in ("base", "cli"))
    assert base["pybroker-kafka"] == cli["pybroker-kafka"] == __version__
    assert "uvloop" in base
    assert base.keys() < cli.keys()
    assert {"confluent-kafka", "typer"} <= cli.keys() - base.keys()


def components(sbom: Path) -> dict[str, str]:
    """Names and versions that a CycloneDX document lists."""
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    return {each["name"]: each["version"] for each in document["components"]}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_of_a_workflow_are_there_and_can_be_started(workflow: Path) -> None:
    named = set(re.findall(r"\bscripts/[\w-]+", workflow.read_text()))
    assert not [name for name in named if not os.access(ROOT / name, os.X_OK)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_tag_that_moves_is_the_first_number_of_the_version_and_starts_no_release(page: Path) -> None:
    major = __version__.partition(".")[0]
    assert set(re.findall(r"(?:OWNER/REPOSITORY@|the tag `)v(\d+)\b", page.read_text())) == {major}
    (pattern,) = re.findall(r'tags: \["v(.*)"\]', RELEASE)
    # Of GitHub's patterns this one reads as a regular expression, too.
    assert re.fullmatch(pattern, __version__)
    assert not re.fullmatch(pattern, major)
