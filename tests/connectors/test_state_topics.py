"""The topics of a supervisor on a broker, and who of several supervisors works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.waiting import wait_until

from pybroker.connectors.state.state_records import (
    State,
    Status,
    Target,
    config_record,
    offset_record,
    run_record,
    status_records,
    target_record,
)
from pybroker.connectors.state.state_topics import Replaced, StateTopics, create_topics
from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.connectors.supervision.membership import Membership, Waits
from pybroker.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def settings(broker: Broker, request: pytest.FixtureRequest) -> WorkerSettings:
    name = request.node.name.replace("[", "-").replace("]", "")[:60]
    made = WorkerSettings(
        {"bootstrap.servers": broker.bootstrap}, name, f"{name}-configs", f"{name}-offsets", f"{name}-status"
    )
    create_topics(made)
    return made


def test_topics_are_made_once(settings: WorkerSettings) -> None:
    create_topics(settings)


def test_what_was_written_is_known_to_the_next_supervisor(settings: WorkerSettings) -> None:
    first, second = StateTopics(settings), StateTopics(settings)
    first.take_over()
    first.write_configs([config_record("a", {"x": "1"}), target_record("a", Target.PAUSED), run_record("a", 2)])
    first.write_configs([config_record("b", {"x": "2"}), config_record("b", None)])
    first.write_statuses(status_records("a", Status(State.RUNNING, None, "w")))
    first.write_offsets([offset_record("a", {"table": "t"}, {"incrementing": 7})])
    second.take_over()
    assert second.known == first.known
    assert second.known.configs == {"a": {"x": "1"}}


def test_a_supervisor_that_was_replaced_writes_nothing(settings: WorkerSettings) -> None:
    first, second = StateTopics(settings), StateTopics(settings)
    first.take_over()
    first.write_configs([config_record("a", {"x": "1"})])
    second.take_over()
    second.write_configs([config_record("a", {"x": "2"})])
    for _ in range(2):
        with pytest.raises(Replaced):
            first.write_configs([config_record("a", {"x": "3"})])
    assert first.known.configs == {"a": {"x": "1"}}
    second.take_over()
    assert second.known.configs == {"a": {"x": "2"}}


def test_one_of_two_supervisors_works_and_the_other_knows_it_and_takes_over(settings: WorkerSettings) -> None:
    heard: list[tuple[str, Waits | None]] = []
    first = Membership(settings, lambda waits: heard.append(("first", waits)))
    second = Membership(settings, lambda waits: heard.append(("second", waits)))
    first.start()
    try:
        wait_until(lambda: heard == [("first", None)], "the first supervisor works")
        second.start()
        try:
            wait_until(lambda: len(heard) > 1, "the second supervisor knows that it waits")
            assert heard[1:] == [("second", Waits.ANOTHER_WORKS)]
            first.close()
            wait_until(lambda: ("second", None) in heard, "the second supervisor works")
        finally:
            second.close()
    finally:
        first.close()
