"""``scripts/new-api`` and ``scripts/new-setting``: what they refuse, and that what they lay keeps all rules at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pybroker.apis import BY_KEY, INTER_BROKER_APIS
from pybroker_protocol import codec
from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.errors import ErrorCode
from tests.source_tree import ROOT

# A command may be hundreds of tests, or types of the whole package, beside two others like it.
COMMAND_TIMEOUT_S = 600

UNSERVED = sorted(name for key, name in NAMES.items() if key not in {*BY_KEY, *(api.key for api in INTER_BROKER_APIS)})
# An error of each group, of each partition, and of the whole, which any broker takes for the controller.
NEW_APIS: tuple[tuple[str, ...], ...] = (
    ("ShareGroupDescribe", "--route", "group"),
    ("ReadShareGroupState",),
    ("AddRaftVoter", "--route", "controller"),
)
NEW_SETTINGS: tuple[tuple[str, ...], ...] = (
    ("pybroker.stub.enable",),
    ("pybroker.stub.linger.ms", "--type", "LONG", "--default", "5", "--mode", "CLUSTER", "--of-topics"),
    ("pybroker.stub.names", "--type", "LIST", "--default", "a,b"),
)
BY_COMMAND = {"docs/reference.md", "pybroker/handlers/README.md"}  # scripts/docs.py, which the scripts run
# What judges the tables.
JUDGING = (
    "tests/test_api_table.py",
    "tests/config/test_log_config.py",
    "tests/config/test_own_settings.py",
    "tests/config/test_settings_table.py",
    "tests/config/test_used_settings.py",
    "tests/broker/test_each_permission.py",
    "tests/docs/test_pages.py::test_generated_tables_are_up_to_date",
)
# What judges sources, and what follows from a row.
JUDGING_SLOWLY = (
    "tests/test_house_rules.py",
    "tests/test_layers.py",
    "tests/broker/test_forwarder.py",
    "tests/broker/test_short_and_long_forms.py",
    "compat-tests/comparator/tests/test_differences.py",
    "compat-tests/comparator/tests/test_encoding.py",
    "compat-tests/mutants/tests/test_mutants.py",
)
# Of the checkout, not of the project.
LEFT_BEHIND = {"build", "data", "data-secure", "data-secure-keys", "dist", "tour-output"}


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """A function that imports a module of ``scripts/``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        yield import_module


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        ("new_api", ["ListGroups"], "ListGroups is served already"),
        ("new_api", ["Envelope"], "Envelope is served already"),
        ("new_api", ["ShareGroupDescribes"], "is no API of Kafka 4.4; did you mean ShareGroupDescribe?"),
        ("new_api", ["../share_fetch"], "'../share_fetch' is no API of Kafka 4.4"),
        ("new_api", ["Share\nFetch"], r"'Share\nFetch' is no API of Kafka 4.4"),
        ("new_api", [""], "'' is no API of Kafka 4.4"),
        ("new_api", [], "arguments are required: NAME"),
        ("new_api", ["ShareFetch", "ShareAcknowledge"], "unrecognized arguments: ShareAcknowledge"),
        ("new_api", ["ShareFetch", "--route", "nowhere"], "invalid choice: 'nowhere'"),
        ("new_setting", ["pybroker.metadata"], "pybroker.metadata is a setting already"),
        ("new_setting", ["num.partitions"], "num.partitions is a setting already"),
        ("new_setting", ["segment.ms"], "segment.ms is a setting already"),
        ("new_setting", ["num.partition"], "Kafka 4.4 has no setting of that name"),
        ("new_setting", ["pybroker"], "names of pybroker's own begin with pybroker."),
        ("new_setting", ["pybroker."], "is no name of a setting"),
        ("new_setting", ["pybroker.Linger.ms"], "is no name of a setting"),
        ("new_setting", ["pybroker.linger ms"], "is no name of a setting"),
        ("new_setting", ["pybroker.linger\n.ms"], "is no name of a setting"),
        ("new_setting", ["pybroker.linger.ms", "--type", "NUMBER"], "invalid choice: 'NUMBER'"),
        ("new_setting", ["pybroker.linger.ms", "--type", "INT", "--default", "soon"], "Not a number of type INT"),
        ("new_setting", ["pybroker.linger.ms", "--type", "DOUBLE", "--default", "NaN"], "no default that can be kept"),
    ],
)
def test_name_that_is_there_or_unknown_and_unclean_arguments_are_refused_in_one_line(
    scripts: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    arguments: Sequence[str],
    told: str,
) -> None:
    monkeypatch.delattr(scripts("stubs").Stubs, "write")  # the only function that changes the checkout
    assert scripts("stubs").run(script, scripts(script).make, arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert told in line


def test_file_that_is_there_is_not_written_over(scripts: Any, tmp_path: Path) -> None:
    stubs = scripts("stubs")
    (tmp_path / "there.py").write_text("kept\n")
    with pytest.raises(stubs.Refused, match=r"there\.py is there already"):
        stubs.Stubs(tmp_path).create("there.py", "new\n", "what it is")
    assert (tmp_path / "there.py").read_text() == "kept\n"


# --- what is laid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNSERVED)
def test_stub_of_each_api_that_is_not_served_answers_in_each_version(scripts: Any, name: str) -> None:
    new_api = scripts("new_api")
    api = new_api.api_of(name)
    messages: dict[str, Any] = vars(import_module(api.request.__module__))
    request = eval(new_api.Code(api).request(), dict(messages))
    handler: dict[str, Any] = {}
    exec(compile(new_api.handler(api), f"{api.module}.py", "exec"), handler)
    for version in range(api.versions[0], api.versions[1] + 1):
        asked = codec.decode(api.request, version, codec.encode(request, version))
        answer = handler["refuse"](None, asked, ErrorCode.UNSUPPORTED_VERSION)
        answered = codec.decode(api.response, version, codec.encode(answer, version))
        for step in api.steps:
            (answered,) = getattr(answered, step.answered.name)
        assert answered.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with some new APIs and settings."""
    copy = tmp_path_factory.mktemp("stubs") / "project"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.is_dir() and not path.name.startswith(".") and path.name not in LEFT_BEHIND:
            shutil.copytree(path, copy / path.name)
        elif path.is_file():
            shutil.copy2(path, copy / path.name)
    for arguments in NEW_APIS:
        run_in(copy, "scripts/new_api.py", *arguments)
    for arguments in NEW_SETTINGS:
        run_in(copy, "scripts/new_setting.py", *arguments)
    return copy


def run_in(copy: Path, *arguments: str) -> str:
    """What Python prints there, which imports the copy and not the checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(str(copy / part) for part in ("", "protocol", "compat-tests"))
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_is_laid_is_in_the_projects_style_and_passes_its_tests_at_once(scripts: Any, copy: Path) -> None:
    assert changed(copy) == BY_COMMAND | {path for paths in places(scripts).values() for path in paths}
    run_in(copy, "-m", "ruff", "check", "--no-cache", "-q", ".")
    run_in(copy, "-m", "ruff", "format", "--no-cache", "-q", "--check", ".")
    new = [path for path in changed(copy) if path.startswith("tests/broker/")]
    assert len(new) == len(NEW_APIS)
    run_in(copy, "-m", "pytest", "-q", "-p", "no:randomly", "-n", "0", *new, *JUDGING)


@pytest.mark.slow
def test_tests_of_the_sources_and_types_pass(copy: Path) -> None:
    run_in(copy, "-m", "mypy", *(path for path in changed(copy) if path.endswith(".py") and "tests/" not in path))
    run_in(copy, "-m", "pytest", "-q", "-p", "no:randomly", "-n", "0", *JUDGING_SLOWLY)


def test_five_places_are_touched_for_an_api_and_three_beside_reader_and_test_for_a_setting(scripts: Any) -> None:
    touched = places(scripts)
    assert {len(touched[name]) for name, *_ in NEW_APIS} == {5}
    assert [len(touched[name]) for name, *_ in NEW_SETTINGS] == [2, 3, 2]


def places(scripts: Any) -> dict[str, list[str]]:
    """The files that are made or get a row, by what they are for."""
    made = {}
    for script, wanted in (("new_api", NEW_APIS), ("new_setting", NEW_SETTINGS)):
        for name, *options in wanted:
            stubs, _ = scripts(script).make([name, *options])
            made[name] = [path for path, _ in stubs.made]
    return made


def changed(copy: Path) -> set[str]:
    """Sources and pages that are new or not what they are in the checkout."""
    paths = (path for folder in ("compat-tests", "docs", "pybroker", "tests") for path in (copy / folder).rglob("*"))
    return {
        name
        for path in paths
        if path.suffix in {".json", ".md", ".py"}
        and (
            not (ROOT / (name := path.relative_to(copy).as_posix())).exists()
            or (ROOT / name).read_bytes() != path.read_bytes()
        )
    }


def test_script_says_what_it_made_and_what_is_to_be_filled_in(
    scripts: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs = scripts("stubs")
    monkeypatch.setattr(stubs.Stubs, "write", lambda _: None)
    assert stubs.run("new-api", scripts("new_api").make, ["ShareFetch"]) == 0
    made, _, left = capsys.readouterr().out.partition("to be filled in:")
    for path in ("pybroker/apis.py", "pybroker/handlers/share_fetch.py", "tests/broker/test_share_fetch.py"):
        assert path in made
    assert "scripts/compare --write" in left
