"""Spark's Python processes import the installed PySpark, which is compiled, where nobody has said which Spark it is.

Needs PySpark: marked like what starts a JVM.
"""

import os
from pathlib import Path

import pytest

from pybroker.pipeline.jars import JARS_DIR_VARIABLE
from pybroker.pipeline.spark_home import SPARK_HOME, spark_home, use_spark_home

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "cache" / "jars"))
    monkeypatch.delenv(SPARK_HOME, raising=False)
    return tmp_path / "cache"


def test_the_home_has_all_of_the_installed_one_but_its_zip(cache: Path) -> None:
    import pyspark

    home = spark_home()
    assert home is not None
    assert home == spark_home()
    assert home.is_relative_to(cache)
    assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()


def test_a_home_that_is_given_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPARK_HOME, "/opt/spark")
    use_spark_home()
    assert os.environ[SPARK_HOME] == "/opt/spark"


def test_where_no_folder_can_be_made_spark_has_its_own_home(cache: Path) -> None:
    cache.touch()
    assert spark_home() is None
    use_spark_home()
    assert SPARK_HOME not in os.environ
