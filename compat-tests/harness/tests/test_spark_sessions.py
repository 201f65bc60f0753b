"""The session that tests share.  Starts a JVM, Spark's.

Needs what `scripts/spark-setup` installs; without it this test fails, and does not skip.
"""

from __future__ import annotations

import pytest

from examples.tour.postgres import DRIVER_JAR
from harness.spark_sessions import SparkSessions

pytestmark = pytest.mark.jvm(needs="spark")

PARTITIONS, ZONE = "spark.sql.shuffle.partitions", "spark.sql.session.timeZone"
# As the other tests, so that no other session is started.
PACKAGES = [DRIVER_JAR]


def test_a_borrower_finds_the_settings_of_the_start_whatever_another_one_has_set(spark_sessions: SparkSessions) -> None:
    with spark_sessions.lend(packages=PACKAGES) as session:
        session.conf.set(PARTITIONS, "7")
        session.conf.set(ZONE, "Europe/Vienna")
        session.conf.set("spark.sql.anything", "x")
    with spark_sessions.lend(packages=PACKAGES) as again:
        assert again is session
        assert [again.conf.get(name, None) for name in (PARTITIONS, ZONE, "spark.sql.anything")] == ["2", "UTC", None]


def test_a_query_that_a_borrower_left_is_stopped(spark_sessions: SparkSessions) -> None:
    with spark_sessions.lend(packages=PACKAGES) as session:
        query = session.readStream.format("rate").load().writeStream.format("noop").start()
    assert not query.isActive
