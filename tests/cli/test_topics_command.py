"""``pybroker topics`` against a running broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.cli.commands import topics
from pybroker.cli.commands.topics import ends_of_deletion, narrowed, needs_care
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.client_settings import Access
from pybroker.cli.connection.retries import Passing, UnknownBroker
from pybroker.cli.requests import group_lag, group_offsets, log_requests
from pybroker.cli.requests.partition_leaders import Partition
from pybroker_protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pybroker_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.schema import Request, Response
from tests.cli.command import CommandLine


def test_a_created_topic_is_listed_and_described(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "3", "-c", "retention.ms=-1")
    assert name in cli.lines("topics", "list", "--names")
    assert cli.lines("topics", "list", name) == ["TOPIC\tPARTITIONS\tREPLICAS", f"{name}\t3\t1"]
    [topic] = cli.json("topics", "describe", name)
    assert (topic["name"], topic["partition_count"], topic["configs"]) == (name, 3, {"retention.ms": "-1"})
    assert [(p["partition"], p["start_offset"], p["end_offset"]) for p in topic["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert len(topic["id"]) == 22


def test_a_compacted_topic_is_created_and_shows_its_clean_up_policy(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "--compact", "-c", "min.cleanable.dirty.ratio=0.1")
    [topic] = cli.json("topics", "describe", name)
    assert topic["cleanup_policy"] == "compact"
    assert topic["configs"] == {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    heading, row, *_ = (line.split("\t") for line in cli.lines("topics", "describe", name))
    assert row[heading.index("CLEANUP")] == "compact"

    cli.ok("topics", "create", f"{name}-both", "-c", "cleanup.policy=compact,delete")
    cli.ok("topics", "create", f"{name}-plain")
    both, plain = cli.json("topics", "describe", f"{name}-both", f"{name}-plain")
    assert (both["cleanup_policy"], plain["cleanup_policy"], plain["configs"]) == ("compact,delete", "delete", {})
    assert cli.run("topics", "create", f"{name}-x", "--compact", "-c", "cleanup.policy=delete").returncode == 2


def test_creating_a_topic_twice_fails_unless_allowed(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    again = cli.run("topics", "create", name, "--json")
    assert again.returncode == 1
    assert b"TOPIC_ALREADY_EXISTS" in again.stdout
    assert cli.lines("topics", "create", name, "--if-not-exists") == ["TOPIC\tSTATUS", f"{name}\texists"]


def test_a_failure_is_said_once_and_the_table_has_what_was_done(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    told = f"pybroker: topic {name}: TOPIC_ALREADY_EXISTS: Topic '{name}' already exists.\n"
    again = cli.run("topics", "create", name)
    assert (again.returncode, again.stdout, again.stderr.decode()) == (1, b"", told)
    one_of_two = cli.run("topics", "create", name, f"{name}-new")
    assert (one_of_two.returncode, one_of_two.stderr.decode()) == (1, told)
    assert one_of_two.stdout.decode() == f"TOPIC\tSTATUS\n{name}-new\tcreated\n"


def test_a_dry_run_creates_nothing(cli: CommandLine, name: str) -> None:
    assert cli.json("topics", "create", name, "--dry-run") == [{"name": name, "status": "valid"}]
    assert cli.run("topics", "describe", name).returncode == 1


def test_one_bad_topic_does_not_keep_the_good_ones_from_being_deleted(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    finished = cli.run("topics", "delete", name, f"{name}-missing")
    assert finished.returncode == 1
    assert f"{name}\tdeleted" in finished.stdout.decode()
    assert cli.run("topics", "describe", name).returncode == 1
    cli.ok("topics", "delete", name, "--if-exists")


def test_partitions_and_settings_are_altered(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1", "-c", "retention.ms=1000")
    cli.ok("topics", "alter", name, "-p", "4", "--set", "max.message.bytes=2000", "--append", "cleanup.policy=compact")
    [topic] = cli.json("topics", "describe", name)
    assert len(topic["partitions"]) == 4
    assert topic["configs"] == {
        "cleanup.policy": "delete,compact",
        "max.message.bytes": "2000",
        "retention.ms": "1000",
    }
    cli.ok("topics", "alter", name, "--unset", "retention.ms", "--subtract", "cleanup.policy=delete")
    configs = {entry["name"]: entry for entry in cli.json("topics", "configs", name, "--all")}
    assert configs["cleanup.policy"]["value"] == "compact"
    assert configs["retention.ms"]["source"] == "DEFAULT_CONFIG"
    assert len(configs) > len(cli.json("topics", "configs", name))


@pytest.mark.parametrize("second", ["--append", "--subtract", "--set"])
def test_setting_that_two_options_name_is_refused(cli: CommandLine, name: str, second: str) -> None:
    first = ("--unset", "a") if second == "--set" else ("--set", "a=1")
    finished = cli.run("topics", "alter", name, *first, second, "a=2")
    assert finished.returncode == 2
    assert b"named by two options" in b" ".join(finished.stderr.split())


def test_setting_without_a_value_is_wrong_use(cli: CommandLine, name: str) -> None:
    assert cli.run("topics", "create", name, "-c", "retention.ms").returncode == 2


def test_what_the_broker_refuses_fails_with_its_reason(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    for refused in (["--set", "no.such.setting=1"], ["-p", "1"]):
        finished = cli.run("topics", "alter", name, *refused)
        assert finished.returncode == 1
        assert finished.stderr.decode().startswith(f"pybroker: topic {name}: ")
    assert cli.run("topics", "alter", name).returncode == 2


def test_no_broker_is_said_with_what_to_do_and_exit_code_one(name: str) -> None:
    finished = CommandLine("127.0.0.1:1").run("topics", "describe", name)
    assert finished.returncode == 1
    assert finished.stderr.decode().splitlines() == [
        "pybroker: 127.0.0.1:1 refuses the connection; probably no broker listens there",
        "Is --bootstrap right? `pybroker doctor` checks each step of the way.",
    ]


def test_partitions_that_need_care_are_described_alone_and_of_all_topics(cli: CommandLine, name: str) -> None:
    cli.run("topics", "create", name, "-p", "2")
    for chosen in ("--under-replicated", "--unavailable"):
        assert cli.json("topics", "describe", chosen) == []
        assert cli.json("topics", "describe", name, chosen, "--under-replicated") == []
        assert cli.run("topics", "describe", f"{name}-no-such", chosen).returncode == 1
    assert cli.run("topics", "describe").returncode == 2


def test_records_before_an_offset_or_all_are_deleted(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    for partition in ("0", "1"):
        cli.ok("produce", name, "-p", partition, stdin=b"a\nb\nc\n")
    assert cli.json("topics", "delete-records", f"{name}:0", "--before-offset", "2") == [
        {"topic": name, "partition": 0, "start_offset": 2, "status": "deleted"}
    ]
    assert cli.lines("topics", "delete-records", f"{name}:1", "--all") == [
        "TOPIC\tPARTITION\tSTART-OFFSET\tSTATUS",
        f"{name}\t1\t3\tdeleted",
    ]
    beyond = cli.json("topics", "delete-records", name, "--before-offset", "3")
    assert [(each["start_offset"], each["status"]) for each in beyond] == [(3, "deleted"), (3, "nothing to delete")]
    too_far = cli.run("topics", "delete-records", name, "--before-offset", "4")
    assert too_far.returncode == 1
    assert [line.split(":")[:3] for line in too_far.stderr.decode().splitlines()] == [
        ["pybroker", f" {name}-{partition}", " OFFSET_OUT_OF_RANGE"] for partition in (0, 1)
    ]
    [topic] = cli.json("topics", "describe", name)
    assert [(p["start_offset"], p["end_offset"]) for p in topic["partitions"]] == [(3, 3), (3, 3)]


def test_records_before_a_time_are_deleted(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    for partition, times in ((0, (1_000, 2_000, 3_000)), (1, (1_000,))):
        records = "".join(f'{{"value": "v", "timestamp": {time}}}\n' for time in times)
        cli.ok("produce", name, "-p", str(partition), "--json", stdin=records.encode())

    def deleted_before(time_ms: int) -> list[tuple[int, int, str]]:
        document = cli.json("topics", "delete-records", name, "--before-time", str(time_ms))
        return [(each["partition"], each["start_offset"], each["status"]) for each in document]

    nothing = "nothing to delete"
    assert deleted_before(1000) == [(0, 0, nothing), (1, 0, nothing)]
    assert deleted_before(2000) == [(0, 1, "deleted"), (1, 1, "deleted")]
    assert deleted_before(3000) == [(0, 2, "deleted"), (1, 1, nothing)]


def metadata_of(leader: int) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=[1, 2], isr_nodes=[1, 2]
    )
    topic = MetadataResponseTopic(error_code=0, name="t", partitions=[partition])
    return MetadataResponse(brokers=[], controller_id=1, topics=[topic])


class GrowingLog:
    """An ``AdminClient`` of one partition, to which an old record is written after each question."""

    def __init__(self) -> None:
        self.end = 3

    def metadata(self, _: object) -> MetadataResponse:
        return metadata_of(leader=1)

    def ask(self, request: ListOffsetsRequest, *_: object, **__: object) -> ListOffsetsResponse:
        offset = self.end if request.topics[0].partitions[0].timestamp == log_requests.LATEST else -1
        self.end += 1
        answer = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


@pytest.mark.parametrize("time_ms", [None, 1_000])
def test_what_is_written_after_the_question_is_not_deleted(time_ms: int | None) -> None:
    partition = Partition("t", 0)
    client: Any = GrowingLog()
    assert ends_of_deletion(client, [partition], None, time_ms) == {partition: (0, 3)}


class MovedLeader:
    """An ``AdminClient`` of a partition whose leader, 1, is lost by the first question to it, and replaced by 2."""

    def __init__(self, lost: Exception) -> None:
        self.leader = 1
        self.lost = lost

    def metadata(self, _: object) -> MetadataResponse:
        return metadata_of(self.leader)

    def ask(self, request: Request, node_id: int, **_: object) -> Response:
        self.leader = 2
        if node_id == 1:
            raise self.lost
        if isinstance(request, DeleteRecordsRequest):
            deleted = DeleteRecordsPartitionResult(partition_index=0, low_watermark=7, error_code=0)
            topics = [DeleteRecordsTopicResult(name="t", partitions=[deleted])]
            return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
        answer = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


@pytest.mark.parametrize("lost", [Passing("it closes the connection"), UnknownBroker("no broker with the id 1 runs")])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda client, at: topics.offsets_at(client, [at], log_requests.LATEST)[at], (0, 7)),
        (lambda client, at: ends_of_deletion(client, [at], None, 1_000)[at], (0, 7)),
        (lambda client, at: topics.delete_before(client, {at: 7}, 1.0)[at], (0, 7)),
        (lambda client, at: group_offsets.offsets_at(client, [at], log_requests.LATEST)[at], 7),
        (lambda client, at: group_offsets.end_offsets(client, [at])[at], 7),
        (lambda client, at: group_lag._ends(client, [at])[at], 7),
    ],
)
def test_a_leader_that_was_lost_is_not_asked_again(
    question: Callable[[MovedLeader, Partition], object], answer: object, lost: Exception
) -> None:
    assert question(MovedLeader(lost), Partition("t", 0)) == answer


class Waits:
    """A connection on which is noted how long an answer is waited for."""

    is_usable = True

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def wait_for(self, timeout_s: float) -> None:
        self.waits_s.append(timeout_s)

    def ask(self, *_: object) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(throttle_time_ms=0, topics=[])


def test_an_answer_is_waited_for_as_long_as_replicas_may_take() -> None:
    client, connection = AdminClient([], Access(), 60.0), Waits()
    client._of_brokers[1] = connection  # type: ignore[assignment]
    partition = Partition("t", 0)
    for timeout_ms in (1_000_000, 1_000):
        log_requests.delete_records(client, {partition: 1}, {partition: 7}, timeout_ms)
    assert connection.waits_s[0] > 1_000
    assert connection.waits_s[1] == 60


def test_nothing_is_deleted_without_exactly_one_bound_and_of_partitions_that_there_are_not(
    cli: CommandLine, name: str
) -> None:
    cli.ok("topics", "create", name)
    cli.ok("produce", name, stdin=b"a\n")
    for arguments in ([], ["--all", "--before-offset", "1"], ["--before-time", "soon"]):
        assert cli.run("topics", "delete-records", name, *arguments).returncode == 2, arguments
    missing = cli.run("topics", "delete-records", name, f"{name}:7", "--all")
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"pybroker: {name}-7: UNKNOWN_TOPIC_OR_PARTITION: ".encode())
    [topic] = cli.json("topics", "describe", name)
    assert topic["partitions"][0]["start_offset"] == 0


def test_sizes_are_the_bytes_of_all_replicas(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    cli.ok("produce", name, "-p", "0", stdin=b"x" * 5000)
    [topic] = cli.json("topics", "describe", name, "--sizes")
    sizes = [partition["size"] for partition in topic["partitions"]]
    assert sizes[0] > 5000
    assert sizes[1:] == [0]
    assert topic["size"] == sum(sizes)
    assert list(topic["partitions"][0]["sizes"].values()) == sizes[:1]
    lines = [line.split("\t") for line in cli.lines("topics", "describe", name, "--sizes")]
    assert lines[1][lines[0].index("SIZE")] == "5.1 kB"
    assert [line[lines[2].index("SIZE")] for line in lines[3:]] == ["5.1 kB", "0 B"]
    assert "size" not in cli.json("topics", "describe", name)[0]


def test_the_size_of_a_topic_is_that_of_all_its_partitions_also_where_some_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {("t", 0): {1: 5, 2: 7}, ("t", 1): {1: 100}}
    monkeypatch.setattr(topics, "replica_sizes", lambda _: told)
    metadata = {"t": [{"partition_index": number, "replica_nodes": [1, 2]} for number in (0, 1)]}
    shown: list[dict[str, Any]] = [{"name": "t", "partitions": [{"partition": 1}]}]
    client: Any = None
    topics.add_sizes(client, shown, metadata)
    assert (shown[0]["size"], shown[0]["partitions"][0]["size"]) == (112, 100)
    assert capsys.readouterr().err == "sizes are without replicas on broker 2, which did not report them\n"
    del told["t", 1]
    topics.add_sizes(client, shown, metadata)
    assert (shown[0]["size"], shown[0]["partitions"][0]["size"]) == (12, None)
    capsys.readouterr()
    told["t", 1] = {1: 100, 2: 101}
    topics.add_sizes(client, shown, metadata)
    assert (shown[0]["size"], capsys.readouterr().err) == (213, "")


@pytest.mark.parametrize(
    ("leader", "isr", "under_replicated", "unavailable"),
    [(1, [1, 2], False, False), (1, [1], True, False), (-1, [2], True, True), (-1, [1, 2], False, True)],
)
def test_a_partition_needs_care_without_a_leader_or_with_a_replica_out_of_sync(
    leader: int, isr: list[int], under_replicated: bool, unavailable: bool
) -> None:
    partition = {"leader_id": leader, "replica_nodes": [1, 2], "isr_nodes": isr}
    assert needs_care(partition, True, False) is under_replicated
    assert needs_care(partition, False, True) is unavailable
    assert needs_care(partition, True, True) is (under_replicated or unavailable)


def test_a_topic_of_which_some_partitions_are_shown_has_as_many_as_before() -> None:
    partitions = [{"leader_id": leader, "replica_nodes": [1] * count} for leader, count in ((-1, 1), (1, 2), (2, 2))]
    topic = narrowed({"name": "t", "partitions": partitions}, lambda partition: partition["leader_id"] < 0)
    assert (topic["partitions"], topic["partition_count"], topic["replication_factor"]) == (partitions[:1], 3, 2)
