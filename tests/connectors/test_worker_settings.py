"""Settings of a supervisor: a worker's file of Kafka Connect, options, and what references of connectors find."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.schema import ConfigError
from pybroker.connectors.state.worker_settings import SettingsRefused, worker_settings

FILE = """\
bootstrap.servers=one:9092
group.id=team
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
config.storage.replication.factor=3
key.converter=org.apache.kafka.connect.json.JsonConverter
sasl.jaas.config=x required username="u" password="hunter2";
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "worker.properties"
    made.write_text(FILE)
    return made


def test_a_workers_file_of_connect_is_read(file: Path) -> None:
    found = worker_settings(file, None, None)
    assert (found.group, found.config_topic, found.offset_topic, found.status_topic) == ("team", "c", "o", "s")
    assert found.replication_factor == 3
    assert found.client.keys() == {"bootstrap.servers", "sasl.jaas.config"}
    assert "hunter2" not in repr(found)


def test_options_win_over_the_file(file: Path) -> None:
    found = worker_settings(file, "two:9092", "other")
    assert (found.client["bootstrap.servers"], found.group) == ("two:9092", "other")


def test_without_a_file_the_defaults_are_connects(tmp_path: Path) -> None:
    found = worker_settings(None, None, None)
    assert (found.group, found.config_topic, found.replication_factor) == ("connect-cluster", "connect-configs", -1)


def test_references_of_connectors_are_resolved_by_the_files_providers(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("k=hunter2\n")
    settings = worker_settings(file, None, None)
    declared = f"${{file:{secret}:k}}"
    assert settings.resolved({"connection.password": declared, "x": "y"}) == (
        {"connection.password": "hunter2", "x": "y"},
        [("connection.password", declared, "hunter2")],
    )


def test_of_a_text_with_references_each_one_is_told_with_what_it_has_found(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("k=hunter2\n")
    declared = f"https://h/?token=${{file:{secret}:k}}"
    assert worker_settings(file, None, None).resolved({"url": declared}) == (
        {"url": "https://h/?token=hunter2"},
        [("url", declared, "https://h/?token=hunter2"), ("url", f"${{file:{secret}:k}}", "hunter2")],
    )


def test_a_connector_does_not_lift_what_the_providers_are_bound_to(file: Path, tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "secret").write_text("k=hunter2\n")
    allowed = "config.providers.file.param.allowed.paths"
    file.write_text(f"{FILE}{allowed}={tmp_path / 'safe'}\n")
    settings = worker_settings(file, None, None)
    config = {"topic.prefix": f"${{file:{tmp_path / 'secret'}:k}}"}
    for lifted in ({}, {allowed: "/"}, {allowed: str(tmp_path), "config.providers": "file"}):
        with pytest.raises(SettingsRefused, match=r"topic\.prefix names a config provider, and it finds nothing"):
            settings.resolved({**config, **lifted})
    assert settings.resolved({"x": "y", allowed: "/"}).config == {"x": "y"}


def test_a_reference_that_finds_nothing_is_refused(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("k=hunter2\n")
    with pytest.raises((SettingsRefused, ConfigError), match=r"connection\.password"):
        worker_settings(file, None, None).resolved({"connection.password": f"${{file:{secret}:other}}"})


def test_without_providers_a_reference_is_refused() -> None:
    with pytest.raises((SettingsRefused, ConfigError), match=r"connection\.password"):
        worker_settings(None, None, None).resolved({"connection.password": "${file:/p:k}"})


def test_a_replication_factor_that_is_no_number_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "worker.properties"
    made.write_text("config.storage.replication.factor=x\n")
    with pytest.raises(SettingsRefused, match="must be a number"):
        worker_settings(made, None, None)
