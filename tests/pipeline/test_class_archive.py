"""An archive of Spark's classes: a JVM takes them from it, and passes over one that does not fit.  Starts JVMs."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from pybroker.pipeline import class_archive
from pybroker.pipeline.jars import JARS_DIR_VARIABLE
from pybroker.pipeline.spark_home import spark_home

pytestmark = pytest.mark.jvm(needs="spark")


def spark_version(*options: str) -> subprocess.CompletedProcess[str]:
    """What a JVM of Spark's says of itself."""
    home = spark_home()
    assert home is not None
    java_options = " ".join([class_archive.java_options(), *options])
    command = [str(home / "bin" / "spark-submit"), "--driver-java-options", java_options, "--version"]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)


def test_a_jvm_of_sparks_takes_its_classes_from_the_archive() -> None:
    assert class_archive.java_options(), "scripts/spark-setup makes it"
    said = spark_version("-Xlog:class+load").stdout
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in said


def test_sessions_here_and_executors_on_this_machine_use_it_and_others_do_not() -> None:
    from pybroker.pipeline.spark_session import defaults

    options = class_archive.java_options()
    assert options in defaults("local[*]")["spark.driver.defaultJavaOptions"]
    assert defaults("spark://127.0.0.1:7077")["spark.executor.defaultJavaOptions"] == options
    assert "spark.executor.defaultJavaOptions" not in defaults("spark://spark.example:7077")


def test_without_an_archive_nothing_is_asked_of_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pybroker.pipeline.spark_session import defaults

    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "jars"))
    assert class_archive.java_options() == ""
    assert "Shared" not in defaults("local[*]")["spark.driver.defaultJavaOptions"]


def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "jars"))
    path = class_archive.archive_path()
    assert path is not None
    path.parent.mkdir()
    path.write_bytes(b"no archive" * 1000)
    found = spark_version()
    assert found.stdout == ""
    assert "version 4" in found.stderr
    assert not {"cds", "archive", "shared"} & set(re.findall(r"\w+", found.stderr.lower()))


def test_where_there_is_no_java_an_archive_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(RuntimeError, match="there is no Java"):
        class_archive.make()
