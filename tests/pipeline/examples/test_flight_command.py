"""The demo's command tells what stopped it in a line."""

import pytest
from typer.testing import CliRunner

from examples import feed
from examples.flights.command import app
from pybroker.testing import Broker

NOBODY = "127.0.0.1:1"


def failure(*arguments: str) -> str:
    """What the command says as it fails, of a terminal so wide that nothing is broken."""
    done = CliRunner(env={"COLUMNS": "500"}).invoke(app, arguments)
    assert done.exit_code == 1, done.output
    return done.output.splitlines()[-1]


def test_no_broker_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "REACHED_WITHIN_S", 1.0)
    assert failure("--bootstrap", NOBODY).startswith(f"The demo failed: no broker answers at {NOBODY}: ")


def test_a_topic_that_stands_in_the_way_is_said_in_a_line(pybroker: Broker) -> None:
    feed.create_topics(pybroker.bootstrap, ["flights"], [])
    told = failure("--bootstrap", pybroker.bootstrap)
    assert told == "The demo failed: a topic of the demo exists: delete it, or choose other names"


def test_a_broker_that_refuses_a_topic_is_heard_in_a_line(pybroker: Broker) -> None:
    told = failure("--bootstrap", pybroker.bootstrap, "--flights-topic", "not/allowed")
    assert told.startswith("The demo failed: topic not/allowed: ")
