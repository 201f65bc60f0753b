"""What `pipeline.session` sets, and that the caller's word is the last.  Starts a JVM."""

import subprocess
import sys
from typing import Any

import pytest


def test_nothing_of_spark_is_imported_before_it_is_asked_for() -> None:
    code = "import sys, pybroker.pipeline; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_pipeline_does_not_have_is_an_attribute_error() -> None:
    from pybroker import pipeline

    with pytest.raises(AttributeError, match="has no attribute 'sesion'"):
        _ = pipeline.sesion


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "spark://127.0.0.1:7077", "spark://localhost:1"])
@pytest.mark.jvm(needs="spark")
def test_spark_on_this_machine_stays_on_loopback(master: str) -> None:
    from pybroker.pipeline.spark_session import defaults

    assert defaults(master)["spark.driver.host"] == "127.0.0.1"


@pytest.mark.jvm(needs="spark")
def test_a_cluster_elsewhere_gets_the_addresses_that_it_finds() -> None:
    from pybroker.pipeline.spark_session import defaults

    assert "spark.driver.host" not in defaults("spark://spark.example:7077")


@pytest.mark.jvm(needs="spark")
def test_settings_are_passed_through_and_win(spark: Any) -> None:
    from pybroker import pipeline

    settings = {"spark.sql.session.timeZone": "Europe/Vienna", "spark.sql.shuffle.partitions": 3}
    again = pipeline.session("again", master="local[2]", settings=settings, connector=False)
    assert again is spark
    assert again.conf.get("spark.ui.enabled") == "false"
    assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    assert again.range(1).selectExpr("current_timezone() AS zone").collect()[0].zone == "Europe/Vienna"


@pytest.mark.jvm(needs="spark")
def test_tasks_import_the_pyspark_that_is_installed_and_no_zip(spark: Any) -> None:
    import pyspark

    def where(batches: Any) -> Any:
        import pyarrow as pa
        import pyspark as found

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"path": [found.__file__] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(where, "path string").collect()
    assert row.path == pyspark.__file__
