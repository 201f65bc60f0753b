"""``pybroker logdirs`` where a broker is not there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from pybroker.cli.commands import logdirs
from pybroker.cli.connection.admin_command import Session
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.connection.retries import UnknownBroker
from pybroker.cli.terminal.output import Output


class Connected(Session):
    """Of a cluster whose client is of no matter."""

    def client(self) -> AbstractContextManager[Any]:
        return nullcontext()


def test_a_broker_that_is_named_and_does_not_run_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unknown(_: object, broker_ids: list[int]) -> None:
        asked.append(broker_ids)
        raise UnknownBroker("no broker with the id 99 runs")

    monkeypatch.setattr(logdirs, "log_directories", unknown)
    with pytest.raises(UnknownBroker):
        logdirs.describe(Connected(ClientOptions(""), Output()), broker_ids=["99"], topics=[], replicas=False)
    assert asked == [[99]]
