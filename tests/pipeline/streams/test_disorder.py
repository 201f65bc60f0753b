"""Records out of order by hours, in a job under the test driver. Starts a JVM, but no broker.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


def hourly(topics: Any) -> Any:
    """Counts per key and hour; what comes up to six hours late counts."""
    from pyspark.sql import functions as F

    from pybroker.pipeline import Output

    records = topics.stream("readings").withWatermark("timestamp", "6 hours")
    counts = records.groupBy(F.window("timestamp", "1 hour").alias("hour"), "key").count()
    rows = counts.selectExpr("date_format(hour.start, 'HH') as key", "string(count) value")
    return {"counts": Output(rows, "update")}


def test_records_out_of_order_by_hours_count_within_the_watermark_and_are_counted_as_late_beyond_it(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    def reading(at: str) -> Record:
        return Record("s1", "", f"2026-01-01T{at}Z")

    driver = drive(hourly)
    driver.pipe("readings", reading("12:30:00"), reading("07:30:00"), reading("12:31:00"))
    driver.pipe("readings", reading("07:40:00"), reading("06:40:00"), reading("03:00:00"), reading("05:59:59"))
    assert driver.table("counts") == {"06": 1, "07": 2, "12": 2}
    assert driver.late_rows("counts") == 2
    driver.pipe("readings", reading("20:30:00"))
    driver.pipe("readings", reading("13:30:00"), reading("14:30:00"))
    assert driver.table("counts") == {"06": 1, "07": 2, "12": 2, "14": 1, "20": 1}
    assert driver.late_rows("counts") == 3
