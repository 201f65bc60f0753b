"""The page of the tour prints what it says. Starts PostgreSQL and a JVM, Spark's."""

from typing import Any

import pytest

from examples.tour.postgres import SUPERUSER, Postgres
from tests.docs.pages import examples
from tests.source_tree import ROOT

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "pipeline" / "tour.md"


def test_the_page_prints_what_it_says(spark: Any, postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"spark": spark, "url": postgres.jdbc_url, "user": SUPERUSER, "password": postgres.password}
    shown = examples("python", PAGE)
    assert len(shown) == 3
    for example in shown:
        exec(example.code, names)
        assert capsys.readouterr().out == example.prints
