"""Fill the generated parts of the pages: the APIs, the defaults that differ from Kafka's, the benchmark's table.

Run it with ``.venv/bin/python scripts/docs.py``; ``tests/docs`` fails when a page is not what it would write.
"""

from __future__ import annotations

import re
from pathlib import Path

from pybroker.apis import APIS
from pybroker.config.broker import OVERRIDDEN_DEFAULTS

ROOT = Path(__file__).resolve().parents[1]
BENCH_RESULTS = ROOT / "bench" / "RESULTS.md"
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


def bench_table() -> str:
    """The short table of what the benchmark wrote last."""
    if not BENCH_RESULTS.exists():
        return "Run `scripts/bench` to measure both on your machine."
    head, _, rest = BENCH_RESULTS.read_text().partition("## At a glance")
    table = rest.partition("\n## ")[0].strip()
    day = re.search(r"^- Command: .*?, (\d{4}-\d\d-\d\d) ", head, re.MULTILINE)
    measured = "" if day is None else f"Measured on {day[1]}. "
    where = "Every load, its bar and the circumstances: [bench/RESULTS.md](bench/RESULTS.md)."
    return f"{PICTURE}\n\n{table}\n\n{measured}{where}"


# Which page has which generated parts.
PAGES = {
    "README.md": {"bench": bench_table},
    "docs/reference.md": {"apis": api_table, "defaults": defaults_table},
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
