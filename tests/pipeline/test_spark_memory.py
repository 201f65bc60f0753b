"""What a session that stays is given for its memory, and that the user's word is the last.  Starts no JVM."""

from pathlib import Path

import pytest

from pybroker.pipeline.spark_memory import INITIAL_HEAP, MALLOC, java_options, spare_malloc

OURS = f"-XX:+UseSerialGC -Xms{INITIAL_HEAP}"


def test_a_heap_follows_what_lives_in_it_below_the_bound_of_spark() -> None:
    options = java_options({}, {})
    assert options == OURS
    assert "-Xmx" not in options, "Spark refuses a bound among the options"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("spark.driver.memory", "4g"),
        ("spark.driver.extraJavaOptions", "-Dx=y -XX:+UseG1GC"),
        ("spark.driver.extraJavaOptions", "-XX:+UseZGC"),
        ("spark.driver.extraJavaOptions", "-Xms1g"),
        ("spark.driver.defaultJavaOptions", "-XX:InitialHeapSize=1g"),
    ],
)
def test_who_sets_the_heap_has_all_of_it(name: str, said: str, tmp_path: Path) -> None:
    assert java_options({name: said}, {}) == ""
    for between in (" ", "=", "\t", ": "):
        (tmp_path / "spark-defaults.conf").write_text(f"# a comment\n\nspark.ui.port 1\n {name}{between}{said}\n")
        assert java_options({}, {"SPARK_CONF_DIR": str(tmp_path)}) == ""


@pytest.mark.parametrize("name", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_java_is_never_given_a_second_collector(name: str) -> None:
    assert java_options({}, {name: "-Dx=y"}) == OURS
    assert java_options({}, {name: "-Dx=y -XX:+UseParallelGC"}) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        "--driver-memory 4g pyspark-shell",
        "--driver-memory=4g pyspark-shell",
        "--conf spark.driver.memory=4g pyspark-shell",
        "--name x -c 'spark.driver.extraJavaOptions=-Dx=y -XX:+UseZGC' pyspark-shell",
        "--driver-java-options '-Dx=y -XX:+UseParallelGC' pyspark-shell",
        "--properties-file FILE pyspark-shell",
    ],
)
def test_arguments_of_spark_submit_are_looked_at(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("spark.driver.extraJavaOptions -Dx=y \\\n -XX:+UseG1GC\n")
    given = arguments.replace("FILE", f"'{tmp_path / 'a file'}'")
    assert java_options({}, {"PYSPARK_SUBMIT_ARGS": given}) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("java-opts", "-Dx=y -XX:+UseG1GC"),
        ("spark-env.sh", "export SPARK_DRIVER_MEMORY=4g"),
        ("spark-env.sh", "X=1\n  SPARK_DRIVER_MEMORY=4g"),
        ("spark-env.sh", 'SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -XX:+UseG1GC"'),
        ("spark-env.sh", "own=-XX:+UseG1GC\nexport SPARK_SUBMIT_OPTS=$own"),
    ],
)
def test_files_beside_the_defaults_are_looked_at(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{said}\n")
    assert java_options({}, {"SPARK_CONF_DIR": str(tmp_path)}) == ""


def test_arguments_and_files_that_leave_the_heap_alone_leave_it_ours(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").write_text("#!/bin/sh\n# SPARK_DRIVER_MEMORY=4g\nSPARK_LOCAL_IP=::1 # -Xms1g\n")
    (tmp_path / "java-opts").write_text("-Dx=y\n")
    arguments = f"--executor-memory 4g --conf spark.ui.port=1 --properties-file {tmp_path / 'gone'} pyspark-shell"
    given = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": arguments}
    assert java_options({}, given) == OURS
    assert java_options({}, {"PYSPARK_SUBMIT_ARGS": "--conf 'x"}) == OURS


def test_options_that_leave_the_heap_alone_leave_it_ours(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# spark.driver.memory 4g\nspark.executor.memory 4g\n")
    given = {"spark.driver.extraJavaOptions": "-Dx=y -XX:-UsePerfData -XX:+UseStringDeduplication -Xss512k"}
    assert java_options(given, {"SPARK_HOME": str(tmp_path), "HOME": "-XX:+UseG1GC"}) == OURS


def test_what_the_environment_says_of_malloc_stays() -> None:
    environment = {"MALLOC_ARENA_MAX": "7"}
    spare_malloc(environment)
    assert environment == {**MALLOC, "MALLOC_ARENA_MAX": "7"}
