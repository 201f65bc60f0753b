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


def test_piece_of_records_of_which_some_have_headers_is_what_spark_can_take() -> None:
    from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize, from_arrow_schema

    from pybroker.connectors.kinds.refused_records import piece_of

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([None, [{"key": "k", "value": b"1"}], None, []], pa.list_(header))
    found = pa.table({"_offset": [4, 5, 6, 7], "_headers": headers})
    for begin, length in ((0, 4), (1, 2), (2, 2), (3, 1)):
        piece = piece_of(found, begin, length)
        assert piece.to_pylist() == found.to_pylist()[begin : begin + length]
        _check_arrow_table_timestamps_localize(piece, from_arrow_schema(found.schema), True, "UTC")
