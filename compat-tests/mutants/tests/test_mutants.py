"""What a mutant changes, what it may not do silently, and when it counts as caught."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from harness import results

from mutants import run
from mutants.catalogue import MUTANTS
from mutants.import_hook import install
from mutants.mutant import CANARY, EVERY, WIRE_TESTS, Edit, Mutant, check_applicable
from mutants.operators import always, instead, never, off_by_one
from mutants.places import NotApplicable, Sources
from mutants.questions import HANDLERS, questions, questions_of_handlers
from mutants.run import AT_ONCE_IN_CI, chosen_in_ci
from mutants.verdict import CAUGHT, SURVIVED, UNFIT, Verdict, judge

SOURCE = """
def grow(value: Rate, limit: int = 5):
    "grows"
    if value < limit and len(value.rows) != 0:
        value += 1  # a little
    return (value +
            limit)


class Crop:
    rows: int = 3

    def grow(self, value):
        def twice():
            return self.field.yields(value) + self.yields

        return twice() if 0 <= value < self.rows else value.yields(value.yields(1))
"""


def mutant(*edits: Edit) -> Mutant:
    return Mutant("a-mutant", "Something goes wrong.", edits, ("test_fetch.py::test_anything",))


def farm(folder: Path, **modules: str) -> Sources:
    """A package of these modules."""
    package = folder / "mutated"
    package.mkdir()
    for name, source in modules.items():
        (package / f"{name}.py").write_text(source)
    return Sources(package)


# --- finding places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("field.grow", "grow"),
        ("mutated.field.grow", "grow"),
        ("Crop.grow", "Crop.grow"),
        ("twice", "Crop.grow.twice"),
        ("Crop", "Crop"),
    ],
)
def test_a_place_is_the_end_of_a_dotted_name(tmp_path: Path, place: str, name: str) -> None:
    found = farm(tmp_path, field=SOURCE, other="def outgrow(): ...\n").locate(place)
    assert (found.module, found.name) == ("mutated.field", name)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("shrink", "nothing is called shrink"),
        ("row", "nothing is called row"),
        ("rows", "nothing is called rows"),
        ("grow", "grow is mutated.field.grow and mutated.field.Crop.grow"),
    ],
)
def test_what_is_nowhere_or_in_two_places_is_told_in_one_line(tmp_path: Path, place: str, told: str) -> None:
    with pytest.raises(NotApplicable) as raised:
        farm(tmp_path, field=SOURCE).locate(place)
    assert str(raised.value) == told


def test_a_definition_that_moves_to_another_file_keeps_its_mutants(tmp_path: Path) -> None:
    sources = farm(tmp_path, field="from mutated.elsewhere import Crop\n", elsewhere=SOURCE)
    assert list(mutant(Edit("twice", instead("field", "self"))).mutate(sources)) == ["mutated.elsewhere"]


# --- changing them ---------------------------------------------------------------------------------------------------


def changed(folder: Path, *edits: Edit) -> str:
    """The module with these edits, as Python writes it."""
    return ast.unparse(mutant(*edits).mutate(farm(folder, field=SOURCE))["mutated.field"])


@pytest.mark.parametrize(
    ("edit", "written", "becomes"),
    [
        (Edit("field.grow", always("limit")), "value < limit", "True"),
        (Edit("field.grow", never("rows", "value")), "len(value.rows) != 0", "False"),
        (Edit("field.grow", off_by_one("limit")), "value < limit", "value <= limit"),
        (Edit("Crop.grow", off_by_one("rows")), "0 <= value < self.rows", "0 < value <= self.rows"),
        (Edit("field.grow", instead("len", "1")), "len(value.rows)", "1"),
        (Edit("Crop.grow", instead("twice", "None")), "return twice() if", "return None if"),
        (Edit("twice", instead("yields", "0"), at=1), "self.field.yields(value)", "0"),
        (Edit("twice", instead("yields", "0"), at=2), "self.yields", "0"),
        (Edit("twice", instead("yields", "0"), EVERY), "self.field.yields(value) + self.yields", "0 + 0"),
        (Edit("Crop.grow", instead("yields", "0"), at=4), "value.yields(1)", "0"),
    ],
)
def test_an_operator_changes_what_it_finds_by_name_and_nothing_else(
    tmp_path: Path, edit: Edit, written: str, becomes: str
) -> None:
    whole = ast.unparse(ast.parse(SOURCE))
    assert whole.count(written) == 1
    assert changed(tmp_path, edit) == whole.replace(written, becomes)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (Edit("field.grow", always("rate")), "has this 0 times: comparison of rate"),
        (Edit("field.grow", always("value")), "has this 2 times: comparison of value"),
        (Edit("field.grow", never("limit", "rows")), "has this 0 times: comparison of limit and rows"),
        (Edit("field.grow", instead("Rate", "0")), "has this 0 times: use of Rate"),
        (Edit("field.grow", instead("rows", "0"), at=2), "has this 1 times: use of rows"),
        (Edit("field.grow", instead("rate", "0"), EVERY), "has this 0 times: use of rate"),
        (Edit("field.grow", off_by_one("rows")), "stays as it is: comparison of rows"),
    ],
)
def test_an_operator_that_does_not_apply_is_told_in_one_line_that_names_its_mutant(
    tmp_path: Path, edit: Edit, told: str
) -> None:
    with pytest.raises(NotApplicable) as raised:
        changed(tmp_path, edit)
    assert str(raised.value) == f"a-mutant: field.grow {told}"


def test_edits_of_one_place_follow_one_another(tmp_path: Path) -> None:
    first, second = Edit("field.grow", instead("len", "size()")), Edit("field.grow", instead("size", "value"))
    assert changed(tmp_path, first, second) == ast.unparse(ast.parse(SOURCE)).replace("len(value.rows)", "value")


def test_an_edit_that_is_no_python_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="a-mutant: invalid syntax"):
        changed(tmp_path, Edit("field.grow", instead("len", "=")))


# --- importing it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sources]:
    """Modules that can be imported, and are forgotten after the test."""
    sources = farm(tmp_path, field="def grow(value):\n    return value + len('limit')\n", other="def left(): len\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield sources
    for name in ("mutated.field", "mutated.other", "mutated"):
        sys.modules.pop(name, None)


SMALLER = Edit("grow", instead("len", "4"))


def test_a_mutant_is_imported_and_no_file_is_touched(sources: Sources, tmp_path: Path) -> None:
    before = {path: path.read_text() for path in tmp_path.rglob("*.py")}
    finder = install(mutant(SMALLER), sources)
    assert finder.imported == set()
    assert importlib.import_module("mutated.field").grow(1) == 5
    assert finder.imported == finder.modules == {"mutated.field"}
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_byte_code_of_the_real_module_is_not_taken_for_the_mutant(sources: Sources) -> None:
    assert importlib.import_module("mutated.field").grow(1) == 6
    del sys.modules["mutated.field"]
    install(mutant(SMALLER), sources)
    assert importlib.import_module("mutated.field").grow(1) == 5


def test_a_mutant_that_does_not_apply_is_not_installed(sources: Sources) -> None:
    with pytest.raises(NotApplicable):
        install(mutant(Edit("grow", always("limit"))), sources)
    assert importlib.import_module("mutated.field").grow(1) == 6


def test_other_modules_are_left_alone(sources: Sources) -> None:
    finder = install(mutant(Edit("left", instead("len", "2"))), sources)
    assert importlib.import_module("mutated.field").grow(1) == 6
    assert finder.imported == set()


def test_a_module_that_is_imported_already_cannot_be_mutated(sources: Sources) -> None:
    importlib.import_module("mutated.field")
    with pytest.raises(ImportError, match="too late"):
        install(mutant(SMALLER), sources)


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


def test_of_a_mutant_that_survives_is_told_what_it_changes_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    survivor = Mutant("a-mutant", "Bodies are ignored.", (Edit("liveness.decode", instead("compare_digest", "1")),), ())
    run.show([Verdict(survivor, SURVIVED), Verdict(survivor, CAUGHT, (NODE,))])
    assert len(capsys.readouterr().out.splitlines()) == 2
    run.show([Verdict(survivor, UNFIT), Verdict(survivor, SURVIVED)])
    place, before, after = capsys.readouterr().out.splitlines()[2:]
    assert place == "  pybroker.cluster.failure_detection.liveness.decode"
    assert before.startswith("    - hmac.compare_digest(")
    assert after == "    + 1"


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
    """The mutant changes with the code: it finds another name, or another number of it, or goes with its rule."""
    wrong = []
    for each in MUTANTS:
        try:
            check_applicable(each)
        except NotApplicable as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def test_every_test_that_a_trap_names_is_there() -> None:
    named = {CANARY, *(node_id.partition("[")[0] for each in MUTANTS for node_id in each.node_ids)}
    known = {
        f"{path}::{node.name}"
        for path in {node_id.partition("::")[0] for node_id in named}
        for node in ast.parse((run.ROOT / path).read_text()).body
        if hasattr(node, "name")
    }
    assert named <= known


def test_no_permission_is_asked_for_that_no_mutant_takes_away() -> None:
    """A method that asks is called where it is named, in a module of the handlers' folder."""
    asked = [
        (path.parent, question)
        for path in HANDLERS.rglob("*.py")
        for _, _, _, question in questions(ast.parse(path.read_text()))
    ]
    assert all(folder == HANDLERS and isinstance(question, ast.Call) for folder, question in asked)
    assert len(asked) == len(list(questions_of_handlers()))


def test_a_question_is_found_wherever_it_is_asked() -> None:
    source = """
class Handler:
    def handle(self, ctx):
        def may_see(topic):
            return ctx.authorize(1, 2, topic)

        ask = ctx.authorize
        return self.context.authorize_by_resource_type(3, 4) and [ctx.authorize(5, 6, t) for t in filter(may_see, "t")]
"""
    found = {(place, at, ast.unparse(question)) for place, at, _, question in questions(ast.parse(source))}
    assert found == {
        ("Handler.handle.may_see", 1, "ctx.authorize(1, 2, topic)"),
        ("Handler.handle", 2, "ctx.authorize"),
        ("Handler.handle", 1, "self.context.authorize_by_resource_type(3, 4)"),
        ("Handler.handle", 3, "ctx.authorize(5, 6, t)"),
    }


def test_seeds_that_follow_one_another_run_every_mutant() -> None:
    rounds = -(-len(MUTANTS) // AT_ONCE_IN_CI)
    for first in (0, 739_000):
        chosen = [chosen_in_ci(seed) for seed in range(first, first + rounds)]
        assert all(len(some) == AT_ONCE_IN_CI for some in chosen)
        assert {each.name for some in chosen for each in some} == {each.name for each in MUTANTS}
    assert chosen_in_ci(7) == chosen_in_ci(7) != chosen_in_ci(8)
