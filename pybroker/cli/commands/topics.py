"""``pybroker topics``: list, create, describe, delete, alter, and show the settings of topics.

Owns: the shapes that these commands print.  Counterparts: kafka-topics.sh, kafka-configs.sh, ``rpk topic``.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.client_settings import parse_pairs
from pybroker.cli.connection.retries import is_passing_with_brokers, retried
from pybroker.cli.requests import config_requests, log_requests, topic_requests
from pybroker.cli.requests.offsets import parse_timestamp_ms
from pybroker.cli.requests.partition_leaders import Partition, asked_of_leaders, choose_partitions
from pybroker.cli.requests.wire_requests import brokers
from pybroker.cli.terminal.error_names import fail_for, part_of, refused, report
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import INT32_MAX, misused, repeated
from pybroker.cli.terminal.output import Output, remark, show_size
from pybroker_protocol.uuids import uuid_text

app = typer.Typer(help="List, create, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics by name.")]
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36
CLEANUP_POLICY = "cleanup.policy"


def kafka_uuid(uuid: bytes | None) -> str | None:
    """A uuid as Kafka's tools print it."""
    return None if uuid is None else uuid_text(uuid)


def describe_existing(client: AdminClient, names: list[str] | None) -> list[dict[str, Any]]:
    """Metadata of the named topics (``None``: all) by name; raises ``CommandFailed`` for one that is missing."""
    topics, failures = describe_all(client, names)
    if failures:
        raise failures[0]
    return topics


def describe_all(client: AdminClient, names: list[str] | None) -> tuple[list[dict[str, Any]], list[CommandFailed]]:
    """Metadata of those of the topics that there are, by name, and why there is none of the others."""
    answers: list[dict[str, Any]] = retried(lambda: topic_requests.described(client, names))
    topics = sorted((each for each in answers if not each["error_code"]), key=lambda each: str(each["name"]))
    return topics, [refused(f"topic {each['name']}", each["error_code"]) for each in answers if each["error_code"]]


@admin_command(app, "list")
def list_topics(
    session: Session,
    *,
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="[PATTERN…]",
            help="Topics by shell patterns of their names.",
            default_factory=list,
            show_default=False,
        ),
    ],
    internal: Annotated[bool, typer.Option("--internal", "-i", help="List internal topics as well.")] = False,
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Print the names alone, one a line.")] = False,
) -> None:
    """List the topics of the cluster."""
    with session.client() as client:
        topics = describe_existing(client, None)
    shown = [
        {
            "name": topic["name"],
            "id": kafka_uuid(topic.get("topic_id")),
            "partition_count": len(topic["partitions"]),
            "replication_factor": max((len(p["replica_nodes"]) for p in topic["partitions"]), default=0),
            "internal": topic["is_internal"],
        }
        for topic in topics
        if (internal or not topic["is_internal"])
        and (not patterns or any(fnmatch.fnmatchcase(topic["name"], pattern) for pattern in patterns))
    ]
    if names_only and not session.output.as_json:
        for topic in shown:
            session.output.line(topic["name"])
        return
    session.output.result(
        shown,
        ("TOPIC", "PARTITIONS", "REPLICAS"),
        [(topic["name"], topic["partition_count"], topic["replication_factor"]) for topic in shown],
    )


@admin_command(app, "create")
def create_topics(
    session: Session,
    *,
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=-1, max=INT32_MAX, help="Partitions of each topic; -1 leaves it to the broker."
        ),
    ] = -1,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", "-r", min=-1, max=2**15 - 1, help="Replicas of each partition; -1 leaves it to the broker."
        ),
    ] = -1,
    configs: Annotated[
        list[str],
        repeated("--config", "--set", "-c", "-s", metavar="KEY=VALUE", help="Set a setting."),
    ],
    compact: Annotated[
        bool, typer.Option("--compact", help="Keep the last record of each key, by cleanup.policy=compact.")
    ] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed where a topic exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, and create nothing.")] = False,
) -> None:
    """Create topics."""
    settings = parse_pairs(configs, "--config")
    if compact and settings.setdefault(CLEANUP_POLICY, "compact") != "compact":
        raise misused(f"--compact contradicts --config {CLEANUP_POLICY}={settings[CLEANUP_POLICY]}")
    with session.client() as client:
        answers = topic_requests.create(client, names, partitions, replicas, settings, dry_run=dry_run)
    known = {TOPIC_ALREADY_EXISTS: topic_requests.EXISTS} if if_not_exists else {}
    report_topics(session.output, answers, done="valid" if dry_run else "created", known=known)


@admin_command(app, "delete")
def delete_topics(
    session: Session,
    *,
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed where a topic is missing.")] = False,
) -> None:
    """Delete topics and all their records."""
    with session.client() as client:
        answers = topic_requests.delete(client, names)
    known = {UNKNOWN_TOPIC_OR_PARTITION: "missing"} if if_exists else {}
    report_topics(session.output, answers, done="deleted", known=known)


def report_topics(output: Output, answers: list[dict[str, Any]], *, done: str, known: Mapping[int, str]) -> None:
    """Print what became of each topic; ``CommandFailed`` where one failed, but for errors that are ``known``."""
    parts = []
    for answer in answers:
        name, code, message = answer["name"], answer["error_code"], answer.get("error_message")
        status = known.get(code, answer.get("status", done))
        document, failure = part_of({"name": name}, f"topic {name}", 0 if code in known else code, status, message)
        parts.append(({**document, "message": message} if code and message else document, failure))
    report(output, ("TOPIC", "STATUS"), parts)


@admin_command(app, "describe")
def describe_topics(
    session: Session,
    *,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[TOPIC…]", help="Topics by name.", default_factory=list, show_default=False),
    ],
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Show only partitions with a replica that is not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Show only partitions without a leader.")] = False,
    sizes: Annotated[bool, typer.Option("--sizes", help="Show how much all replicas have on disk.")] = False,
) -> None:
    """Describe topics: id, clean-up policy, settings of its own, and each partition with its offsets.

    With --under-replicated or --unavailable only what needs care, of all topics where none is named. All settings,
    defaults included, are shown by `pybroker topics configs`.
    """
    only_some = under_replicated or unavailable
    if not names and not only_some:
        raise misused("name a topic, or choose partitions by --under-replicated or --unavailable")

    def is_shown(partition: dict[str, Any]) -> bool:
        return not only_some or needs_care(partition, under_replicated, unavailable)

    output = session.output
    with session.client() as client:
        found, failures = describe_all(client, names or None)
        chosen = [narrowed(topic, is_shown) for topic in found]
        topics = [describe_one(client, topic) for topic in chosen if topic["partitions"] or not only_some]
        if sizes:
            add_sizes(client, topics, {topic["name"]: topic["partitions"] for topic in found})
    if output.as_json:
        output.json(topics)
    else:
        print_descriptions(output, topics)
    fail_for(failures, output)


def print_descriptions(output: Output, topics: list[dict[str, Any]]) -> None:
    """A table of each topic, and one of its partitions."""
    for topic in topics:
        settings = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
        count = (topic["partition_count"], topic["replication_factor"])
        has_sizes = "size" in topic
        output.table(
            ("TOPIC", "ID", "PARTITIONS", "REPLICAS", *(["SIZE"] * has_sizes), "CLEANUP", "CONFIGS"),
            [
                (
                    *(topic["name"], topic["id"], *count),
                    *([show_size(topic.get("size"))] * has_sizes),
                    *(topic["cleanup_policy"], settings),
                )
            ],
        )
        # A terminal of 80 columns has space for one of the two.
        third = ("SIZE", "size") if has_sizes else ("EPOCH", "leader_epoch")
        columns = ("PARTITION", "LEADER", third[0], "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET")
        keys = ("partition", "leader", third[1], "replicas", "isr", "start_offset", "end_offset")
        rows = [[show_size(each[key]) if key == "size" else each[key] for key in keys] for each in topic["partitions"]]
        output.table(columns, rows)


def add_sizes(client: AdminClient, topics: list[dict[str, Any]], metadata: Mapping[str, list[dict[str, Any]]]) -> None:
    """Add to each partition the bytes of its replicas, by broker, and in all; and to its topic those of all partitions.

    ``metadata`` has all partitions of these topics, also those that are not shown.  Where no broker tells of any
    replica, the bytes are ``None``; where some are missing, a remark says so.
    """
    reported = replica_sizes(client)
    missing: set[int] = set()
    for topic in topics:
        sizes = {}
        for each in metadata[topic["name"]]:
            number = each["partition_index"]
            sizes[number] = reported.get((topic["name"], number), {})
            missing |= set(each["replica_nodes"]) - sizes[number].keys()
        for partition in topic["partitions"]:
            partition["sizes"] = sizes[partition["partition"]]
            partition["size"] = sum_of_known(partition["sizes"].values())
        topic["size"] = sum_of_known(size for of_one in sizes.values() for size in of_one.values())
    if missing:
        brokers_of = ", ".join(map(str, sorted(missing)))
        remark(f"sizes are without replicas on broker {brokers_of}, which did not report them")


def replica_sizes(client: AdminClient) -> dict[tuple[str, int], dict[int, int]]:
    """The bytes of each replica that a running broker has: by topic and partition, and by broker."""
    directories, codes = retried(
        lambda: log_requests.log_directories(client, brokers(client)), passes=is_passing_with_brokers
    )
    for broker_id, code in codes.items():
        raise refused(f"log dirs of broker {broker_id}", code)
    sizes: dict[tuple[str, int], dict[int, int]] = {}
    for directory in directories:
        for each in directory.replicas:
            if not each.is_future:
                sizes.setdefault((each.topic, each.partition), {})[directory.broker] = each.size
    return sizes


def sum_of_known(sizes: Iterable[int]) -> int | None:
    """``None`` where nothing is known."""
    known = list(sizes)
    return sum(known) if known else None


@admin_command(app, "delete-records")
def delete_records(
    session: Session,
    *,
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:N,M]…", help="Topics, or some of their partitions.")
    ],
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", metavar="N", min=0, help="Delete the records before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            "--before-time",
            metavar="TIME",
            help="Delete records before the first one of this time: ISO 8601, epoch milliseconds, or -7d before now.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records that are committed now.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, max=3600, help="Seconds that all replicas may take.")
    ] = 30.0,
) -> None:
    """Delete the oldest records of partitions; consumers begin behind them."""
    if sum((before_offset is not None, before_time is not None, everything)) != 1:
        raise misused("give exactly one of --before-offset, --before-time, --all")
    try:
        time_ms = None if before_time is None else parse_timestamp_ms(before_time, now_ms=int(time.time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(f"--before-time: {error}") from error
    with session.client() as client:
        chosen = choose_partitions(client, partitions)
        starts = offsets_at(client, chosen, log_requests.EARLIEST)
        known = ends_of_deletion(client, chosen, before_offset, time_ms)
        answers = {partition: (code, -1) for partition, (code, _) in known.items() if code}
        offsets = {partition: offset for partition, (code, offset) in known.items() if not code}
        answers |= delete_before(client, offsets, timeout_s)
    parts = []
    for each, (code, start) in sorted(answers.items()):
        named = {"topic": each.topic, "partition": each.number, "start_offset": None if code else start}
        has_deleted = each in offsets and offsets[each] > starts[each][1]
        parts.append(part_of(named, each, code, "deleted" if has_deleted else "nothing to delete"))
    report(session.output, ("TOPIC", "PARTITION", "START-OFFSET", "STATUS"), parts)


def delete_before(
    client: AdminClient, offsets: Mapping[Partition, int], timeout_s: float
) -> dict[Partition, tuple[int, int]]:
    """Each partition's error code, and where its log begins now."""
    timeout_ms = int(1000 * timeout_s)
    return asked_of_leaders(
        client, offsets, lambda leaders: log_requests.delete_records(client, leaders, offsets, timeout_ms)
    )


def ends_of_deletion(
    client: AdminClient, partitions: Iterable[Partition], before_offset: int | None, time_ms: int | None
) -> dict[Partition, tuple[int, int]]:
    """Each partition's error code, and the offset before which records are deleted; without a bound all of now.

    The offset is never -1. A broker takes that for the high watermark of the moment in which it deletes, so that
    records would go that came after the question, or between two attempts.
    """
    if before_offset is not None:
        return dict.fromkeys(partitions, (0, before_offset))
    ends = offsets_at(client, partitions, log_requests.LATEST)
    if time_ms is None:
        return ends
    # The second question: what is written in between is behind the end, and stays.
    timed = offsets_at(client, partitions, time_ms)
    return {partition: ends[partition] if found == (0, -1) else found for partition, found in timed.items()}


def offsets_at(
    client: AdminClient, partitions: Iterable[Partition], timestamp: int
) -> dict[Partition, tuple[int, int]]:
    """As ``log_requests.offsets_at``, of leaders that may move."""
    return asked_of_leaders(client, partitions, lambda leaders: log_requests.offsets_at(client, leaders, timestamp))


def needs_care(partition: dict[str, Any], under_replicated: bool, unavailable: bool) -> bool:
    """Whether a partition of the metadata is in one of the states asked for."""
    lacks_replicas = len(partition["isr_nodes"]) < len(partition["replica_nodes"])
    return (under_replicated and lacks_replicas) or (unavailable and partition["leader_id"] < 0)


def narrowed(topic: dict[str, Any], is_shown: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A topic's metadata with the partitions that are shown alone; the counts are of all of them."""
    partitions = topic["partitions"]
    return {
        **topic,
        "partition_count": len(partitions),
        "replication_factor": max((len(partition["replica_nodes"]) for partition in partitions), default=0),
        "partitions": [partition for partition in partitions if is_shown(partition)],
    }


def describe_one(client: AdminClient, topic: dict[str, Any]) -> dict[str, Any]:
    """One topic's document: metadata, modified settings, and offsets where a leader can tell them."""
    name = topic["name"]
    led = [Partition(name, p["partition_index"]) for p in topic["partitions"] if p["leader_id"] >= 0]
    starts, ends = (offsets_at(client, led, at) for at in (log_requests.EARLIEST, log_requests.LATEST))
    partitions = []
    for partition in sorted(topic["partitions"], key=lambda p: int(p["partition_index"])):
        key = Partition(name, partition["partition_index"])
        partitions.append(
            {
                "partition": partition["partition_index"],
                "leader": partition["leader_id"],
                "leader_epoch": partition.get("leader_epoch"),
                "replicas": partition["replica_nodes"],
                "isr": partition["isr_nodes"],
                "offline": partition.get("offline_replicas", []),
                "start_offset": offset_of(starts, key),
                "end_offset": offset_of(ends, key),
            }
        )
    configs = topic_configs(client, name)
    return {
        "name": name,
        "id": kafka_uuid(topic.get("topic_id")),
        "internal": topic["is_internal"],
        "partition_count": topic["partition_count"],
        "replication_factor": topic["replication_factor"],
        # The topic's own or the cluster's: what happens to old records is never a detail.
        "cleanup_policy": configs[CLEANUP_POLICY]["value"],
        "configs": {key: config["value"] for key, config in configs.items() if is_own(config)},
        "partitions": partitions,
    }


def offset_of(answers: dict[Partition, tuple[int, int]], partition: Partition) -> int | None:
    """What a leader reports of one; None where there is none."""
    code, offset = answers.get(partition, (0, None))
    if code:
        raise refused(partition, code)
    return offset


def topic_configs(client: AdminClient, name: str) -> dict[str, dict[str, Any]]:
    """All settings of a topic by name."""
    return {config["name"]: config for config in config_requests.described(client, "topic", name)}


def is_own(config: dict[str, Any]) -> bool:
    """Whether a setting was set on the topic itself."""
    return bool(config["source"] == "DYNAMIC_TOPIC_CONFIG")


@admin_command(app, "configs")
def show_configs(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, by name.")],
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show settings, too, that are not set for this topic.")
    ] = False,
) -> None:
    """Show the settings of a topic and where each comes from."""
    with session.client() as client:
        describe_existing(client, [name])
        configs = topic_configs(client, name)
    document = [config for config in configs.values() if everything or is_own(config)]
    rows = [config_requests.setting_row(entry) for entry in document]
    session.output.result(document, ("NAME", "VALUE", "SOURCE"), rows)


@admin_command(app, "alter")
def alter_topic(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, by name.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=INT32_MAX, help="The new number of partitions, which can only grow."
        ),
    ] = None,
    settings: Annotated[
        list[str],
        repeated("--set", "-s", metavar="KEY=VALUE", help="Set a setting."),
    ],
    unset: Annotated[
        list[str],
        repeated("--unset", "-d", metavar="KEY", help="Reset a setting to its default."),
    ],
    append: Annotated[
        list[str],
        repeated("--append", metavar="KEY=VALUE", help="Add a value to a setting that is a list."),
    ],
    subtract: Annotated[
        list[str],
        repeated("--subtract", metavar="KEY=VALUE", help="Take a value from a setting that is a list."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, and change nothing.")] = False,
) -> None:
    """Change a topic's settings or add partitions to it."""
    changes = config_requests.changes_of(settings, unset, append, subtract)
    if not changes and partitions is None:
        raise misused("nothing to change: give --partitions, --set, --unset, --append or --subtract")
    with session.client() as client:
        describe_existing(client, [name])
        if changes:
            config_requests.alter(client, "topic", name, changes, dry_run=dry_run)
        if partitions is not None:
            add_partitions(client, name, partitions, dry_run=dry_run)
    status = "valid" if dry_run else "altered"
    session.output.result([{"name": name, "status": status}], ("TOPIC", "STATUS"), [(name, status)])


def add_partitions(client: AdminClient, name: str, count: int, *, dry_run: bool) -> None:
    """CreatePartitions for one topic, to ``count`` in all."""
    code, message = retried(lambda: topic_requests.set_partitions(client, name, count, dry_run=dry_run))
    if code:
        raise refused(f"topic {name}", code, message)
