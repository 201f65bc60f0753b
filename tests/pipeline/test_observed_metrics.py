"""What is heard of a query's metrics, by a listener whose session is a double.  No JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pybroker.pipeline.observed_metrics import ObservedMetrics
from tests.pipeline.test_progress import Listeners


class Heard:
    """A listener to the query ``q``, and what it has told."""

    def __init__(self) -> None:
        self.session = Listeners()
        self.told: list[Any] = []
        self.metrics = ObservedMetrics(cast(Any, self.session), "q", lambda name, values: self.told.append(values))

    def starts(self, name: str, run: str) -> None:
        for each in self.session.all:
            each.onQueryStarted(SimpleNamespace(name=name, runId=run))

    def progresses(self, run: str, value: int) -> None:
        for each in self.session.all:
            each.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(runId=run, observedMetrics={"m": value})))


def test_a_query_is_heard_of_from_its_first_micro_batch_until_the_close() -> None:
    heard = Heard()

    def start() -> str:
        heard.starts("another", "run-0")
        heard.starts("q", "run-1")
        heard.progresses("run-0", 0)
        heard.progresses("run-1", 1)
        return "the query"

    assert heard.metrics.begin(start) == "the query"
    heard.progresses("run-1", 2)
    heard.metrics.close()
    heard.progresses("run-1", 3)
    assert heard.told == [1, 2]


def test_a_query_that_does_not_start_leaves_no_listener() -> None:
    heard = Heard()

    def start() -> None:
        heard.metrics._jlistenerobj = object()
        raise ValueError("no such path")

    with pytest.raises(ValueError, match="no such path"):
        heard.metrics.begin(start)
    assert heard.session.all == []
    assert not hasattr(heard.metrics, "_jlistenerobj")
