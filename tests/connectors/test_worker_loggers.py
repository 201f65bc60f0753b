"""Levels of loggers by Kafka Connect's admin interface (KIP-495, KIP-976)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient
from tests.connectors.rest_world import World, served

ROOM = "pybroker.connectors.rest"
MODULE = f"{ROOM}.rest_server"
LOGGERS = ("admin", "loggers")


@pytest.fixture(autouse=True)
def levels_are_as_before() -> Iterator[None]:
    known = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = {each: each.level for each in (*known, logging.getLogger(ROOM), logging.getLogger("py4j"))}
    yield
    for logger, level in before.items():
        logger.setLevel(level)


@pytest.fixture
def client() -> Iterator[RestClient]:
    with served(World()) as url:
        yield RestClient(url)


def refusal(client: RestClient, method: str, name: str, body: object = None) -> str:
    with pytest.raises(ReplyRefused) as refused:
        client.ask(method, *LOGGERS, name, body=body)
    return str(refused.value)


def test_a_level_is_set_for_a_namespace_and_what_comes_later_in_it(client: RestClient) -> None:
    changed = client.ask("PUT", *LOGGERS, ROOM, body={"level": "debug"})
    assert {ROOM, MODULE} <= set(changed)
    assert all(name == ROOM or name.startswith(f"{ROOM}.") for name in changed)
    assert logging.getLogger(MODULE).level == logging.getLogger(f"{ROOM}.later").getEffectiveLevel() == logging.DEBUG
    told = client.ask("GET", *LOGGERS, MODULE)
    assert told["level"] == "DEBUG"
    assert told["last_modified"] > 1_700_000_000_000
    listed = client.ask("GET", *LOGGERS)
    assert listed[MODULE] == told
    assert set(listed["root"]) == {"level", "last_modified"}


def test_the_root_is_that_of_pybroker_and_libraries_stay_as_they_are(client: RestClient) -> None:
    """Py4J tells each value of a call at DEBUG, passwords among them."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    assert client.ask("PUT", *LOGGERS, "root", body={"level": "TRACE"}, scope="cluster") is None
    assert client.ask("GET", *LOGGERS, "root")["level"] == "TRACE"
    assert refusal(client, "GET", "py4j") == "Logger py4j not found."
    assert refusal(client, "PUT", "py4j", {"level": "DEBUG"}) == "Logger py4j not found."
    assert logging.getLogger("py4j").level == logging.WARNING


def test_a_level_that_is_none_is_refused_in_connects_words(client: RestClient) -> None:
    assert refusal(client, "PUT", ROOM, {"level": "loud"}) == "invalid log level 'loud'."
    assert refusal(client, "PUT", ROOM, {}) == "Desired 'level' parameter was not specified in request."
