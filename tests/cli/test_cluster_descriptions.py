"""What a cluster, its features and its log dirs are, as the commands tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.image.supported_features import INITIAL_LEVELS, SUPPORTED
from pybroker.testing import Broker, Cluster
from tests.cli.command import CommandLine


@pytest.fixture(scope="module")
def cluster() -> Iterator[CommandLine]:
    """Two brokers that are a cluster."""
    with Cluster(2) as brokers:
        yield CommandLine(brokers.bootstrap)


def test_cluster_is_described_by_id_controller_epochs_and_brokers(cluster: CommandLine) -> None:
    described = cluster.json("cluster", "describe")
    assert [broker["id"] for broker in described["brokers"]] == [1, 2]
    assert described["brokers"] == cluster.json("brokers", "list")
    assert described["controller"] in (1, 2)
    assert described["controller_epoch"] >= 1
    assert described["metadata_offset"] > 0
    assert described["features_epoch"] >= 0
    assert described["metadata_version"] == INITIAL_LEVELS["metadata.version"]
    assert len(described["cluster"]) == 22
    lines = [line.split("\t") for line in cluster.lines("cluster", "describe")]
    assert lines[0] == ["CLUSTER", "CONTROLLER", "CONTROLLER-EPOCH", "METADATA-OFFSET", "METADATA-VERSION"]
    assert lines[1][:2] == [described["cluster"], str(described["controller"])]
    assert lines[2] == ["BROKER", "ADDRESS", "RACK", "STATE", "CONTROLLER"]
    assert len(lines) == 5


def test_racks_are_told() -> None:
    with Broker(settings={"broker.rack": "r1"}) as broker:
        (described,) = CommandLine(broker.bootstrap).json("cluster", "describe")["brokers"]
    assert described["rack"] == "r1"


def test_features_are_shown_with_finalized_and_supported_levels(cluster: CommandLine) -> None:
    shown = cluster.json("features", "describe")
    epoch = shown[0]["epoch"]
    assert epoch >= 0
    assert shown == [
        {
            "feature": name,
            "finalized_level": INITIAL_LEVELS.get(name, 0),
            "supported_min": levels.min_version,
            "supported_max": levels.max_version,
            "epoch": epoch,
        }
        for name, levels in sorted(SUPPORTED.items())
    ]
    assert cluster.json("features", "describe", "--broker", "2") == shown
    level = INITIAL_LEVELS["metadata.version"]
    low, high = SUPPORTED["metadata.version"]
    assert f"metadata.version\t{level}\t{low} to {high}\t{epoch}" in cluster.lines("features", "describe")


def test_level_of_a_feature_is_lowered_and_raised_again() -> None:
    name = "eligible.leader.replicas.version"

    def level() -> int:
        return next(
            int(each["finalized_level"]) for each in cli.json("features", "describe") if each["feature"] == name
        )

    with Broker() as broker:
        cli = CommandLine(broker.bootstrap)
        before = level()
        assert before > 0
        refused = cli.run("features", "set", f"{name}=0")
        assert refused.returncode == 1
        told = f"pybroker: features: INVALID_UPDATE_VERSION: The cluster has a higher level of {name}.\n"
        assert refused.stderr.startswith(told.encode())
        assert refused.stderr.endswith(f"\nNothing was changed. To lower {name} add --downgrade.\n".encode())
        lossy = cli.run("features", "set", "metadata.version=20", "--downgrade")
        assert lossy.returncode == 1
        assert lossy.stderr.endswith(b"This command never asks for a downgrade that may lose metadata.\n")
        assert b"To lower" not in cli.run("features", "set", f"{name}=99").stderr
        cli.ok("features", "set", f"{name}=0", "--downgrade", "--dry-run")
        assert level() == before
        assert cli.json("features", "set", f"{name}=0", "--downgrade") == [
            {"feature": name, "level": 0, "status": "set"}
        ]
        assert level() == 0
        assert cli.lines("features", "set", f"{name}={before}")[1] == f"{name}\t{before}\tset"
        assert level() == before
        for wrong in (name, f"{name}=", f"{name}=high", f"{name}=99999", "=1"):
            assert cli.run("features", "set", wrong).returncode == 2, wrong


def test_log_dirs_are_shown_with_their_room_and_what_lies_in_them(cluster: CommandLine, name: str) -> None:
    cluster.ok("topics", "create", name, "-p", "1", "-r", "2")
    cluster.ok("produce", name, stdin=b"x" * 3000)
    shown = cluster.json("logdirs", "describe", "-t", name)
    assert [entry["broker"] for entry in shown] == [1, 2]
    for entry in shown:
        assert Path(entry["directory"]).is_dir()
        assert (entry["error"], entry["cordoned"]) == (None, False)
        assert 0 < entry["usable_bytes"] <= entry["total_bytes"]
        assert [each["topic"] for each in entry["replicas"]] == [name]
        assert entry["replica_bytes"] == entry["replicas"][0]["size"] > 3000
    (only,) = cluster.json("logdirs", "describe", "--broker", "2")
    assert only["broker"] == 2
    heading, *rows = (line.split("\t") for line in cluster.lines("logdirs", "describe", "-t", name))
    assert heading == ["BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "TOTAL"]
    assert [row[2:5] for row in rows] == [["online", "1", "3.1 kB"]] * 2
    heading, *rows = (line.split("\t") for line in cluster.lines("logdirs", "describe", "-t", name, "--replicas"))
    assert heading == ["BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "LAG", "MOVING-IN"]
    assert [row[2:] for row in rows] == [[name, "0", "3.1 kB", "0", "no"]] * 2


def test_broker_that_there_is_not_has_no_log_dirs(cluster: CommandLine) -> None:
    assert cluster.run("logdirs", "describe", "--broker", "none").returncode == 2
    unknown = cluster.run("logdirs", "describe", "--broker", "7")
    assert unknown.returncode == 1
    assert b"7" in unknown.stderr
    assert unknown.stderr.count(b"\n") == 1
