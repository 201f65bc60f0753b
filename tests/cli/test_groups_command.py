"""``pybroker groups`` against a running broker."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.command import CommandLine


def prepare(cli: CommandLine, name: str) -> None:
    """A topic of two partitions with four records each, and a group that has read three of partition 0."""
    cli.ok("topics", "create", name, "-p", "2")
    for partition in ("0", "1"):
        cli.ok("produce", name, "-p", partition, stdin=b"a\nb\nc\nd\n")
    cli.ok("groups", "reset-offsets", name, "-t", f"{name}:0", "--to-offset", "3", "--execute")


def offsets(cli: CommandLine, name: str) -> dict[int, Any]:
    """What the group has committed, by partition."""
    [group] = cli.json("groups", "describe", name)
    return {entry["partition"]: entry["current_offset"] for entry in group["offsets"]}


def test_lag_is_what_lies_between_the_commit_and_the_end(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    [group] = cli.json("groups", "describe", name)
    assert (group["state"], group["lag"], group["members"]) == ("Empty", 1, [])
    assert group["offsets"] == [
        {"topic": name, "partition": 0, "current_offset": 3, "log_end_offset": 4, "lag": 1, "member_id": None}
    ]
    assert name in [entry["group"] for entry in cli.json("groups", "list", "--state", "empty")]
    assert name not in [entry["group"] for entry in cli.json("groups", "list", "--state", "stable")]


def test_members_are_shown_with_what_they_own(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    with cli.start("consume", name, "-g", name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"d\n"
        [group] = cli.json("groups", "describe", name)
        refused = cli.run("groups", "reset-offsets", name, "--all-topics", "--to-earliest", "--execute")
        undeletable = cli.run("groups", "delete", name)
        process.kill()
    assert (group["state"], group["assignor"]) == ("Stable", "range")
    [member] = group["members"]
    assert member["client_id"] == "pybroker"
    assert member["partitions"] == [f"{name}-0", f"{name}-1"]
    assert refused.returncode == 1
    assert b"is Stable" in refused.stderr
    assert undeletable.returncode == 1
    assert undeletable.stderr.startswith(f"pybroker: group {name}: NON_EMPTY_GROUP: ".encode())


def test_a_reset_changes_nothing_until_it_is_executed(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    plan = cli.json("groups", "reset-offsets", name, "-t", name, "--to-latest")
    assert [(entry["partition"], entry["current_offset"], entry["new_offset"]) for entry in plan] == [
        (0, 3, 4),
        (1, None, 4),
    ]
    assert offsets(cli, name) == {0: 3}
    assert {entry["status"] for entry in plan} == {"planned"}
    done = cli.json("groups", "reset-offsets", name, "-t", name, "--to-latest", "--execute")
    assert done == [{**entry, "status": "committed"} for entry in plan]
    assert offsets(cli, name) == {0: 4, 1: 4}


def test_every_target_moves_the_offsets(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    for target, offset in (
        (["--shift-by", "-2"], 1),
        (["--to-datetime", "1970-01-01"], 0),
        (["--to-datetime", "2100-01-01"], 4),
        (["--to-offset", "2"], 2),
        (["--to-current"], 2),
        (["--to-earliest"], 0),
        (["--to-latest"], 4),
    ):
        cli.ok("groups", "reset-offsets", name, "--all-topics", *target, "--execute")
        assert offsets(cli, name) == {0: offset}, target


def test_offsets_and_groups_are_deleted(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    cli.ok("groups", "reset-offsets", name, "-t", name, "--to-latest", "--execute")
    cli.ok("groups", "delete-offsets", name, "-t", f"{name}-1")
    assert offsets(cli, name) == {0: 4}
    cli.ok("groups", "delete", name)
    described = cli.run("groups", "describe", name)
    assert described.returncode == 1
    assert described.stderr.decode() == f"pybroker: group {name}: GROUP_ID_NOT_FOUND: The group does not exist.\n"
    assert cli.run("groups", "delete", name).returncode == 1


def test_what_there_is_of_several_is_shown_and_each_of_the_others_is_told(cli: CommandLine, name: str) -> None:
    prepare(cli, name)
    groups = cli.run("groups", "describe", f"{name}-x", name, f"{name}-y", "--json")
    topics = cli.run("topics", "describe", f"{name}-x", name, f"{name}-y", "--json")
    for described, lines in (
        (groups, [f"group {name}-{each}: GROUP_ID_NOT_FOUND: The group does not exist." for each in "xy"]),
        (
            topics,
            [f"topic {name}-{each}: UNKNOWN_TOPIC_OR_PARTITION: The cluster has no such topic." for each in "xy"],
        ),
    ):
        assert described.returncode == 1
        assert len(json.loads(described.stdout)) == 1
        assert sorted(described.stderr.decode().splitlines()) == [f"pybroker: {line}" for line in lines]


def test_a_reset_needs_exactly_one_target_and_a_topic(cli: CommandLine, name: str) -> None:
    for arguments in (
        ["--all-topics"],
        ["--to-latest"],
        ["--all-topics", "--to-latest", "--to-earliest"],
        ["-t", "x", "--all-topics", "--to-latest"],
        ["--all-topics", "--to-datetime", "soon"],
        ["--all-topics", "--to-latest", "--execute", "--dry-run"],
    ):
        assert cli.run("groups", "reset-offsets", name, *arguments).returncode == 2, arguments
