"""The topics of the test driver, without Spark's JVM.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.mark.parametrize("bad", ["a topic that is not read", "a record that is none"])
def test_of_records_of_which_one_is_none_nothing_is_there(tmp_path: Path, bad: str) -> None:
    import pyarrow.parquet as pq

    from pybroker.pipeline.testing import Record
    from pybroker.pipeline.testing.piped_topics import PipedTopics

    topics = PipedTopics(MagicMock(), tmp_path)
    for topic in ("a", "b"):
        topics.stream(topic)
    wrong = {"c": [Record()]} if bad.startswith("a topic") else {"b": [Record(timestamp="yesterday")]}
    with pytest.raises(ValueError, match=r"does not read c|yesterday"):
        topics.add({"a": [Record("1")], **wrong}, 0)
    assert list(tmp_path.rglob("*.parquet")) == []
    topics.add({"a": [Record("2")]}, 0)
    (path,) = tmp_path.rglob("*.parquet")
    assert [(row["key"], row["offset"]) for row in pq.read_table(path).to_pylist()] == [(b"2", 0)]
