"""What a mutant changes, what it may not do silently, and when it counts as caught."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from harness import results
from mutants import run
from mutants.catalogue import MUTANTS
from mutants.import_hook import install
from mutants.mutant import CANARY, WIRE_TESTS, Edit, Mutant, NotApplicable, check_applicable, source_path
from mutants.run import AT_ONCE_IN_CI, chosen_in_ci
from mutants.verdict import CAUGHT, SURVIVED, UNFIT, Verdict, judge

from tests.source_tree import ROOT, parsed

SOURCE = "LIMIT = 5\n\n\ndef grow(value):\n    return value + LIMIT\n"


def mutant(*edits: Edit) -> Mutant:
    return Mutant("a-mutant", "Something goes wrong.", edits, ("test_fetch.py::test_anything",))


def edit(old: str, new: str, module: str = "mutated_module") -> Edit:
    return Edit(module, old, new)


# --- changing source -------------------------------------------------------------------------------------------------


def test_an_edit_replaces_its_text_and_nothing_else() -> None:
    assert edit("LIMIT = 5", "LIMIT = 4").apply(SOURCE) == SOURCE.replace("LIMIT = 5", "LIMIT = 4")


def test_text_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotApplicable, match="0 times"):
        edit("LIMIT = 6", "LIMIT = 4").apply(SOURCE)


def test_text_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(NotApplicable, match="2 times"):
        edit("LIMIT", "BOUND").apply(SOURCE)


def test_edits_of_one_module_follow_one_another() -> None:
    changes = mutant(edit("LIMIT = 5", "LIMIT = 4"), edit("LIMIT = 4", "LIMIT = 3"), edit("x", "y", module="other"))
    assert changes.mutate("mutated_module", SOURCE) == SOURCE.replace("LIMIT = 5", "LIMIT = 3")
    assert changes.modules == {"mutated_module", "other"}


@pytest.mark.parametrize("module", ["json", "pybroker.no_such_module"])
def test_only_modules_of_pybroker_are_mutated(module: str) -> None:
    with pytest.raises(NotApplicable, match="module"):
        check_applicable(mutant(edit("import", "import", module)))


def test_an_edit_that_changes_nothing_is_an_error() -> None:
    with pytest.raises(NotApplicable, match="does not change"):
        check_applicable(mutant(edit("PRODUCE_KEY = 0", "PRODUCE_KEY = 0", "pybroker.net.dispatch")))


def test_an_edit_that_is_no_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        check_applicable(mutant(edit("PRODUCE_KEY = 0", "PRODUCE_KEY =", "pybroker.net.dispatch")))


# --- importing it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and is forgotten after the test."""
    path = tmp_path / "mutated_module.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield path
    sys.modules.pop("mutated_module", None)


def test_a_mutant_is_imported_and_no_file_is_touched(module_path: Path) -> None:
    finder = install(mutant(edit("LIMIT = 5", "LIMIT = 4")))
    assert finder.imported == set()
    assert importlib.import_module("mutated_module").grow(1) == 5
    assert finder.imported == {"mutated_module"}
    assert module_path.read_text() == SOURCE
    assert [path.name for path in module_path.parent.iterdir()] == ["mutated_module.py"]


def test_byte_code_of_the_real_module_is_not_taken_for_the_mutant(module_path: Path) -> None:
    assert importlib.import_module("mutated_module").grow(1) == 6
    del sys.modules["mutated_module"]
    install(mutant(edit("LIMIT = 5", "LIMIT = 4")))
    assert importlib.import_module("mutated_module").grow(1) == 5


def test_a_mutant_that_does_not_apply_is_not_imported(module_path: Path) -> None:
    install(mutant(edit("LIMIT = 6", "LIMIT = 4")))
    with pytest.raises(NotApplicable):
        importlib.import_module("mutated_module")


def test_other_modules_are_left_alone(module_path: Path) -> None:
    install(mutant(edit("x", "y", module="another_module")))
    assert importlib.import_module("mutated_module").grow(1) == 6


def test_a_module_that_is_imported_already_cannot_be_mutated(module_path: Path) -> None:
    importlib.import_module("mutated_module")
    with pytest.raises(ImportError, match="too late"):
        install(mutant(edit("LIMIT = 5", "LIMIT = 4")))


# --- judging ---------------------------------------------------------------------------------------------------------

NODE = f"{WIRE_TESTS}/test_fetch.py::test_anything"
PASSED = {"when": "call", "kinds": []}
ASSERTION = {"when": "call", "kinds": ["AssertionError", "Exception"]}


def verdict(outcome: Mapping[str, object], canary: Mapping[str, object] | None = None, **more: list[str]) -> Verdict:
    outcomes = {CANARY: PASSED if canary is None else canary, NODE: outcome}
    report = {"outcomes": outcomes, "never_imported": [], "broker_errors": [], **more}
    return judge(mutant(), report, 1.0)


def test_a_failing_assertion_catches() -> None:
    found = verdict(ASSERTION)
    assert (found.outcome, found.caught_by) == (CAUGHT, (NODE,))


def test_a_client_that_waits_in_vain_catches() -> None:
    assert verdict({"when": "call", "kinds": ["TimeoutError", "OSError"]}).outcome == CAUGHT


def test_a_mutant_that_no_test_notices_survives() -> None:
    assert verdict(PASSED).outcome == SURVIVED


@pytest.mark.parametrize("kind", ["ImportError", "SyntaxError", "NameError"])
def test_code_that_cannot_run_is_not_caught(kind: str) -> None:
    assert verdict({"when": "call", "kinds": [kind, "Exception"]}).outcome == SURVIVED


def test_what_fails_before_the_test_begins_is_not_caught() -> None:
    assert verdict({**ASSERTION, "when": "setup"}).outcome == SURVIVED


def test_a_broker_that_does_not_work_is_no_mutant() -> None:
    assert verdict(ASSERTION, canary=ASSERTION).outcome == UNFIT
    assert verdict(ASSERTION, broker_errors=["handler of FetchRequest failed"]).outcome == UNFIT
    assert verdict(ASSERTION, never_imported=["pybroker.net.dispatch"]).outcome == UNFIT
    assert judge(mutant(), None, 1.0).outcome == UNFIT


def test_a_mutant_that_was_not_caught_is_given_a_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcomes in ([SURVIVED, CAUGHT], [UNFIT, SURVIVED], [CAUGHT]):
        coming = iter(outcomes)
        monkeypatch.setattr(run, "_run_once", lambda mutant, coming=coming: Verdict(mutant, next(coming)))
        assert [attempt.outcome for attempt in run.run_mutant(mutant())] == outcomes


def test_results_say_who_caught_which_trap_at_which_attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    run.write_results([[verdict(PASSED), verdict(ASSERTION)]])
    assert results.read("mutants") == [
        {
            "name": "a-mutant",
            "trap": "Something goes wrong.",
            "outcome": CAUGHT,
            "caught_by": [NODE],
            "seconds": 2.0,
            "attempts": [{"outcome": SURVIVED, "reason": ""}, {"outcome": CAUGHT, "reason": ""}],
        }
    ]


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_the_catalogue_is_large_enough_and_names_each_mutant_once() -> None:
    names = [each.name for each in MUTANTS]
    assert len(names) == len(set(names)) >= 40
    assert all(each.edits and each.tests and each.trap.endswith(".") for each in MUTANTS)


def test_every_mutant_applies_to_the_code_as_it_is() -> None:
    """Whoever changes a line that a mutant breaks changes the mutant with it."""
    sources = {module: source_path(module).read_text() for each in MUTANTS for module in each.modules}
    for each in MUTANTS:
        for module in each.modules:
            assert each.mutate(module, sources[module]) != sources[module]


def test_every_test_that_a_trap_names_is_there() -> None:
    known = {
        f"{path.name}::{node.name}"
        for path in (ROOT / WIRE_TESTS).glob("test_*.py")
        for node in parsed(path).body
        if hasattr(node, "name")
    }
    named = {test.partition("[")[0] for each in MUTANTS for test in each.tests}
    assert named <= known
    assert CANARY.removeprefix(f"{WIRE_TESTS}/") in known


def test_seeds_that_follow_one_another_run_every_mutant() -> None:
    rounds = -(-len(MUTANTS) // AT_ONCE_IN_CI)
    for first in (0, 739_000):
        chosen = [chosen_in_ci(seed) for seed in range(first, first + rounds)]
        assert all(len(some) == AT_ONCE_IN_CI for some in chosen)
        assert {each.name for some in chosen for each in some} == {each.name for each in MUTANTS}
    assert chosen_in_ci(7) == chosen_in_ci(7) != chosen_in_ci(8)
