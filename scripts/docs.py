"""Fill the generated parts of the pages: the APIs, the defaults that differ from Kafka's, pybroker's own settings, the
benchmark's table, what ``pybroker.testing`` has, and the map of files in the README of each folder.

Run it with ``.venv/bin/python scripts/docs.py``; ``tests/docs`` fails when a page is not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from pybroker.apis import APIS
from pybroker.config.broker import OVERRIDDEN_DEFAULTS
from pybroker.config.own_settings import OWN_SETTINGS
from pybroker.config.schema import value_text
from pybroker.testing import Broker, Cluster, Security

ROOT = Path(__file__).resolve().parents[1]
BENCH_RESULTS = ROOT / "bench" / "RESULTS.md"
PLUGIN = ROOT / "pybroker" / "testing" / "pytest_plugin.py"
# Folders with a README that describes their modules, besides those of the pages.
MAPPED = ("pybroker", "protocol", "compat-tests", "bench", "examples")
MANY_ALIKE = ("messages", "tests")  # a row for the folder, and none for its modules
# Of each table of loads (`bench.report.BAR_COLUMNS`).
LOADS = "| load | measured | rounds | ahead | bar | met |"
PICTURE = "![How many times better than Apache Kafka each load is](bench/comparison.svg)"


def api_table() -> str:
    """One row per row of the API table."""
    rows = ["| key | API | versions |", "|---:|---|---|"]
    for api in APIS:
        low, high = api.versions
        note = " (where a client-metrics subscription exists)" if api.key in (71, 72) else ""
        rows.append(f"| {api.key} | {api.name} | {low if low == high else f'{low}–{high}'}{note} |")
    return "\n".join(rows)


def defaults_table() -> str:
    """The defaults that are not Kafka's, and why."""
    rows = ["| setting | default here | when | why |", "|---|---|---|---|"]
    for row in OVERRIDDEN_DEFAULTS:
        names = ", ".join(f"`{name}`" for name in row.names.split(", "))
        rows.append(f"| {names} | {row.default} | {row.when} | {row.reason} |")
    return "\n".join(rows)


def own_settings_table() -> str:
    """The settings that Kafka does not have."""
    rows = ["| setting | default | what |", "|---|---|---|"]
    for row in OWN_SETTINGS:
        default = value_text(row.default)
        name = f"`{row.name}`{', of a topic too' if row.of_topics else ''}"
        rows.append(f"| {name} | {'unset' if default is None else default} | {_in_a_cell(row.words)} |")
    return "\n".join(rows)


def bench_table() -> str:
    """The short table of what the benchmark wrote last, and what Apache Kafka wins of all that it wrote."""
    if not BENCH_RESULTS.exists():
        return "Run `scripts/bench` to measure both on your machine."
    results = BENCH_RESULTS.read_text()
    head, _, rest = results.partition("## At a glance")
    table = rest.partition("\n## ")[0].strip()
    day = re.search(r"^- Command: .*?, (\d{4}-\d\d-\d\d) ", head, re.MULTILINE)
    measured = "" if day is None else f"Measured on {day[1]}. "
    where = "[Every load, its bar and the circumstances](bench/RESULTS.md)."
    return f"{PICTURE}\n\n{table}\n\n{kafka_wins(results)}\n\n{measured}{where}"


def kafka_wins(results: str) -> str:
    """A sentence of the loads that Apache Kafka wins, from all tables of loads of ``bench/RESULTS.md``."""
    loads = []
    for text in results.split(LOADS)[1:]:
        rows = takewhile(lambda line: line.startswith("|"), text.splitlines()[2:])
        loads += [[cell.strip() for cell in row.split("|")[1:5]] for row in rows]
    compared = [(load, measured, ahead) for load, measured, _, ahead in loads if ahead]
    assert compared, "bench/RESULTS.md has no table of loads"
    won = [f"{load} ({measured})" for load, measured, ahead in compared if "Kafka" in ahead]
    if not won:
        return f"Apache Kafka wins none of the {len(compared)} loads that both run."
    which = "; ".join(won)
    return f"Apache Kafka wins {len(won)} of {len(compared)} loads (pybroker ÷ Kafka in parentheses): {which}."


def testing_classes() -> str:
    """The classes of ``pybroker.testing``: how they are made, and their public members, from their docstrings."""
    parts = []
    for kind, has_members in ((Broker, True), (Cluster, True), (Security, False)):
        parts += [f"## {kind.__name__}", f"```text\n{_called(kind.__name__, kind)}\n```", _prose(kind)]
        for name, member in vars(kind).items() if has_members else ():
            if isinstance(member, property):
                parts += [f"### {kind.__name__}.{name}", _prose(member)]
            elif inspect.isfunction(member) and not name.startswith("_"):
                parts += [f"### {kind.__name__}.{name}()", f"```text\n{_called(name, member)}\n```", _prose(member)]
    return "\n\n".join(parts)


def testing_fixtures() -> str:
    """The fixtures of the pytest plugin, which is read and not imported: pytest hides their functions."""
    rows = ["| fixture | scope | what |", "|---|---|---|"]
    for node in ast.parse(PLUGIN.read_text()).body:
        decorators = [ast.unparse(each) for each in node.decorator_list] if isinstance(node, ast.FunctionDef) else []
        found = next((each for each in decorators if each.startswith("pytest.fixture")), None)
        if isinstance(node, ast.FunctionDef) and found is not None:
            scope = "test run" if "session" in found else "test"
            told = _markdown(ast.get_docstring(node) or "").replace("\n\n", " ")
            rows.append(f"| `{node.name}` | {scope} | {_in_a_cell(told)} |")
    return "\n".join(rows)


def file_map(folder: Path, page: Path, *, files: bool = True) -> str:
    """A row per module of a folder and of the folders below it that have no README, or per folder alone.

    Paths are as the page has them, which lies in that folder or above.
    """
    rows = [f"| {name} | {_in_a_cell(words)} |" for name, words in _entries(folder, page.parent, files)]
    return "\n".join([f"| {'file' if files else 'folder'} | subject |", "|---|---|", *rows])


def _entries(folder: Path, base: Path, files: bool) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*.py")) if files else ():
        if path.name != "__init__.py":
            yield f"`{path.relative_to(base).as_posix()}`", _subject(path)
    for path in sorted(each.parent for each in folder.glob("*/__init__.py")):
        name, readme = f"`{path.relative_to(base).as_posix()}/`", path / "README.md"
        has_own = readme.exists()
        yield f"[{name}]({readme.relative_to(base).as_posix()})" if has_own else name, _subject(path / "__init__.py")
        if files and not has_own and path.name not in MANY_ALIKE:
            yield from _entries(path, base, files)


def _subject(module: Path) -> str:
    """The first paragraph of a module's docstring."""
    return _markdown(ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


def _called(name: str, function: Callable[..., Any]) -> str:
    """How it is called, a line for each parameter where there are several."""
    signature = inspect.signature(function)
    words: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        default = parameter.default
        shown = dict(default) if isinstance(default, Mapping) else default
        given = "" if default is parameter.empty else f" = {shown!r}"
        words.append(f"{parameter.name}: {_annotation(parameter.annotation)}{given}")
    returned = None if inspect.isclass(function) else signature.return_annotation
    gives = "" if returned in {None, "None"} else f" -> {returned}"
    if len(words) <= 1:
        return f"{name}({', '.join(words)}){gives}"
    lines = "".join(f"    {word},\n" for word in words)
    return f"{name}(\n{lines}){gives}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(annotation.__forward_arg__)  # a NamedTuple's


def _in_a_cell(text: str) -> str:
    """Text as it may stand in a table."""
    return text.replace("|", "\\|")


def _prose(documented: object) -> str:
    return _markdown(inspect.getdoc(documented) or "")


def _markdown(docstring: str) -> str:
    """A docstring's paragraphs, each on a line."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    return "\n\n".join(paragraphs).replace("``", "`")


def maps() -> dict[str, dict[str, Callable[[], str]]]:
    """The READMEs of folders that have a map of their files or folders, by their paths."""
    found: dict[str, dict[str, Callable[[], str]]] = {}
    for path in (path for folder in MAPPED for path in sorted((ROOT / folder).rglob("README.md"))):
        text = path.read_text()
        parts: dict[str, Callable[[], str]] = {
            "files": partial(file_map, path.parent, path),
            "folders": partial(file_map, path.parent, path, files=False),
        }
        wanted = {name: part for name, part in parts.items() if f"<!-- {name}:begin -->" in text}
        if wanted:
            found[path.relative_to(ROOT).as_posix()] = wanted
    return found


# Which page has which generated parts.
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"bench": bench_table},
    "DESIGN.md": {"folders": partial(file_map, ROOT / "pybroker", ROOT / "DESIGN.md", files=False)},
    "docs/reference.md": {"apis": api_table, "defaults": defaults_table, "own-settings": own_settings_table},
    "docs/testing-api.md": {"fixtures": testing_fixtures, "classes": testing_classes},
    **maps(),
}


def filled(page: str, text: str) -> str:
    """A page's text with every generated part renewed."""
    for name, content in PAGES[page].items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        assert found, f"{page} has no {begin}"
        assert ended, f"{page} has no {end}"
        text = f"{head}{begin}\n{content()}\n{end}{tail}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(page, path.read_text()))
