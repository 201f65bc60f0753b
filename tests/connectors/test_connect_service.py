"""What a supervisor's process starts for a connector."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker import pipeline
from pybroker.connectors import connect_service
from pybroker.connectors.connect_service import Service
from pybroker.connectors.state.worker_settings import SettingsRefused, WorkerSettings


def test_a_kind_that_runs_on_spark_names_the_extra_where_spark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_service, "find_spec", lambda _: None)
    service = Service(WorkerSettings({"bootstrap.servers": "127.0.0.1:1"}), "127.0.0.1", 0, {}, "")
    state: Any = object()
    service._state = state
    with pytest.raises(SettingsRefused, match=r"runs on Spark, which is not installed: pip install .*\[spark\]"):
        service._start("a", {"connector.class": "FileSource"}, 1)


def test_a_kind_that_is_not_there_is_refused_when_it_is_started() -> None:
    service = Service(WorkerSettings({"bootstrap.servers": "127.0.0.1:1"}), "127.0.0.1", 0, {}, "")
    with pytest.raises(SettingsRefused, match="Failed to find any class"):
        service._start("a", {"connector.class": "MirrorSourceConnector"}, 1)


def test_spark_spares_the_memory_of_a_supervisor_and_is_set_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    monkeypatch.setattr(connect_service, "find_spec", lambda _: True)
    monkeypatch.setitem(vars(pipeline), "session", lambda _, **given: begun.append(given))
    settings = {"spark.driver.memory": "4g"}
    service = Service(WorkerSettings({}), "127.0.0.1", 0, {}, "", spark_settings=settings)
    service._session()
    (given,) = begun
    assert given["sparing"]
    assert settings.items() <= given["settings"].items()
