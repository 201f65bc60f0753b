"""``pybroker partitions`` against a running cluster."""

from __future__ import annotations

import pytest
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaProducer

from pybroker.cli.commands.partitions import Reassignment, at_rest
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cluster.image.cluster_image import PartitionImage
from pybroker.testing import Cluster
from tests.cli.command import CommandLine


@pytest.fixture
def cli(pybroker_cluster: Cluster) -> CommandLine:
    """``pybroker`` against three brokers; the topic ``orders`` has two replicas of each of three partitions."""
    pybroker_cluster.create_topic("orders", partitions=3, replication_factor=2)
    producer = KafkaProducer(bootstrap_servers=pybroker_cluster.bootstrap)
    for partition in range(3):
        producer.send("orders", b"value", partition=partition)
    producer.flush()
    producer.close()
    return CommandLine(pybroker_cluster.bootstrap)


def partition(cluster: Cluster, index: int = 0) -> PartitionImage:
    """A partition of ``orders`` as the brokers that run know it."""
    images = [node.image() for node in cluster.brokers.values() if node.is_running]
    found = max(images, key=lambda image: image.epoch).partition("orders", index)
    assert found is not None
    return found


def replicas(cluster: Cluster) -> list[list[int]]:
    return [list(partition(cluster, index).replicas) for index in range(3)]


def test_a_partition_is_named_as_it_is_printed_unless_a_topic_has_the_name(
    cli: CommandLine, pybroker_cluster: Cluster
) -> None:
    def planned(*named: str) -> list[tuple[str, int]]:
        found = cli.json("partitions", "reassign", *named, "--replicas", "3", "--dry-run")
        return [(each["topic"], each["partition"]) for each in found]

    assert planned("orders-1") == planned("orders:1") == [("orders", 1)]
    assert planned("orders-0", "orders:2") == planned("orders:0,2") == [("orders", 0), ("orders", 2)]
    pybroker_cluster.create_topic("orders-1", partitions=1, replication_factor=2)
    assert planned("orders-1") == [("orders-1", 0)]
    refused = cli.run("partitions", "reassign", "orders-7", "--replicas", "3", "--dry-run")
    assert refused.stderr == b"pybroker: topic orders-7: UNKNOWN_TOPIC_OR_PARTITION: The cluster has no such topic.\n"


def test_partitions_move_where_they_are_told_to(cli: CommandLine, pybroker_cluster: Cluster) -> None:
    before = replicas(pybroker_cluster)
    (third,) = {1, 2, 3} - set(before[0])
    (moved,) = cli.json("partitions", "reassign", "orders:0", "--to", f"{third},{before[0][0]}", "--wait")
    assert moved == {
        "topic": "orders",
        "partition": 0,
        "from": before[0],
        "to": [third, before[0][0]],
        "status": "moved",
        "message": None,
    }
    assert replicas(pybroker_cluster) == [[third, before[0][0]], *before[1:]]
    assert cli.json("partitions", "reassignments") == []


def test_broker_that_is_left_out_has_nothing_any_more(cli: CommandLine, pybroker_cluster: Cluster) -> None:
    heading, *rows = cli.lines("partitions", "reassign", "--all", "--brokers", "1,2", "--wait")
    assert heading.split("\t") == ["TOPIC", "PARTITION", "FROM", "TO", "STATUS"]
    assert [row.split("\t")[4] for row in rows] == ["moved"] * len(rows)
    assert all(sorted(each) == [1, 2] for each in replicas(pybroker_cluster))
    assert cli.lines("partitions", "reassign", "--all", "--brokers", "1,2", "--wait") == [heading]


def test_replicas_are_added_and_a_dry_run_does_nothing(cli: CommandLine, pybroker_cluster: Cluster) -> None:
    before = replicas(pybroker_cluster)
    planned = cli.json("partitions", "reassign", "orders", "--replicas", "3", "--dry-run")
    assert [each["status"] for each in planned] == ["planned"] * 3
    assert replicas(pybroker_cluster) == before
    cli.ok("partitions", "reassign", "orders", "--replicas", "3", "--wait")
    assert replicas(pybroker_cluster) == [each["to"] for each in planned]


def test_move_to_a_dead_broker_is_under_way_until_it_is_cancelled(cli: CommandLine, pybroker_cluster: Cluster) -> None:
    before = replicas(pybroker_cluster)[0]
    (absent,) = {1, 2, 3} - set(before)
    pybroker_cluster.kill(absent)
    refused = cli.run("partitions", "reassign", "orders:0", "--brokers", f"{before[0]},9")
    assert b"no broker with the id 9 runs" in refused.stderr
    cli.ok("partitions", "reassign", "orders:0", "--to", f"{absent},{before[0]}")
    (under_way,) = cli.json("partitions", "reassignments")
    assert (under_way["adding"], under_way["removing"]) == ([absent], [before[1]])
    (cancelled,) = cli.json("partitions", "reassign", "orders", "--cancel")
    assert cancelled["status"] == "cancelled"
    assert replicas(pybroker_cluster)[0] == before
    assert cli.json("partitions", "reassignments") == []


def test_wait_for_a_move_that_stands_still_ends_and_says_what_is_missing(
    cli: CommandLine, pybroker_cluster: Cluster
) -> None:
    first, _ = replicas(pybroker_cluster)[0]
    (absent,) = {1, 2, 3} - set(replicas(pybroker_cluster)[0])
    pybroker_cluster.kill(absent)
    ended = cli.run("partitions", "reassign", "orders:0", "--to", f"{absent},{first}", "--wait", "--stalled-after", "2")
    assert ended.returncode == 1
    assert f"(broker {absent} does not run); still under way: orders-0".encode() in ended.stderr
    (under_way,) = cli.json("partitions", "reassignments")
    assert under_way["adding"] == [absent]


def test_a_move_that_another_command_cancels_is_not_said_to_have_moved(
    cli: CommandLine, pybroker_cluster: Cluster
) -> None:
    before = replicas(pybroker_cluster)[0]
    (absent,) = {1, 2, 3} - set(before)
    pybroker_cluster.kill(absent)
    waiting = cli.start("partitions", "reassign", "orders:0", "--to", f"{absent},{before[0]}", "--wait")
    wait_until(lambda: bool(partition(pybroker_cluster).adding_replicas), "the move is under way")
    cli.ok("partitions", "reassign", "orders:0", "--cancel")
    table, told = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 1
    assert table == b""
    assert (
        f"NO_REASSIGNMENT_IN_PROGRESS: the move was cancelled or replaced, its replicas are {before}".encode() in told
    )


def throttles(cluster: Cluster) -> dict[str, str]:
    """Whatever holds replicas back, as the metadata has it."""
    images = [node.image() for node in cluster.brokers.values() if node.is_running]
    image = max(images, key=lambda image: image.epoch)
    return {
        f"{name} {setting}": value
        for (_, name), settings in image.configs.items()
        for setting, value in settings.items()
        if "replication.throttled" in setting
    }


def test_throttle_of_a_move_stays_until_it_is_removed_after_the_move(
    cli: CommandLine, pybroker_cluster: Cluster
) -> None:
    first, second = replicas(pybroker_cluster)[0]
    (absent,) = {1, 2, 3} - {first, second}
    pybroker_cluster.kill(absent)
    begun = cli.run("partitions", "reassign", "orders:0", "--to", f"{absent},{first}", "--throttle", "1000000")
    assert begun.returncode == 0, begun.stderr
    assert b"throttled to 1,000,000 bytes per second" in begun.stderr
    rates = {f"{each} {role}.replication.throttled.rate" for each in (first, second) for role in ("leader", "follower")}
    assert throttles(pybroker_cluster) == {
        "orders leader.replication.throttled.replicas": f"0:{first},0:{second}",
        "orders follower.replication.throttled.replicas": f"0:{absent}",
        **dict.fromkeys(rates, "1000000"),
    }
    refused = cli.run("partitions", "reassignments", "--remove-throttle")
    assert refused.returncode == 1
    assert b"1 partition still to move" in refused.stderr
    pybroker_cluster.restart(absent)
    wait_until(lambda: replicas(pybroker_cluster)[0] == [absent, first], "it has moved")
    removed = cli.json("partitions", "reassignments", "--remove-throttle")
    assert {(each["resource"], each["name"], each["value"]) for each in removed} == {
        ("broker", str(first), "1000000"),
        ("broker", str(second), "1000000"),
        ("topic", "orders", f"0:{first},0:{second}"),
        ("topic", "orders", f"0:{absent}"),
    }
    assert throttles(pybroker_cluster) == {}
    assert cli.json("partitions", "reassignments", "--remove-throttle") == []


def test_throttle_names_all_that_moves_and_goes_with_the_last_of_it(
    cli: CommandLine, pybroker_cluster: Cluster
) -> None:
    before = replicas(pybroker_cluster)
    (absent,) = {1, 2, 3} - set(before[0])
    pybroker_cluster.kill(absent)
    cli.ok("partitions", "reassign", "orders:0", "--to", f"{absent},{before[0][0]}")
    present = sorted({1, 2, 3} - {absent})  # as many as replicas of each: what is under way counts by its end
    cli.ok(
        "partitions", "reassign", "orders", "--brokers", ",".join(map(str, present)), "--throttle", "1000000", "--wait"
    )
    assert [set(each) for each in replicas(pybroker_cluster)] == [set(present)] * 3
    assert throttles(pybroker_cluster) == {}
    cli.ok("partitions", "reassign", "orders:0", "--to", f"{absent},{before[0][0]}", "--throttle", "1000000")
    cli.ok("partitions", "reassign", "orders:1", "--to", f"{absent},{before[0][0]}", "--throttle", "2000000")
    assert throttles(pybroker_cluster)["orders follower.replication.throttled.replicas"] == f"0:{absent},1:{absent}"
    cancelled = cli.run("partitions", "reassign", "orders:0", "--cancel")
    assert b"the throttle stays: 1 partition still to move" in cancelled.stderr
    cli.ok("partitions", "reassign", "orders:1", "--cancel")
    assert throttles(pybroker_cluster) == {}


def test_preferred_replicas_lead_again_and_uncleanly_who_is_there(cli: CommandLine, pybroker_cluster: Cluster) -> None:
    preferred, other = replicas(pybroker_cluster)[0]
    pybroker_cluster.kill(preferred)
    wait_until(lambda: pybroker_cluster.leader("orders", 0) == other, "another leader")
    pybroker_cluster.restart(preferred)
    wait_until(lambda: len(partition(pybroker_cluster).isr) == 2, "it is in sync")
    assert {"topic": "orders", "partition": 0, "status": "elected", "message": None} in cli.json(
        "partitions", "elect", "orders"
    )
    assert partition(pybroker_cluster).leader == preferred
    assert cli.json("partitions", "elect", "orders") == []
    pybroker_cluster.kill(other)
    wait_until(lambda: partition(pybroker_cluster).isr == (preferred,), "it is out of sync")
    pybroker_cluster.kill(preferred)
    pybroker_cluster.restart(other)
    wait_until(lambda: pybroker_cluster.leader("orders", 0) is None, "nobody leads")
    refused = cli.run("partitions", "elect", "orders:0")
    assert refused.returncode == 1
    assert b"pybroker: " in refused.stderr
    cli.ok("partitions", "elect", "orders:0", "--unclean")
    assert partition(pybroker_cluster).leader == other


def test_nonsense_is_refused(cli: CommandLine) -> None:
    for arguments, exit_code, says in (
        (["reassign"], 2, "name topics, or say --all"),
        (["elect", "orders:0", "--all"], 2, "name topics, or say --all"),
        (["reassign", "orders", "--to", "1,1"], 2, "different ids of brokers"),
        (["reassign", "orders", "--to", "1", "--brokers", "2"], 2, "exclude each other"),
        (["reassign", "orders", "--replicas", "4"], 1, "4 replicas need as many brokers, and there are 3"),
        (["reassign", "orders", "--throttle", "0"], 2, "--throttle"),
        (["reassign", "orders", "--throttle", "1", "--cancel"], 2, "--throttle goes with moves"),
        (["reassign", "orders:7"], 1, "orders-7: UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        refused = cli.run("partitions", *arguments)
        assert refused.returncode == exit_code, refused.stderr
        assert says in " ".join(refused.stderr.decode().replace("│", "").split())


@pytest.mark.parametrize("now", [[1, 2, 3, 4], [2, 3, 4]], ids=["still under way", "it has ended meanwhile"])
def test_a_move_counts_by_its_end_though_it_ends_while_the_command_asks(now: list[int]) -> None:
    moving = Reassignment([1, 2, 3, 4], adding=[4], removing=[1])
    assert at_rest({Partition("orders", 0): now}, {Partition("orders", 0): moving}) == {
        Partition("orders", 0): [2, 3, 4]
    }
