"""The report's page from fixed results: nothing is missing, nothing is made up, and what clients say does no harm."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.bars import BARS
from report import markdown, page, proofs, wire
from report.blocks import Kind, Page, Tile
from report.parts import BENCH, NOT_RUN, PARTS, SCENARIOS, WIRE, PartRun, Run
from report.sections import page as page_of
from report.tests import samples

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Checks nesting as it reads; gathers the cells of tables, ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.rows: list[list[tuple[str, str]]] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags[tag] += 1
        self.ids.update(filter(None, [named.get("id")]))
        self.addresses += [value for name, value in attrs if name in ("href", "src", "xlink:href") and value]
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append(("", named.get("class") or ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"th", "td"} & set(self.open):
            text, kind = self.rows[-1][-1]
            self.rows[-1][-1] = (text + data.strip().replace("\u00a0", " "), kind)

    def row(self, first: str) -> list[tuple[str, str]]:
        (found,) = [row for row in self.rows if row and row[0][0] == first]
        return found


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def whole_page() -> Page:
    """Drawn once: plots take their time."""
    return page_of(samples.whole_run())


@pytest.fixture(scope="module")
def shown(whole_page: Page) -> str:
    return page.html(whole_page)


@pytest.fixture(scope="module")
def whole(shown: str) -> Reader:
    return read(shown)


@pytest.fixture(scope="module")
def shown_in_markdown(whole_page: Page) -> str:
    return markdown.render(whole_page)


def without_plots() -> Run:
    run = samples.whole_run()
    run.parts[BENCH].state = NOT_RUN
    return run


def test_every_client_has_its_cell_in_every_scenario(whole: Reader) -> None:
    assert whole.row("scenario")[1:] == [(name, "") for name in samples.CLIENTS]
    assert whole.row("batches are read")[1:] == [("✓ 2", "good"), ("✗ 1/2", "bad"), ("–", "skipped")]
    assert whole.row("seeks by time")[1:] == [("✓", "good"), ("", "absent"), ("–", "skipped")]
    assert whole.row("topic command")[1] == ("✓", "good")
    assert [text for text, _ in whole.row("passed")[1:]] == ["3", "1", "0"]


def test_every_client_and_application_has_its_version(whole: Reader) -> None:
    told = [[text for text, _ in row] for row in whole.rows if len(row) == 4]
    assert all([name, "v1", "Go", "ran"] in told for name in samples.CLIENTS)
    assert ["streams", "v4", "Java", "no java"] in told


def test_broker_at_an_address_is_told_with_it() -> None:
    run = without_plots()
    run.target = "example:9092"
    assert page_of(run).subject == "pybroker 9.8.7 at example:9092"


def test_skips_have_their_reason_and_failures_their_words(shown: str) -> None:
    assert "sarama is not built" in shown
    assert "kafkajs: batches are read (gzip)" in shown
    assert "batches are read; seeks by time" in shown


def test_what_clients_say_is_shown_and_not_obeyed() -> None:
    run = without_plots()
    run.parts[WIRE].prose = f"## Differences that are meant\n\n{samples.HOSTILE}\n"
    shown = page.html(page_of(run))
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 2
    assert "&lt;/td&gt;" in shown


def test_what_clients_say_is_no_markup_in_markdown(shown_in_markdown: str) -> None:
    lines = [line for line in shown_in_markdown.splitlines() if "<script" in line]
    assert len(lines) == 1
    assert lines[0].startswith("    "), "not in a block of code"


def test_page_is_one_file_that_asks_nobody_for_more(whole: Reader) -> None:
    assert all(address.startswith("#") for address in whole.addresses), whole.addresses
    assert set(whole.ids.values()) == {1}
    assert {address.removeprefix("#") for address in whole.addresses} <= set(whole.ids)
    assert whole.tags["link"] == whole.tags["script"] == whole.tags["img"] == 0


def test_every_metric_has_its_row_and_its_plot(whole: Reader, shown: str) -> None:
    found = samples.bench()["metrics"]
    drawn = {(metric["part"], metric["unit"]) for metric in found}
    assert whole.tags["svg"] == len(drawn)
    for metric in found:
        assert [metric["part"], metric["metric"], metric["unit"]] in [
            [text for text, _ in row[:3]] for row in whole.rows
        ]
    assert all(f">{metric['metric']}<" in shown for metric in found)
    assert ">≥ 3.5× Kafka, ≥ 0.45 of the floor<" not in shown, "a floor that was not measured places no bar"
    assert ">≥ 3.5× Kafka<" in shown
    assert ">≤ 300 ms<" in shown


def test_plots_take_their_colours_from_the_page_and_stand_alone_in_markdown(whole_page: Page, tmp_path: Path) -> None:
    figures = [
        figure for section in whole_page.sections for each in markdown.figures_of(section) for figure in each.figures
    ]
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert not re.findall(r"#[0-9a-f]{6}\b", figure.page_svg)
        assert "var(--pybroker)" in figure.page_svg
        assert "var(" not in figure.svg
        assert "#ffffff" in figure.svg, "no background of its own"


def test_every_bar_is_told_whether_it_is_met(whole: Reader) -> None:
    rows = {row[0][0]: row for row in whole.rows if row}
    assert all(bar.what in rows for bar in BARS)
    assert rows["tiny requests, 8×5"][1:] == [
        ("3.23×", ""),
        ("3.05–3.25", ""),
        ("pybroker", ""),
        ("≥ 3.5× Kafka", ""),
        ("missed", "bad"),
    ]
    assert rows["ready from exec"][4:] == [("≤ 300 ms", ""), ("met", "good")]
    assert rows["tiny requests, 8×5, p99"][3:] == [("pybroker", ""), ("", ""), ("", "")], "without a bar"
    assert rows["idle RSS"][1] == ("not measured", "")


def test_keys_and_versions_are_told_apart(whole: Reader) -> None:
    cells, sums = (row for row in whole.rows if row[0][0] == "18 ApiVersions")
    assert cells[1:6] == [("✓", "good"), ("?", "meant"), ("?", "meant"), ("✗ 1", "bad"), ("?", "meant")]
    assert [text for text, _ in sums[1:]] == ["6", "2", "4", "10", "1", "1"]


def test_mutant_that_survives_and_anomaly_that_is_found_stand_out(whole: Reader) -> None:
    assert whole.row("acks-0-answered")[2] == ("survived", "bad")
    assert whole.row("crc-unchecked")[2] == ("test_crc (at first: unfit)", "")
    assert whole.row("lost-write")[2] == ("1", "bad")
    assert whole.row("kgo")[2:] == [("1", "number"), ("1", "number"), ("1", "number"), ("TestB", "bad")]


def test_versions_that_differ_as_meant_do_not_agree_in_every_field(whole_page: Page) -> None:
    row = samples.wire()[0]
    compared = [row, {**row, "version": 1, "meant": 2}, {**row, "version": 2, "unmeant": 1}]
    made = wire.section(compared, "", [], "")
    assert made.tile == Tile(
        "keys × versions agree in every field; 1 differ only as meant, 1 otherwise", "1 of 3", Kind.BAD
    )
    assert wire.section(compared[:2], "", [], "").tile.kind is Kind.GOOD
    assert wire.agreement({**row, "agreed": 0}) == ("?", Kind.MEANT)


def test_nothing_of_nothing_is_not_good() -> None:
    entry = {**samples.SUITE_LIST[0], "outcomes": {"TestC": "skipped"}, "broken": []}
    missing = {**entry, "outcomes": {}, "missing": "go is not here"}
    untouched = {**samples.HISTORY, "anomalies": {"lost-write": 0}, "statistics": {"operations": 0}}
    made = [
        proofs.suites([], ""),
        proofs.suites([entry, missing], ""),
        proofs.mutants([]),
        proofs.histories(untouched),
        wire.section([], "", [], ""),
    ]
    assert [section.tile.kind for section in made] == [Kind.SKIPPED] * len(made)
    assert proofs.suite_row(missing)[-1] == ("not run: go is not here", Kind.SKIPPED)


@pytest.mark.parametrize(
    ("statistics", "told"),
    [
        ({"kills of the broker": 0, "clients killed or sent away": 0}, "with nobody killed"),
        (
            {"clients killed or sent away": 36, "kills of the broker": 3, "pauses of the broker": 0},
            "through clients killed or sent away (36), kills of the broker (3)",
        ),
    ],
)
def test_histories_tell_the_kills_that_there_were(statistics: dict[str, int], told: str) -> None:
    assert proofs.faults(statistics) == told


def test_findings_stand_as_they_were_written(whole: Reader) -> None:
    assert [text for text, _ in whole.row("1")] == ["1", "TestB fails"]


@pytest.mark.parametrize("name", PARTS)
def test_part_that_did_not_run_says_so_and_shows_no_figure(name: str, whole: Reader) -> None:
    run = without_plots()
    run.parts[name] = PartRun(reason="its machine is on fire")
    made = page_of(run)
    reader = read(page.html(made))
    assert sum(reader.tags.values()) < sum(whole.tags.values())
    assert page.html(made).count("its machine is on fire") >= 2
    assert "its machine is on fire" in markdown.render(made)
    assert not [row for row in reader.rows if row and row[0][0] == name and ("ran", "good") in row]


def test_nothing_ran_is_a_page_too() -> None:
    reader = read(page.html(page_of(Run("scripts/conformance --report", "127.0.0.1:9092", "then"))))
    assert reader.tags["svg"] == 0
    assert {row[2][0] for row in reader.rows if len(row) == 4 and row[0][0] in PARTS} == {"not run: left out"}


def test_tables_in_markdown_have_as_many_cells_in_every_row(shown_in_markdown: str) -> None:
    widths: list[set[int]] = [set()]
    for line in shown_in_markdown.splitlines():
        if line.startswith("|"):
            widths[-1].add(len(re.findall(r"(?<!\\)\|", line)))
        elif widths[-1]:
            widths.append(set())
    assert len(widths) > 6
    assert all(len(width) <= 1 for width in widths)


def test_markdown_names_only_plots_that_are_written(tmp_path: Path) -> None:
    page.write(samples.whole_run(), tmp_path)
    named = re.findall(r"\]\((plots/[^)]*)\)", (tmp_path / page.MARKDOWN).read_text())
    assert sorted(named) == sorted(f"plots/{path.name}" for path in (tmp_path / page.PLOTS).iterdir())
    assert named


def test_page_can_be_made_anew_from_its_document(tmp_path: Path) -> None:
    page.write(samples.whole_run(), tmp_path)
    first = (tmp_path / page.HTML).read_text()
    again = Run.from_json(json.loads((tmp_path / page.DOCUMENT).read_text()))
    assert again == samples.whole_run()
    page.write(again, tmp_path / "again")
    assert (tmp_path / "again" / page.HTML).read_text() == first


def test_document_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        Run.from_json({**samples.whole_run().to_json(), "format": 0})


@pytest.mark.parametrize(("exit_code", "succeeded"), [(0, True), (1, False), (None, True)])
def test_run_succeeded_when_every_part_that_was_started_did(exit_code: int | None, succeeded: bool) -> None:
    run = samples.whole_run()
    run.parts[SCENARIOS].exit_code = exit_code
    assert run.succeeded is succeeded
