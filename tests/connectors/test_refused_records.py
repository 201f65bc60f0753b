"""The search for records that cannot be changed, as far as it needs no Spark."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


class Rows:
    """Rows that are there, and that no step may be given."""

    def toArrow(self) -> pa.Table:
        return pa.table({"_topic": ["a"], "_partition": [0], "_offset": [5]})


def test_search_ends_with_its_connector() -> None:
    from pybroker.connectors.kinds.refused_records import SearchEnded, refusals

    ends = threading.Event()
    ends.set()
    rows: Any = Rows()
    with pytest.raises(SearchEnded, match="stops while refused records are searched"):
        list(refusals(rows, [], ends))
