"""The pages on the pipeline: their examples run from top to end, and print what the page says. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import examples
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
    for example in examples("python", page):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(example.code, f"{page.name}", "exec"), names)
        assert printed.getvalue() == (example.prints or ""), example
