"""Topics as SQL reads them: what is known of one whose settings the user may not see."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.requests import config_requests
from pybroker.cli.requests.topic_reader import TopicReader
from pybroker.cli.terminal.failure import CommandFailed


def test_topic_whose_settings_are_refused_has_producers_times(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TopicReader(cast("AdminClient", None))
    settings: list[Any] = [{"name": "message.timestamp.type", "value": "LogAppendTime"}]
    monkeypatch.setattr(config_requests, "described", lambda *_: settings)
    assert reader.has_broker_times("orders")

    def refuse(*_: Any) -> Any:
        raise CommandFailed("topic orders: TOPIC_AUTHORIZATION_FAILED")

    monkeypatch.setattr(config_requests, "described", refuse)
    assert not reader.has_broker_times("orders")
