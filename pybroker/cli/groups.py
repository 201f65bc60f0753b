"""``pybroker groups``: list, describe (with lag), delete, and move or delete committed offsets.

Owns: the shapes that these commands print.  Counterparts: kafka-consumer-groups.sh, ``rpk group``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from pybroker.cli.connection import admin_client, retried
from pybroker.cli.failure import CommandFailed
from pybroker.cli.offset_reset import PartitionOffsets, Target, new_offset, parse_topic_partitions
from pybroker.cli.offsets import parse_timestamp_ms
from pybroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, Json
from pybroker.cli.output import Output, Row, remark

app = typer.Typer(help="List and describe consumer groups, and move their offsets.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP…")]
Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:N,M]",
        help="A topic, or some of its partitions.",
        default_factory=list,
        show_default=False,
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without this only show what would be done.")]

# States of a group in which nobody would overwrite a reset offset.
INACTIVE_STATES = {"Empty", "Dead"}
# How DescribeGroups answers for a group that does not exist: Dead (up to version 5), or an error (version 6).
MISSING = "GroupIdNotFoundError"


@app.command("list")
def list_groups(
    *,
    states: Annotated[
        list[str],
        typer.Option(
            "--state", "-s", help="Only groups in this state, e.g. Stable.", default_factory=list, show_default=False
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """List the groups of the cluster."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        groups = retried(client.list_groups)
    wanted = {state.lower() for state in states}
    document = [
        {
            "group": group["group_id"],
            "type": group.get("group_type") or "classic",
            "protocol_type": group["protocol_type"],
            "state": group.get("group_state"),
        }
        for group in sorted(groups, key=lambda group: str(group["group_id"]))
        if not wanted or str(group.get("group_state")).lower() in wanted
    ]
    rows = [list(group.values()) for group in document]
    output.result(document, ("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)


def describe_existing(client: Any, groups: list[str]) -> dict[str, dict[str, Any]]:
    """Descriptions by group id; raises ``CommandFailed`` for a group that does not exist."""
    described: dict[str, dict[str, Any]] = retried(lambda: client.describe_groups(groups))
    for group, description in described.items():
        error = description["error"]
        if error or description["group_state"] == "Dead":
            reason = "GROUP_ID_NOT_FOUND" if not error or MISSING in error else error
            raise CommandFailed(f"group {group}: {reason}")
    return described


@app.command("describe")
def describe_groups(
    *,
    groups: GroupNames,
    members: Annotated[bool, typer.Option("--members", "-m", help="The members instead of the offsets.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Describe groups: state, and per partition the committed offset, the end of the log, the lag and the owner."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        descriptions = describe_existing(client, groups)
        documents = [describe_one(client, group, descriptions[group]) for group in groups]
    if as_json:
        output.json(documents)
        return
    for document in documents:
        output.table(
            ("GROUP", "STATE", "ASSIGNOR", "MEMBERS", "TOTAL-LAG"),
            [(document["group"], document["state"], document["assignor"], len(document["members"]), document["lag"])],
        )
        output.table(*(member_table(document) if members else offset_table(document)))


def member_table(document: dict[str, Any]) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and rows of ``--members``."""
    rows: list[Row] = [
        (member["member_id"], member["instance_id"], member["client_id"], member["host"], member["partitions"])
        for member in document["members"]
    ]
    return ("MEMBER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "PARTITIONS"), rows


def offset_table(document: dict[str, Any]) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and rows of the offsets."""
    rows: list[Row] = [list(offset.values()) for offset in document["offsets"]]
    return ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER-ID"), rows


def assigned_partitions(member: dict[str, Any]) -> list[tuple[str, int]]:
    """The partitions of one member, from its decoded assignment; nothing for a protocol other than the consumer's."""
    assignment = member.get("member_assignment")
    if not isinstance(assignment, dict):
        return []
    return sorted(
        (topic["topic"], partition)
        for topic in assignment.get("assigned_partitions", [])
        for partition in topic["partitions"]
    )


def describe_one(client: Any, group: str, description: dict[str, Any]) -> dict[str, Any]:
    """One group's document, with the lag of every partition that is committed or assigned."""
    from kafka import TopicPartition

    owners = {
        TopicPartition(*partition): member["member_id"]
        for member in description["members"]
        for partition in assigned_partitions(member)
    }
    committed = committed_offsets(client, group)
    partitions = sorted(committed.keys() | owners.keys())
    ends = end_offsets(client, partitions)
    offsets: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "current_offset": committed.get(partition),
            "log_end_offset": ends.get(partition),
            "lag": lag_of(committed.get(partition), ends.get(partition)),
            "member_id": owners.get(partition),
        }
        for partition in partitions
    ]
    return {
        "group": group,
        "state": description["group_state"],
        "protocol_type": description["protocol_type"],
        "assignor": description["protocol_data"],
        "lag": sum(offset["lag"] or 0 for offset in offsets),
        "members": [
            {
                "member_id": member["member_id"],
                "instance_id": member.get("group_instance_id"),
                "client_id": member["client_id"],
                "host": member["client_host"],
                "partitions": [f"{topic}-{partition}" for topic, partition in assigned_partitions(member)],
            }
            for member in description["members"]
        ],
        "offsets": offsets,
    }


def lag_of(committed: int | None, end: int | None) -> int | None:
    """Records between the committed offset and the end; unknown when either is."""
    return None if committed is None or end is None else max(0, end - committed)


def committed_offsets(client: Any, group: str) -> dict[Any, int]:
    """What the group has committed, by partition."""
    answer = retried(lambda: client.list_group_offsets({group: None}))
    return {partition: entry.offset for partition, entry in answer[group].items() if entry.offset >= 0}


def existing_partitions(client: Any, topics: Iterable[str]) -> dict[str, list[int]]:
    """The partition numbers of each of ``topics`` that exists."""
    names = sorted(set(topics))
    if not names:
        return {}
    return {
        topic["name"]: sorted(partition["partition_index"] for partition in topic["partitions"])
        for topic in retried(lambda: client.describe_topics(names))
        if not topic["error_code"]
    }


def end_offsets(client: Any, partitions: Iterable[Any]) -> dict[Any, int]:
    """The log end of each partition that still exists: offsets may outlive a topic."""
    from kafka import OffsetSpec

    partitions = list(partitions)
    existing = existing_partitions(client, (partition.topic for partition in partitions))
    asked = {p: OffsetSpec.LATEST for p in partitions if p.partition in existing.get(p.topic, [])}
    if not asked:
        return {}
    answer = retried(lambda: client.list_partition_offsets(asked))
    return {partition: entry.offset for partition, entry in answer.items()}


@app.command("delete")
def delete_groups(
    *,
    groups: GroupNames,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Delete groups without members, and their offsets."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        answer = retried(lambda: client.delete_groups(groups))
    document = [{"group": group, "status": "deleted" if answer[group] == "OK" else answer[group]} for group in groups]
    output.result(document, ("GROUP", "STATUS"), [list(result.values()) for result in document])
    failures = sum(result["status"] != "deleted" for result in document)
    if failures:
        output.flush()
        raise CommandFailed(f"{failures} of {len(groups)} groups could not be deleted")


def chosen_partitions(client: Any, group: str, topics: list[str], all_topics: bool) -> list[Any]:
    """The partitions that ``--topic`` and ``--all-topics`` name; raises ``CommandFailed`` for one that is missing."""
    from kafka import TopicPartition

    if all_topics:
        return sorted(committed_offsets(client, group))
    try:
        wanted = [parse_topic_partitions(text) for text in topics]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    existing = existing_partitions(client, (topic for topic, _ in wanted))
    chosen: set[Any] = set()
    for topic, numbers in wanted:
        if missing := sorted(set(numbers or [0]) - set(existing.get(topic, []))):
            raise CommandFailed(f"{topic}-{missing[0]}: UNKNOWN_TOPIC_OR_PARTITION")
        chosen |= {TopicPartition(topic, number) for number in (existing[topic] if numbers is None else numbers)}
    return sorted(chosen)


def choose_target(options: dict[Target, Any]) -> tuple[Target, int]:
    """The one target that was given, and its value; anything but one is a usage error."""
    given = [(target, value) for target, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{target.value}" for target in options)
        raise typer.BadParameter(f"give exactly one of {names}")
    target, value = given[0]
    if target is Target.DATETIME:
        try:
            return target, parse_timestamp_ms(value, now_ms=int(time.time() * 1000))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return target, 0 if value is True else value


def plan_reset(client: Any, group: str, partitions: list[Any], target: Target, value: int) -> list[dict[str, Any]]:
    """Old and new offset of each partition; commits nothing."""
    from kafka import OffsetSpec

    committed = committed_offsets(client, group)
    earliest = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))
    latest = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))
    timed: dict[Any, Any] = {}
    if target is Target.DATETIME:
        timed = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, value)))
    plan = []
    for partition in partitions:
        known = PartitionOffsets(
            earliest=earliest[partition].offset,
            latest=latest[partition].offset,
            committed=committed.get(partition),
            at_timestamp=timed[partition].offset if partition in timed and timed[partition].offset >= 0 else None,
        )
        try:
            offset = new_offset(target, value, known)
        except ValueError as error:
            raise CommandFailed(f"{partition.topic}-{partition.partition}: {error}") from error
        plan.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": known.committed,
                "new_offset": offset,
            }
        )
    return plan


def commit_plan(client: Any, group: str, plan: list[dict[str, Any]]) -> None:
    """Commit the new offsets; raises ``CommandFailed`` when a partition was refused."""
    from kafka import OffsetAndMetadata, TopicPartition

    offsets = {
        TopicPartition(entry["topic"], entry["partition"]): OffsetAndMetadata(entry["new_offset"], "", -1)
        for entry in plan
    }
    answer = retried(lambda: client.alter_group_offsets(group, offsets))
    raise_refused(answer)


def raise_refused(answer: dict[Any, Any]) -> None:
    """Raise ``CommandFailed`` naming the first partition that the coordinator refused."""
    for partition, error in sorted(answer.items()):
        if error.errno:
            raise CommandFailed(f"{partition.topic}-{partition.partition}: {error.message}")


@app.command("reset-offsets")
def reset_offsets(
    *,
    group: GroupName,
    topics: Topics,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Everything the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is, clamped to the log.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0)] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="ISO 8601, epoch ms, or -15m, -24h, -7d.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward, or back if negative.")
    ] = None,
    execute: Execute = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done (the default).")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Move the committed offsets of a group that has no members."""
    if bool(topics) == all_topics:
        raise typer.BadParameter("give either --topic or --all-topics")
    if execute and dry_run:
        raise typer.BadParameter("give either --execute or --dry-run")
    target, value = choose_target(
        {
            Target.EARLIEST: to_earliest,
            Target.LATEST: to_latest,
            Target.CURRENT: to_current,
            Target.OFFSET: to_offset,
            Target.DATETIME: to_datetime,
            Target.SHIFT: shift_by,
        }
    )
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        require_inactive(client, group)
        partitions = chosen_partitions(client, group, topics, all_topics)
        plan = plan_reset(client, group, partitions, target, value) if partitions else []
        if execute and plan:
            commit_plan(client, group, plan)
    rows = [list(entry.values()) for entry in plan]
    output.result(plan, ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)
    if not execute:
        remark("Nothing was changed; add --execute to commit these offsets.")


def require_inactive(client: Any, group: str) -> None:
    """Raise ``CommandFailed`` while the group has members; a group that does not exist yet may be given offsets."""
    description = retried(lambda: client.describe_groups([group]))[group]
    state = description["group_state"]
    if description["error"] and MISSING not in description["error"]:
        raise CommandFailed(f"group {group}: {description['error']}")
    if not description["error"] and state not in INACTIVE_STATES:
        raise CommandFailed(f"group {group} is {state}: offsets can only be reset while it has no members")


@app.command("delete-offsets")
def delete_offsets(
    *,
    group: GroupName,
    topics: Topics,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Delete what a group has committed for topics that none of its members subscribes to."""
    if not topics:
        raise typer.BadParameter("give --topic")
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        partitions = chosen_partitions(client, group, topics, all_topics=False)
        answer = retried(lambda: client.delete_group_offsets(group, partitions))
    document = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "status": error.message if error.errno else "deleted",
        }
        for partition, error in sorted(answer.items())
    ]
    output.result(document, ("TOPIC", "PARTITION", "STATUS"), [list(entry.values()) for entry in document])
    output.flush()
    raise_refused(answer)
