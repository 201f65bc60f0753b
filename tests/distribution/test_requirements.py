"""A base install brings what a broker needs, and nothing of a client's."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from types import SimpleNamespace
from typing import Any

import pytest
from harness.waiting import PATIENCE_S

from pybroker import __version__
from pybroker.cli import requirements
from pybroker.cli.command_names import COMMANDS
from pybroker.extras import DISTRIBUTION, how_to_install
from tests.source_tree import BROKER, ROOT, WIRE, imports, python_files, relative

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Modules of the standard library, but of a later Python than the oldest that is served.
LATER = {"annotationlib", "compression"}
# What is only in an extra may be imported by these, and by nothing else.
PARTS_WITH_EXTRAS = (
    "pybroker/cli/",
    "pybroker/cluster/store/zookeeper/",
    "pybroker/connectors/",
    "pybroker/pipeline/",
    "pybroker/sql/",
    "pybroker/values/",
    "pybroker/security/bearer_tokens.py",
    "pybroker/security/certificate_authority.py",
    "pybroker/security/key_sets.py",
    "pybroker/security/tls_stores.py",
    "pybroker/testing/",
    "protocol/pybroker_protocol/construct_forms.py",
)


def names(declared: list[str]) -> set[str]:
    return {re.split(r"[\s<>=!;\[]", entry, maxsplit=1)[0].lower() for entry in declared}


def test_what_the_broker_imports_comes_with_a_base_install() -> None:
    base = names(PROJECT["dependencies"])
    distributions = packages_distributions()
    wrong = [
        f"{relative(path)}:{imported.line} imports {imported.module}"
        for path in python_files(BROKER, WIRE)
        if not relative(path).startswith(PARTS_WITH_EXTRAS)
        for imported in imports(path)
        if not imported.for_types_only
        and (package := imported.module.split(".")[0]) not in sys.stdlib_module_names | LATER
        and package not in {"pybroker", "pybroker_protocol"}
        and not {name.lower() for name in distributions.get(package, [package])} & base
    ]
    assert not wrong, "\n".join(wrong)


def test_one_client_library_serves_the_commands_spark_and_the_demo() -> None:
    """The others are the tests', which are as many different clients as users have."""
    others = {"kafka": "kafka-python", "aiokafka": "aiokafka"}
    wrong = [
        f"{relative(path)}:{imported.line} imports {imported.module}"
        for path in python_files(BROKER)
        for imported in imports(path)
        if imported.module.split(".")[0] in others
    ]
    assert not wrong, "\n".join(wrong)
    assert {extra for extra in EXTRAS if names(EXTRAS[extra]) & set(others.values())} == {"dev"}


def test_no_extra_but_its_own_brings_spark() -> None:
    def all_of(extra: str) -> set[str]:
        found: set[str] = set()
        for entry in EXTRAS[extra]:
            nested = re.fullmatch(rf"{DISTRIBUTION}\[([\w-]+)\]", entry)
            found |= all_of(nested[1]) if nested else names([entry])
        return found

    assert {extra for extra in EXTRAS if "pyspark" in all_of(extra)} == {"spark", "pipelines", "demo"}
    assert all_of("spark") - {"pyspark"} == all_of("spark-provided"), "where PySpark is there already"


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    """Make these distributions, and no others, the installed ones."""

    def installed_version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(requirements, "version", installed_version)


def test_every_requirement_of_the_commands_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {})
    assert sorted(requirements.unmet_requirements()) == sorted(EXTRAS["cli"])


@pytest.mark.parametrize(
    ("present", "is_met"),
    [("1.9.2", False), ("2.5.3", False), ("2.6", True), ("2.6.0.post1", True), ("2.7rc1", True), ("10.0", True)],
)
def test_an_older_client_library_does_not_serve_the_commands(
    monkeypatch: pytest.MonkeyPatch, present: str, is_met: bool
) -> None:
    others = dict.fromkeys(names(EXTRAS["cli"]), "99")
    installed(monkeypatch, {**others, "confluent-kafka": present})
    assert requirements.unmet_requirements() == ([] if is_met else ["confluent-kafka>=2.6"])


def base(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as of a base install."""
    program = """
import sys
from pybroker.cli import main
from pybroker.cli import requirements
requirements.unmet_requirements = lambda: ["typer>=0.12"]
main.main()
"""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_base_install_has_help_that_names_each_command_and_how_it_is_had(arguments: tuple[str, ...]) -> None:
    done = base(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: pybroker ")
    assert how_to_install("cli") in done.stdout
    assert [name for name in COMMANDS if name not in done.stdout] == []


def test_base_install_has_a_version() -> None:
    assert base("--version").stdout == f"pybroker {__version__}\n"
    assert __version__ == version(DISTRIBUTION)


def test_command_that_a_base_install_lacks_says_how_it_is_had() -> None:
    done = base("topics", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pybroker: `pybroker topics` needs typer>=0.12: {how_to_install('cli')}\n"


def test_command_that_there_is_not_is_wrong_use_of_a_base_install() -> None:
    done = base("topcis")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pybroker: there is no command 'topcis'; see `pybroker --help`\n"


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, f"{DISTRIBUTION}[cli]"),
        ('{"url": "file:///src/here", "dir_info": {"editable": true}}', "/src/here[cli]"),
        ('{"url": "file:///w/a.whl", "archive_info": {}}', f"{DISTRIBUTION}[cli] @ file:///w/a.whl"),
        ('{"url": "https://host/r", "vcs_info": {"vcs": "git"}}', f"{DISTRIBUTION}[cli] @ git+https://host/r"),
    ],
)
def test_extra_is_installed_from_where_the_distribution_came(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, what: str
) -> None:
    found = SimpleNamespace(read_text=lambda name: origin)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    assert how_to_install("cli") == f"pip install '{what}'"
