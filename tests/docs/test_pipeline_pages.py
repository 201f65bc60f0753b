"""The pages on the pipeline: their examples run from top to end, and print what the page says. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from harness.apache_kafka import CONSUMER_GROUP_COMMAND, missing_requirement, run_kafka_tool

from pybroker.testing import Broker
from tests.docs.consoles import check_block
from tests.docs.pages import Example, examples
from tests.pipeline.conftest import spark
from tests.source_tree import ROOT

__all__ = ["spark"]

# The tour's page needs a database and has its test there (tests/pipeline/examples); that of clusters needs one
# (tests/pipeline/test_on_a_spark_cluster.py); those of Delta and of Declarative Pipelines begin sessions of their own
# (test_pages_with_their_own_spark.py).
ELSEWHERE = {"tour", "cluster", "delta", "declarative-pipelines"}
PAGES = sorted(
    path
    for path in (ROOT / "docs" / "pipeline").glob("*.md")
    if path.stem not in ELSEWHERE and examples("python", path)
)

LAG = ROOT / "docs" / "pipeline" / "lag.md"
# Where the page on lag has its broker.
LOCAL = "localhost:9092"

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_page_prints_what_it_says(page: Path, spark: Any) -> None:
    """A page's examples share their names, and the session that the quick start makes."""
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    # A task per micro-batch is enough, and every one costs.
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        for example in examples("python", page):
            paste(example, names)
    finally:
        for each in names.values():
            if isinstance(each, Broker):
                each.stop()


def test_lag_of_a_job_is_shown_by_the_commands_of_the_page(spark: Any, tmp_path: Path) -> None:
    first, *_ = examples("python", LAG)
    ((console,), (kafkas,)) = (examples(each, LAG) for each in ("console", "sh"))
    names: dict[str, Any] = {"spark": spark}
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        paste(first, names)
        bootstrap = names["broker"].bootstrap
        shown = console._replace(code=console.code.replace(LOCAL, bootstrap))
        assert check_block(shown, tmp_path, bootstrap) == 1
        if (reason := missing_requirement()) is not None:
            pytest.skip(reason)
        tool, *words = shlex.split(kafkas.code.replace(LOCAL, bootstrap))
        assert tool == "kafka-consumer-groups.sh"
        told = run_kafka_tool(CONSUMER_GROUP_COMMAND, *words).stdout
        assert re.search(r"^shop-orders-read +orders +0 +2 +3 +1 ", told, re.MULTILINE), told
    finally:
        if "broker" in names:
            names["broker"].stop()


def paste(example: Example, names: dict[str, Any]) -> None:
    """Run an example among the names of those before; it prints what its page says."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(example.code, example.page.name, "exec"), names)
    assert printed.getvalue() == (example.prints or ""), example
