"""The table of keys × versions × agreement: what counts as what, and that it is whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import results

from comparator import agreement, run
from comparator.agreement import AGREEMENT, CLUSTER_AGREEMENT, document, gaps, kind_of, table, written_rows
from comparator.broker import UNREAD, Step
from comparator.compare import Exchange, Judged, Result
from comparator.diff import Difference
from comparator.differences import Meant
from comparator.encoding import Tree
from comparator.registry import Scenario, all_cluster_scenarios, all_scenarios
from comparator.wire import CLOSED, SILENT
from pybroker.apis import APIS

SERVED = {(api.name, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)}
MEANT = Meant("*", "*", "*", "*", "*", "a good reason")


def step(reply: Tree, api: str = "Heartbeat", version: int = 4, at_the_end: bool = False) -> Step:
    return Step(api, version, "", {}, reply, at_the_end)


def judged(meant: Meant | None) -> Judged:
    return Judged("s", "Heartbeat v4", Difference("error_code", 0, 1), meant)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"error_code": 0}, "ordinary"),
        ({"topics": [{"error_code": 0}, {"error_code": 3}]}, "invalid"),
        ({"results": [{"partition_error_code": 3}]}, "invalid"),
        (CLOSED, "invalid"),
        (SILENT, "invalid"),
    ],
)
def test_a_request_is_invalid_by_its_reply(reply: Tree, kind: str) -> None:
    assert kind_of(step(reply)) == kind
    assert kind_of(step(reply, at_the_end=True)) == ("boundary" if kind == "ordinary" else kind)


def test_replies_are_counted_by_how_they_agree() -> None:
    exchanges = [
        Exchange(step({"error_code": 0}), ()),
        Exchange(step({"error_code": 0}, at_the_end=True), (judged(MEANT), judged(MEANT))),
        Exchange(step({"error_code": 5}), (judged(MEANT), judged(None))),
    ]
    (row,) = [row for row in table([Result("s", exchanges)]) if (row.name, row.version) == ("Heartbeat", 4)]
    assert (row.ordinary, row.boundary, row.invalid) == (1, 1, 1)
    assert (row.agreed, row.meant, row.unmeant) == (1, 1, 1)


def test_replies_that_nobody_could_read_are_in_a_class_of_their_own() -> None:
    exchanges = [Exchange(step(UNREAD, at_the_end=True), ()), Exchange(step(CLOSED), ())]
    results = [Result("s", exchanges)]
    (row,) = [row for row in table(results) if (row.name, row.version) == ("Heartbeat", 4)]
    assert (row.ordinary, row.boundary, row.invalid, row.agreed, row.unread) == (0, 0, 1, 1, 1)
    assert written_rows(document(table(results), results)) == table(results)
    assert "1 replies compared, 1 answered or not" in run.counted(results)


def test_an_unread_reply_that_the_other_broker_did_not_give_counts_as_a_difference() -> None:
    (row,) = [
        row
        for row in table([Result("s", [Exchange(step(UNREAD), (judged(None),))])])
        if (row.name, row.version) == ("Heartbeat", 4)
    ]
    assert (row.unread, row.agreed, row.unmeant) == (1, 0, 1)


def test_words_that_no_scenario_has_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["produce", "nosuchword"])
    assert ended.value.code == 2
    assert "no scenario's name contains 'nosuchword'" in capsys.readouterr().err


def test_what_is_not_asked_is_a_gap() -> None:
    asked = Result("s", [Exchange(step({"error_code": 0}), ())])
    found = {(gap.name, gap.version, gap.kind) for gap in gaps(table([asked]))}
    assert ("Heartbeat", 4, "ordinary") not in found
    assert ("Heartbeat", 4, "invalid") in found
    assert ("Heartbeat", 3, "ordinary") in found


def test_requests_of_unserved_versions_are_in_no_row() -> None:
    asked = Result("s", [Exchange(step(CLOSED, version=99), ()), Exchange(step({}, api="observation"), ())])
    assert {(row.name, row.version) for row in table([asked])} == SERVED
    assert not any(row.invalid or row.ordinary for row in table([asked]))


def test_the_page_says_what_the_table_does() -> None:
    results = [Result("s", [Exchange(step({"error_code": 5}), (judged(MEANT),))])]
    rows = table(results)
    page = document(rows, results)
    assert written_rows(page) == rows
    assert "| Heartbeat | a good reason | 1 |" in page


def test_a_run_with_a_difference_is_written_for_the_report_and_not_as_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    monkeypatch.setattr(agreement, "AGREEMENT", tmp_path / "AGREEMENT.md")
    differing = Result("s", [Exchange(step({"error_code": 0}), (judged(None),))])

    @contextmanager
    def no_brokers(*_: object) -> Iterator[tuple[None, None]]:
        yield None, None

    monkeypatch.setattr(run, "started_brokers", no_brokers)
    monkeypatch.setattr(run, "all_scenarios", lambda: [Scenario("s", lambda _: None)])
    monkeypatch.setattr(run, "compare", lambda *_: differing)
    assert run.main(["--write"]) == 1
    assert [row["unmeant"] for row in results.read("wire") if (row["name"], row["version"]) == ("Heartbeat", 4)] == [1]
    assert not (tmp_path / "AGREEMENT.md").exists()


def test_every_served_version_stands_in_the_written_table_and_agrees() -> None:
    rows = written_rows(AGREEMENT.read_text())
    assert {(row.name, row.version) for row in rows} == SERVED, "run scripts/compare --write"
    assert not list(gaps(rows))
    assert all(row.agreed + row.meant == row.ordinary + row.boundary + row.invalid for row in rows)


@pytest.mark.parametrize(
    ("page", "scenarios"), [(AGREEMENT, all_scenarios), (CLUSTER_AGREEMENT, all_cluster_scenarios)]
)
def test_a_page_was_written_by_a_run_of_all_scenarios(page: Path, scenarios: Callable[[], list[Scenario]]) -> None:
    told = re.search(r"\((\d+) scenarios", page.read_text())
    assert told is not None
    assert int(told[1]) == len(scenarios()), "run scripts/compare --write, or --brokers 3 --write"
