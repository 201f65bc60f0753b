"""``pybroker links adopt`` and ``discard``: back to a former source, which says what is lost before it is cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import ADOPTED
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import all_stored, mirror_of, produce, read_all, wait_until_mirrored

ORDERS = 3
OFTEN = ("--set", "refresh.interval.ms=100")
TITLES = ["TOPIC", "STATE", "REASON"]


@pytest.fixture
def old() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=ORDERS)
        produce(running, "orders", 60)
        yield running


@pytest.fixture
def new(old: Broker) -> Iterator[Broker]:
    with Broker() as running:
        links = CommandLine(running.bootstrap)
        links.ok("links", "create", "west", "--source", old.bootstrap, "-t", "orders", *OFTEN)
        wait_until_mirrored(old, running, "orders", ORDERS)
        yield running


@pytest.fixture
def back(old: Broker, new: Broker) -> CommandLine:
    """The old cluster's command line, with a link from the new one, which is refused what is there already."""
    links = CommandLine(old.bootstrap)
    created = links.run("links", "create", "back", "--source", new.bootstrap, "-t", "orders", *OFTEN)
    assert created.stderr == b"pybroker: orders is not mirrored: a topic orders is here already\n"
    return links


def lose(old: Broker, new: Broker, count: int) -> None:
    """The new cluster takes writes, and lacks so many records of the old one."""
    links = CommandLine(new.bootstrap)
    links.ok("links", "pause", "west")
    produce(old, "orders", count)
    links.ok("links", "failover", "west", "--all")
    produce(new, "orders", 45)


def rows(output: bytes) -> list[list[str]]:
    return [line.split("\t") for line in output.decode().splitlines()]


def test_a_topic_is_adopted_and_mirrored_at_once_where_nothing_is_lost(
    old: Broker, new: Broker, back: CommandLine
) -> None:
    CommandLine(new.bootstrap).ok("links", "promote", "west", "orders")
    produce(new, "orders", 45)
    assert rows(back.ok("links", "adopt", "back", "orders")) == [TITLES, ["orders", "mirroring", "-"]]
    back.ok("links", "promote", "back", "orders")
    assert read_all(old, "orders") == read_all(new, "orders")
    produce(old, "orders", 5)


def test_what_would_be_lost_is_shown_and_deleted_by_yes_alone(old: Broker, new: Broker, back: CommandLine) -> None:
    lose(old, new, 30)
    before = all_stored(old, "orders", ORDERS)
    _, (topic, state, reason) = rows(back.ok("links", "adopt", "back", "orders"))
    assert (topic, state) == ("orders", "adopted")
    assert reason.startswith("the source lacks 30 records: partition ")
    shown = back.run("links", "discard", "back", "orders")
    assert rows(shown.stdout) == [["TOPIC", "STATE", "LOST"], ["orders", "adopted", reason]]
    assert shown.stderr == b"Nothing was deleted; add --yes to delete these records for good.\n"
    assert all_stored(old, "orders", ORDERS) == before
    assert rows(back.ok("links", "discard", "back", "--all", "--yes"))[1] == ["orders", "mirroring", reason]
    back.ok("links", "promote", "back", "orders")
    assert read_all(old, "orders") == read_all(new, "orders")
    produce(old, "orders", 5)
    _, (topic, state, reason) = rows(back.ok("links", "adopt", "back", "orders"))
    assert (topic, state) == ("orders", "adopted")  # what was agreed to once is asked for again
    assert reason.startswith("the source lacks 5 records: partition ")


def test_a_wish_of_a_pattern_is_to_be_taken_back_before_a_topic_is_adopted(back: CommandLine) -> None:
    back.ok("links", "alter", "back", "--set", "promote=ord*")
    done = back.run("links", "adopt", "back", "orders")
    assert (done.returncode, done.stdout) == (1, b"")
    undo = "pybroker links alter back --subtract 'promote=ord*'"
    assert done.stderr.decode() == f"pybroker: orders is named by promote=ord*, which {undo} takes back\n"


def test_an_adopted_topic_is_given_back_as_it_is(old: Broker, new: Broker, back: CommandLine) -> None:
    lose(old, new, 30)
    back.ok("links", "adopt", "back", "*")
    back.ok("links", "failover", "back", "orders")
    assert len(read_all(old, "orders")) == 90
    produce(old, "orders", 5)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["adopt", "back", "orderz"], "there is no topic orderz here: what is not here is mirrored without adoption"),
        (["adopt", "nope", "orders"], "there is no link nope"),
        (["discard", "back", "orders"], "link back mirrors no topic orders"),
        (["discard", "nope", "orders"], "there is no link nope"),
    ],
)
def test_what_cannot_be_adopted_or_discarded_is_told_in_a_line(
    back: CommandLine, command: list[str], line: str
) -> None:
    done = back.run("links", *command)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"pybroker: {line}\n"


def test_what_is_mirrored_has_nothing_to_discard(new: Broker) -> None:
    done = CommandLine(new.bootstrap).run("links", "discard", "west", "orders", "--yes")
    assert done.returncode == 1
    assert done.stderr == b"pybroker: orders is mirroring: only what is adopted has records to discard\n"


def test_a_topic_that_the_source_has_with_fewer_partitions_is_not_adopted(new: Broker) -> None:
    with Broker() as other:
        other.create_topic("orders", partitions=ORDERS + 1)
        links = CommandLine(other.bootstrap)
        links.run("links", "create", "back", "--source", new.bootstrap, "-t", "orders", *OFTEN)
        done = links.run("links", "adopt", "back", "orders", "--timeout", "1")
        assert done.returncode == 1
        assert (
            done.stderr == b"pybroker: orders is not mirrored: a topic orders is here already, with more partitions\n"
        )


def test_a_topic_of_another_history_is_not_adopted(old: Broker) -> None:
    with Broker() as other:
        other.create_topic("orders", partitions=ORDERS)
        produce(other, "orders", 5)
        links = CommandLine(other.bootstrap)
        links.run("links", "create", "west", "--source", old.bootstrap, "-t", "orders", *OFTEN)
        said = b"pybroker: orders is not mirrored: a topic orders is here already, and neither was mirrored from"
        adopt = ("links", "adopt", "west", "orders", "--timeout", "1")
        wait_until(lambda: links.run(*adopt).stderr.startswith(said), "the refusal")
        produce(other, "orders", 5)  # it takes writes as before


def test_what_is_adopted_is_neither_promoted_nor_paused_and_its_link_goes_at_once(
    old: Broker, new: Broker, back: CommandLine
) -> None:
    lose(old, new, 30)
    back.ok("links", "adopt", "back", "orders")
    for command in ("promote", "pause"):
        done = back.run("links", command, "back", "orders")
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("pybroker: orders is adopted: the source lacks 30 records: ")
        assert line.endswith("; links discard back orders, or links failover, goes on")
    assert back.lines("links", "delete", "back", "--force")[1] == "back\tdeleted\t-"
    mirror = mirror_of(old, "orders")
    assert mirror is not None
    assert mirror.state == ADOPTED
