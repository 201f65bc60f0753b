"""``pybroker groups lag``: how far all groups are behind, once and over and over."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker
from tests.cli.command import CommandLine


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with no groups but these tests'."""
    with Broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def cli(bootstrap: str) -> CommandLine:
    """Two groups: one that has read nothing of two partitions, one that has read all of one."""
    cli = CommandLine(bootstrap)
    cli.ok("topics", "create", "orders", "-p", "2")
    for partition, records in (("0", b"a\nb\nc\n"), ("1", b"a\n")):
        cli.ok("produce", "orders", "-p", partition, stdin=records)
    cli.ok("groups", "reset-offsets", "behind", "-t", "orders", "--to-earliest", "--execute")
    cli.ok("groups", "reset-offsets", "abreast", "-t", "orders:0", "--to-latest", "--execute")
    return cli


BEHIND = {
    "group": "behind",
    "type": "classic",
    "state": "Empty",
    "committed_partitions": 2,
    "lag": 4,
    "max_lag": 3,
    "most_behind": "orders-0",
}
ABREAST = {**BEHIND, "group": "abreast", "committed_partitions": 1, "lag": 0, "max_lag": 0, "most_behind": None}


def test_lag_of_all_groups_is_shown_the_largest_first(cli: CommandLine) -> None:
    assert cli.json("groups", "lag") == [BEHIND, ABREAST]
    assert cli.lines("groups", "lag") == [
        "GROUP\tTYPE\tSTATE\tCOMMITTED\tLAG\tMAX-LAG\tMOST-BEHIND",
        "behind\tclassic\tEmpty\t2\t4\t3\torders-0",
        "abreast\tclassic\tEmpty\t1\t0\t0\t-",
    ]


def test_groups_are_chosen_by_name_and_each_that_there_is_not_is_told(cli: CommandLine) -> None:
    done = cli.run("groups", "lag", "abreast", "nobody", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, [ABREAST])
    assert done.stderr == b"pybroker: group nobody: GROUP_ID_NOT_FOUND: The group does not exist.\n"


def test_offsets_that_outlive_their_topic_count_for_no_lag(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    cli.ok("groups", "reset-offsets", name, "-t", name, "--to-latest", "--execute")
    cli.ok("topics", "delete", name)
    group = cli.json("groups", "lag", name)
    cli.run("groups", "delete", name)
    assert [each["lag"] for each in group] in ([None], [])  # the broker forgets them with the topic, soon


def test_lag_of_a_group_that_has_committed_nothing_is_unknown(cli: CommandLine, bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "silent", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "its partitions")
    (silent,) = cli.json("groups", "lag", "silent")
    consumer.close()
    cli.ok("groups", "delete", "silent")
    assert (silent["committed_partitions"], silent["lag"], silent["most_behind"]) == (0, None, None)


def test_watch_ends_where_there_is_no_group_of_those_named(cli: CommandLine) -> None:
    done = cli.run("groups", "lag", "nobody", "--watch", "--interval", "0.1")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pybroker: group nobody: GROUP_ID_NOT_FOUND: The group does not exist.\n"


def test_watch_says_once_of_which_groups_there_are_none(cli: CommandLine) -> None:
    with cli.start("groups", "lag", "abreast", "nobody", "--watch", "--interval", "0.1") as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said == b"pybroker: group nobody: GROUP_ID_NOT_FOUND: The group does not exist.\n"


def test_watch_shows_what_changes_until_it_is_ended(cli: CommandLine) -> None:
    cli.ok("topics", "create", "watched")
    cli.ok("groups", "reset-offsets", "watcher", "-t", "watched", "--to-latest", "--execute")
    with cli.start("groups", "lag", "watcher", "--watch", "--interval", "0.1") as process:
        assert process.stdout is not None
        heading = process.stdout.readline().decode().rstrip("\n").split("\t")
        assert heading[0] == "TIME"
        changes: list[int] = []
        while not any(changes):
            row = dict(zip(heading, process.stdout.readline().decode().rstrip("\n").split("\t"), strict=True))
            if not changes:
                assert (row["GROUP"], row["LAG"]) == ("watcher", "0")
                cli.ok("produce", "watched", stdin=b"a\nb\n")
            changes.append(int(row["CHANGE"]))
        assert changes[-1] == 2
        assert row["LAG"] == "2"
        process.send_signal(signal.SIGTERM)  # SIGINT is ignored by what a shell has started in its background
        _, said = process.communicate(timeout=PATIENCE_S)
    cli.ok("groups", "delete", "watcher")
    assert (process.returncode, said) == (143, b"")
