"""``pybroker groups`` over groups of both kinds, with members that speak either protocol, on both brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from harness.apache_kafka import ApacheKafka

from pybroker.testing import Broker
from tests.cli.command import CommandLine

WAIT_S = 40.0


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str, instance: str | None = None) -> Iterator[Consumer]:
    """A member that owns all partitions of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({"group.instance.id": instance} if instance else {}),
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no assignment"
        consumer.poll(0.05)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.fixture(scope="module", params=["pybroker", pytest.param("kafka", marks=pytest.mark.jvm)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    if request.param == "pybroker":
        with Broker(settings=settings) as broker:
            yield broker.bootstrap
    else:
        with ApacheKafka(tmp_path_factory.mktemp("kafka") / "data", properties=settings) as kafka:
            yield kafka.bootstrap


@pytest.fixture
def cli(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(cli: CommandLine, name: str) -> str:
    cli.ok("topics", "create", name, "-p", "2")
    return name


def test_groups_of_both_kinds_are_listed_and_described(cli: CommandLine, bootstrap: str, topic: str) -> None:
    old, new = f"{topic}-old", f"{topic}-new"
    with member(bootstrap, old, topic, "classic"), member(bootstrap, new, topic, "consumer"):
        for kind, group in (("classic", old), ("Consumer", new)):
            listed = {entry["group"]: entry for entry in cli.json("groups", "list", "--type", kind)}
            assert (listed[group]["type"], listed[group]["state"]) == (kind.lower(), "Stable")
            assert not {old, new} - {group} & listed.keys()
        new_group, old_group = cli.json("groups", "describe", new, old)
        assert [document["group"] for document in (new_group, old_group)] == [new, old]
        assert (new_group["type"], new_group["state"], new_group["assignor"]) == ("consumer", "Stable", "uniform")
        assert new_group["group_epoch"] == new_group["assignment_epoch"] > 0
        [joined] = new_group["members"]
        assert joined["partitions"] == joined["target_partitions"] == [f"{topic}-0", f"{topic}-1"]
        assert (joined["epoch"], joined["protocol"]) == (new_group["group_epoch"], "consumer")
        assert (joined["subscribed_topics"], joined["subscribed_regex"]) == ([topic], None)
        assert {offset["member_id"] for offset in new_group["offsets"]} == {joined["member_id"]}

        assert (old_group["type"], old_group["group_epoch"]) == ("classic", None)
        [classic] = old_group["members"]
        assert (classic["partitions"], classic["target_partitions"]) == ([f"{topic}-0", f"{topic}-1"], None)
        assert old_group.keys() == new_group.keys()
        assert classic.keys() == joined.keys()

        heading, row = cli.lines("groups", "describe", new, "--members")[2:]
        assert heading.split("\t")[-4:] == ["MEMBER-TYPE", "EPOCH", "PARTITIONS", "TARGET"]
        assert row.split("\t")[-2:] == [f"{topic}-0,{topic}-1"] * 2
        reset = ("groups", "reset-offsets", new, "-t", topic, "--to-latest", "--execute")
        refused = cli.run(*reset)
        assert refused.returncode == 1
        assert b"is Stable" in refused.stderr
    assert [entry["new_offset"] for entry in cli.json(*reset)] == [0, 0]
    [empty] = cli.json("groups", "describe", new)
    assert (empty["type"], empty["state"], empty["members"]) == ("consumer", "Empty", [])
    assert [offset["current_offset"] for offset in empty["offsets"]] == [0, 0]
    cli.ok("groups", "delete", new, old)
    assert cli.run("groups", "describe", new).returncode == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_removed_by_their_ids_and_by_instance_ids_alone_or_all(
    cli: CommandLine, bootstrap: str, topic: str, protocol: str
) -> None:
    def members(group: str) -> list[tuple[str, str | None]]:
        [described] = cli.json("groups", "describe", group)
        return [(each["member_id"], each["instance_id"]) for each in described["members"]]

    static, dynamic = f"{topic}-static", f"{topic}-dynamic"
    with (
        member(bootstrap, static, topic, protocol, instance="i-1"),
        member(bootstrap, dynamic, topic, protocol),
    ):
        [(former, _)] = members(dynamic)
        unknown = cli.run("groups", "remove-member", static, "-i", "i-2", "--json")
        assert unknown.returncode == 1
        assert b"pybroker: member i-2: UNKNOWN_MEMBER_ID: " in unknown.stderr
        assert cli.json("groups", "remove-member", static, "-i", "i-1") == [
            {"member_id": None, "instance_id": "i-1", "status": "removed"}
        ]
        assert members(static) == []
        assert cli.json("groups", "remove-member", dynamic, former) == [
            {"member_id": former, "instance_id": None, "status": "removed"}
        ]
        assert members(dynamic) == []  # its consumer does nothing until it is polled
    assert cli.json("groups", "remove-member", dynamic, "--all") == []
    assert cli.run("groups", "remove-member", f"{topic}-none", "--all").returncode == 1
    assert cli.run("groups", "remove-member", dynamic).returncode == 2
    assert cli.run("groups", "remove-member", dynamic, "x", "--all").returncode == 2


@pytest.mark.parametrize("option", ["--type", "--state"])
def test_a_type_or_a_state_that_is_none_is_wrong_use_and_told_as_it_was_typed(cli: CommandLine, option: str) -> None:
    refused = cli.run("groups", "list", option, "Modern")
    assert refused.returncode == 2
    assert b"'Modern'" in refused.stderr
