"""Spark's own connector by what ``scripts/run --secure`` prints for it.  Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.secure_script import block_of, secure_broker

pytestmark = pytest.mark.jvm(needs="spark")


def test_sparks_own_connector_gets_in_by_what_a_secure_broker_tells(spark: Any, tmp_path: Path) -> None:
    with secure_broker(tmp_path) as served:
        code = block_of(served.before, "Spark")
        read, reader = code.splitlines()
        known: dict[str, Any] = {"spark": spark}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the line leaves the file to be closed by itself
            exec(read, known)
        options = {f"kafka.{name}": value for name, value in known["settings"].items()}
        rows = spark.createDataFrame([("k", "one"), ("k", "two")], "key string, value string")
        rows.write.format("kafka").options(topic="greetings", **options).save()
        source = eval(reader, known).option("subscribe", "greetings").option("startingOffsets", "earliest").load()
        found: list[bytes] = []
        query = (
            source.writeStream.foreachBatch(lambda batch, _: found.extend(bytes(row.value) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
        assert sorted(found) == [b"one", b"two"]
        assert served.stop() == 0
