"""What is said of a database that does not answer.  Needs PySpark and no JVM."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("pyspark")


@pytest.mark.parametrize("is_over", [False, True])
def test_parameters_of_a_url_are_not_told(is_over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker.pipeline.postgres_database import Database, DatabaseGone

    ends = threading.Event()
    if is_over:
        ends.set()
    told: list[str] = []
    url = "jdbc:postgresql://h/shop?user=ann&password=hunter2"
    database = Database(url, {}, 60.0 if is_over else -1.0, told.append, ends)
    monkeypatch.setattr(database, "refusal", lambda _: "Connection to h:5432 refused")
    spark: Any = None
    with pytest.raises(DatabaseGone, match=r"^jdbc:postgresql://h/shop d.* not answer.*: Connection to h:5432") as gone:
        database.wait_until_it_answers(spark)
    assert "hunter2" not in f"{gone.value} {told}"
