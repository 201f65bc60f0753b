"""The fixtures of the pytest plugin: their names, the former ones, and other plugins that define those, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from pybroker.testing import pytest_plugin

OTHER_PLUGIN = """
import pytest

@pytest.fixture(scope="session", name="kafka_broker")
def a_broker_of_another_kind():
    pytest.skip("no Docker here")

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return "of another kind"
"""
# How pytest comes to load it: before the plugins that are installed, or after them.
FIRST = ("-p", "other_plugin")
LAST_BY_CONFTEST = 'pytest_plugins = ["other_plugin"]\n'
USES_A_TOPIC = """
import pytest

def test_a_topic_is_there({broker}, {topic}):
    with pytest.raises(ValueError, match="already exists"):
        {broker}.create_topic({topic})
"""
OURS = USES_A_TOPIC.format(broker="pybroker", topic="pybroker_topic")
FORMER = USES_A_TOPIC.format(broker="kafka_broker", topic="kafka_topic")
USES_A_CLUSTER = "\ndef test_it({cluster}):\n    assert list({cluster}.brokers) == [1, 2, 3]\n"
BOTH_NAMES = "\ndef test_one(pybroker, kafka_broker):\n    assert pybroker is kafka_broker\n"
SKIPS = "\ndef test_skipped(kafka_broker):\n    pass\n"


def run(folder: Path, tests: str, *options: str, conftest: str = "") -> str:
    """What pytest prints of a project with another plugin at hand; every warning of pytest's is an error."""
    (folder / "other_plugin.py").write_text(OTHER_PLUGIN)
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(tests)
    usual = ("-W", "error::pytest.PytestWarning", "-p", "no:cacheprovider", "-p", "no:randomly")
    command = [sys.executable, "-m", "pytest", *usual, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout + done.stderr


def clashes(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("pybroker: ")]


def session_fixture(name: str, value: object) -> str:
    """A conftest with one fixture."""
    return f"import pytest\n\n@pytest.fixture(scope='session')\ndef {name}():\n    return {value!r}\n"


def test_fixtures_are_there_by_both_names_and_are_the_same(tmp_path: Path) -> None:
    cluster = USES_A_CLUSTER.format(cluster="kafka_cluster")
    tests = OURS + FORMER.replace("there", "there_too") + BOTH_NAMES + cluster
    printed = run(tmp_path, tests)
    assert "4 passed" in printed
    assert not clashes(printed)


@pytest.mark.parametrize(("options", "conftest"), [(FIRST, ""), ((), LAST_BY_CONFTEST)], ids=["first", "last"])
def test_another_plugin_keeps_its_names_and_ours_are_there(
    tmp_path: Path, options: tuple[str, ...], conftest: str
) -> None:
    cluster = USES_A_CLUSTER.format(cluster="kafka_cluster")
    printed = run(tmp_path, OURS + SKIPS + cluster, *options, conftest=conftest)
    assert "2 passed, 1 skipped" in printed
    (clash,) = clashes(printed)
    assert "kafka_broker is the fixture of other_plugin" in clash
    assert "pybroker's own: pybroker and pybroker_topic" in clash


def test_beside_another_plugin_no_former_name_stands_for_half_of_a_broker(tmp_path: Path) -> None:
    """A topic would be on another broker than the one that the test is given."""
    printed = run(tmp_path, "def test_it(kafka_topic):\n    pass\n", *FIRST)
    assert "fixture 'kafka_topic' not found" in printed


def test_a_conftest_goes_before_the_plugin_by_any_name(tmp_path: Path) -> None:
    conftest = "import pytest\n\n@pytest.fixture\ndef kafka_broker(kafka_broker):\n    return [kafka_broker]\n"
    printed = run(
        tmp_path, "def test_it(kafka_broker, pybroker):\n    assert kafka_broker == [pybroker]\n", conftest=conftest
    )
    assert "1 passed" in printed
    assert not clashes(printed)


@pytest.mark.parametrize("name", ["pybroker_settings", "kafka_broker_settings"])
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "xdist"])
def test_settings_count_by_both_names(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    conftest = session_fixture(name, {"num.partitions": 7})
    tests = "def test_it(pybroker):\n    assert pybroker._server.services.config.get_int('num.partitions') == 7\n"
    assert "1 passed" in run(tmp_path, tests, *options, conftest=conftest)


@pytest.mark.parametrize("name", ["pybroker_security", "kafka_broker_security"])
def test_security_counts_by_both_names(tmp_path: Path, name: str) -> None:
    conftest = session_fixture(name, "SASL_PLAINTEXT")
    tests = (
        "from kafka import KafkaProducer\n\ndef test_it(pybroker, pybroker_topic):\n"
        "    with KafkaProducer(**pybroker.client_settings('kafka-python')) as producer:\n"
        "        producer.send(pybroker_topic, b'x').get(20)\n"
    )
    assert "1 passed" in run(tmp_path, tests, conftest=conftest)


def test_settings_of_another_plugin_are_not_ours(tmp_path: Path) -> None:
    printed = run(tmp_path, "def test_it(pybroker_settings):\n    assert pybroker_settings == {}\n", *FIRST)
    assert "1 passed" in printed


@pytest.mark.parametrize("name", ["pybroker_cluster_settings", "kafka_cluster_settings"])
def test_settings_of_a_cluster_count_by_both_names(tmp_path: Path, name: str) -> None:
    conftest = session_fixture(name, {"num.partitions": 7})
    tests = (
        "def test_it(pybroker_cluster):\n    for broker in pybroker_cluster.brokers.values():\n"
        "        assert broker._server.services.config.get_int('num.partitions') == 7\n"
    )
    assert "1 passed" in run(tmp_path, tests, conftest=conftest)


def test_a_cluster_takes_security(tmp_path: Path) -> None:
    name = "pybroker_cluster_security"
    conftest = session_fixture(name, "SASL_PLAINTEXT")
    tests = (
        "def test_it(pybroker_cluster):\n"
        "    told = pybroker_cluster.client_settings('kafka-python')\n"
        "    assert told['security_protocol'] == 'SASL_PLAINTEXT'\n"
    )
    assert "1 passed" in run(tmp_path, tests, conftest=conftest)


def test_pytests_list_of_fixtures_describes_each(tmp_path: Path) -> None:
    printed = run(tmp_path, "", "--fixtures", "-v")
    for names in (*pytest_plugin._FORMER_NAMES.values(), ("pybroker", "pybroker_topic", "pybroker_cluster")):
        assert all(f"\n{name} " in printed for name in names)
    assert "no docstring available" not in printed.partition("pybroker.testing")[2]
