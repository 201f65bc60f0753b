"""lib-pybroker brings a package called pybroker, too: beside it an import says so in a sentence, in either order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from pybroker.extras import DISTRIBUTION, OTHERS_FILE, SHARED_PACKAGE
from tests.source_tree import BROKER, ROOT

OURS = ("__init__.py", "__main__.py", "extras.py", "config", "cli", "testing")
# What lib-pybroker's own __init__.py comes to: it imports its settings from `pybroker.config`.
THEIRS = "from pybroker.config import StrategyConfig as StrategyConfig\n"


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """A folder with this package in it, as an installation has it."""
    (tmp_path / "pybroker").mkdir()
    for name in OURS:
        source, target = BROKER / name, tmp_path / "pybroker" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def imported(site_packages: Path, module: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site_packages}:{ROOT / 'protocol'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(
        command, env=environment, cwd=site_packages, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


MODULES = ("pybroker", "pybroker.cli.main", "pybroker.testing.pytest_plugin", "pybroker.config.settings")


@pytest.mark.parametrize("module", MODULES[:3])
def test_alone_the_package_is_imported(site_packages: Path, module: str) -> None:
    done = imported(site_packages, module)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", MODULES)
def test_installed_over_lib_pybroker_it_says_so_at_any_import(site_packages: Path, module: str) -> None:
    (site_packages / "pybroker" / OTHERS_FILE).touch()
    done = imported(site_packages, module)
    assert done.stderr.splitlines()[-1] == f"ImportError: {SHARED_PACKAGE}"


@pytest.mark.parametrize("module", MODULES)
def test_with_lib_pybroker_installed_over_it_it_says_so_at_any_import(site_packages: Path, module: str) -> None:
    (site_packages / "pybroker" / OTHERS_FILE).touch()
    (site_packages / "pybroker" / "__init__.py").write_text(THEIRS)
    done = imported(site_packages, module)
    assert done.stderr.splitlines()[-1] == f"ImportError: {SHARED_PACKAGE}"


def test_what_is_looked_for_is_none_of_the_own_files() -> None:
    assert not (BROKER / OTHERS_FILE).exists()
    assert not (BROKER / OTHERS_FILE.removesuffix(".py")).exists()


def test_sentence_names_both_and_what_to_type() -> None:
    assert f"pip uninstall {DISTRIBUTION} lib-pybroker" in SHARED_PACKAGE
    assert "\n" not in SHARED_PACKAGE
