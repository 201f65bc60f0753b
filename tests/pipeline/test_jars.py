"""Where jars come from, and what is said where they cannot be had.  One test fetches, where there is a network."""

import socket
from pathlib import Path
from zipfile import is_zipfile

import pytest

from pybroker.pipeline import JarsMissing
from pybroker.pipeline.jars import CONNECTOR, JARS_DIR_VARIABLE, connector_jars, jars, jars_dir, packages

# Of the connector's the smallest.
TOKEN_PROVIDER = CONNECTOR[1]
DELTA = "io.delta:delta-spark_2.13:4.0.0"
MAVEN_CENTRAL = ("repo1.maven.org", 443)
# Nobody listens there.
NO_NETWORK = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "jars"))
    return tmp_path / "jars"


def test_a_jar_that_is_at_hand_is_taken(folder: Path) -> None:
    folder.mkdir()
    (folder / "tool-1.0.jar").touch()
    assert jars(["org.example:tool:1.0"]) == [folder / "tool-1.0.jar"]


def test_jars_lie_in_the_users_cache_unless_a_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(JARS_DIR_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars_dir() == tmp_path / "pybroker" / "jars"


def test_what_is_no_coordinate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected group:artifact:version, got spark-avro\.jar"):
        jars(["spark-avro.jar"])


def test_a_package_that_is_at_hand_with_what_it_needs_is_taken(folder: Path) -> None:
    folder.mkdir()
    for name in ("tool-1.0.jar", "part-2.0.jar"):
        (folder / name).touch()
    (folder / "tool-1.0.jar.packages").write_text("tool-1.0.jar\npart-2.0.jar\n")
    assert packages(["org.example:tool:1.0"] * 2) == [folder / "tool-1.0.jar", folder / "part-2.0.jar"]


def test_the_connector_is_that_of_the_installed_spark(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from pybroker.pipeline import jars as module

    asked: list[str] = []

    def fetch(coordinates: list[str], listing: Path | None = None) -> None:
        asked.extend(coordinates)
        if listing is not None:
            listing.write_text("")

    folder.mkdir()
    monkeypatch.setattr(module, "_fetch", fetch)
    connector_jars("4.2.1")
    assert asked == [*CONNECTOR]
    connector_jars("4.3.0")
    assert asked[len(CONNECTOR) :] == ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"]


@pytest.mark.jvm(needs="spark")
def test_a_package_that_was_put_there_is_taken_alone_with_a_warning_where_nothing_can_be_fetched(
    monkeypatch: pytest.MonkeyPatch, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_NETWORK)
    folder.mkdir()
    (folder / "tool-1.0.jar").touch()
    assert packages(["org.example:tool:1.0"]) == [folder / "tool-1.0.jar"]
    (warning,) = caplog.messages
    assert warning.startswith("tool-1.0.jar is taken without what it depends on: ")
    with pytest.raises(JarsMissing, match=r"put other-1\.0\.jar into"):
        packages(["org.example:other:1.0"])


def skip_without_network() -> None:
    try:
        socket.create_connection(MAVEN_CENTRAL, 20).close()
    except OSError as error:
        pytest.skip(f"Maven Central cannot be reached: {error}")


@pytest.mark.jvm(needs="spark")
def test_a_package_is_fetched_once_with_what_it_depends_on_and_pyspark_lacks(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Delta has a storage of its own, and a parser that Spark has, too."""
    skip_without_network()
    found = packages([DELTA])
    assert [path.name for path in found] == ["delta-spark_2.13-4.0.0.jar", "delta-storage-4.0.0.jar"]
    assert all(is_zipfile(path) for path in found)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_NETWORK)
    assert packages([DELTA]) == found


@pytest.mark.jvm(needs="spark")
def test_without_a_network_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_NETWORK)
    with pytest.raises(JarsMissing) as missing:
        jars()
    (line,) = str(missing.value).splitlines()
    assert line.startswith(f"{CONNECTOR[0]} could not be fetched from Maven Central (")
    assert f"put spark-sql-kafka-0-10_2.13-4.2.0.jar into {folder}" in line
    assert list(folder.iterdir()) == []


@pytest.mark.jvm(needs="spark")
def test_a_jar_is_fetched_once_and_needs_no_network_then(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    skip_without_network()
    (fetched,) = jars([TOKEN_PROVIDER])
    assert fetched.parent == folder
    assert is_zipfile(fetched)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", NO_NETWORK)
    assert jars([TOKEN_PROVIDER]) == [fetched] == list(folder.iterdir())
