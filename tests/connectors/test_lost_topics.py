"""Topics that are deleted while a connector reads them: its reason names them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


def test_reason_of_a_deleted_topic_names_it_and_no_option_that_connectors_have_not() -> None:
    pytest.importorskip("pyspark")
    from pybroker.connectors.kinds.connector_runs import QueryRun
    from pybroker.pipeline.topics.range_reader import DataLoss

    loss = DataLoss("no such topic: orders")
    said = f"Failed when Python streaming data source perform latestOffset: Traceback\n  line\nDataLoss: {loss}\n"
    query: Any = SimpleNamespace(isActive=False, exception=lambda: said)
    work: Any = None
    assert QueryRun(query, work).failure == "DataLoss: no such topic: orders"
