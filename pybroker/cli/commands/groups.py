"""``pybroker groups``: list, describe, lag, delete, remove members, and move or delete committed offsets.

Owns: the shapes that these commands print.  Counterparts: kafka-consumer-groups.sh, kafka-groups.sh, ``rpk group``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import group_requests
from pybroker.cli.requests.group_descriptions import describe_all, describe_groups, with_offsets
from pybroker.cli.requests.group_lag import show_once, watch
from pybroker.cli.requests.group_offsets import (
    choose_target,
    chosen_partitions,
    commit_plan,
    plan_reset,
)
from pybroker.cli.requests.group_requests import UNKNOWN_MEMBER, Leaving
from pybroker.cli.requests.offset_reset import Target
from pybroker.cli.terminal.error_names import fail_for, part_of, refused, report
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused, repeated
from pybroker.cli.terminal.output import Row, remark

app = typer.Typer(help="List and describe groups, show their lag, and move their offsets.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group, by name.")]
GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP…", help="Groups by name.")]
Topics = Annotated[
    list[str],
    repeated("--topic", "-t", metavar="TOPIC[:N,M]", help="A topic, or some of its partitions."),
]
TopicsNeeded = Annotated[
    list[str], typer.Option("--topic", "-t", metavar="TOPIC[:N,M]", help="A topic, or some of its partitions.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Commit the offsets; without this they are only shown.")]

# States of a group in which no member would overwrite a reset offset.
INACTIVE_STATES = {"Empty", "Dead"}
# What ListGroups tells apart.
TYPES = ("classic", "consumer", "share", "streams")
# Kafka's states of all kinds of groups, as ListGroups spells them.
STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
)


@admin_command(app, "list")
def list_groups(
    session: Session,
    *,
    states: Annotated[list[str], repeated("--state", "-s", help="Only groups in this state, like Stable.")],
    types: Annotated[
        list[str], repeated("--type", metavar="TYPE", help=f"Only groups of this type: {', '.join(TYPES)}.")
    ],
) -> None:
    """List the groups of the cluster."""
    wanted_states, wanted_types = ({text.lower() for text in texts} for texts in (states, types))
    if unknown := [text for text in types if text.lower() not in TYPES]:
        raise typer.BadParameter(f"--type must be one of {', '.join(TYPES)}, not {unknown[0]!r}")
    if strange := [text for text in states if text.lower() not in {state.lower() for state in STATES}]:
        raise typer.BadParameter(f"--state must be one of {', '.join(STATES)}, not {strange[0]!r}")
    with session.client() as client:
        groups = retried(lambda: group_requests.listed(client))
    document: list[dict[str, Any]] = [
        {
            "group": each.group,
            "type": each.kind,
            "protocol_type": each.protocol_type,
            "state": each.state,
        }
        for each in groups
    ]
    shown = [
        group
        for group in document
        if (not wanted_states or str(group["state"]).lower() in wanted_states)
        and (not wanted_types or group["type"].lower() in wanted_types)
    ]
    rows = [list(group.values()) for group in shown]
    session.output.result(shown, ("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)


@admin_command(app, "describe")
def describe(
    session: Session,
    *,
    groups: GroupNames,
    members: Annotated[bool, typer.Option("--members", "-m", help="Show the members instead of the offsets.")] = False,
) -> None:
    """Describe groups: state, and per partition the committed offset, the end of the log, the lag and the owner."""
    output = session.output
    with session.client() as client:
        described = describe_all(client, list(dict.fromkeys(groups)))
        documents = [with_offsets(client, each) for each in described.values() if not isinstance(each, CommandFailed)]
    if output.as_json:
        output.json(documents)
    else:
        for document in documents:
            output.table(*group_table(document))
            output.table(*(member_table(document) if members else offset_table(document)))
    fail_for([each for each in described.values() if isinstance(each, CommandFailed)], output)


def group_table(document: dict[str, Any]) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and row of the group itself; epochs where it has some."""
    columns = ["GROUP", "TYPE", "STATE", "ASSIGNOR", "MEMBERS", "LAG"]
    row = [document[name] for name in ("group", "type", "state", "assignor")]
    row += [len(document["members"]), document["lag"]]
    if document["group_epoch"] is not None:
        columns[3:3] = ["EPOCH", "TARGET-EPOCH"]
        row[3:3] = [document["group_epoch"], document["assignment_epoch"]]
    return tuple(columns), [row]


def member_table(document: dict[str, Any]) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and rows of ``--members``; in a consumer group with epochs and targets."""
    columns = ["MEMBER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "PARTITIONS"]
    names = ["member_id", "instance_id", "client_id", "host", "partitions"]
    if document["type"] == "consumer":
        columns[4:] = ["MEMBER-TYPE", "EPOCH", "PARTITIONS", "TARGET"]
        names[4:] = ["protocol", "epoch", "partitions", "target_partitions"]
    return tuple(columns), [[member[name] for name in names] for member in document["members"]]


def offset_table(document: dict[str, Any]) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and rows of the offsets."""
    rows: list[Row] = [list(offset.values()) for offset in document["offsets"]]
    return ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER-ID"), rows


@admin_command(app, "lag")
def show_lag(
    session: Session,
    *,
    groups: Annotated[
        list[str],
        typer.Argument(metavar="[GROUP…]", help="Groups by name.", default_factory=list, show_default=False),
    ],
    watched: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.1, max=3600, help="Seconds from one look to the next.")
    ] = 2.0,
) -> None:
    """Show how far groups are behind, all or those named, the one with most lag first.

    COMMITTED is the number of partitions with a committed offset.
    """
    with session.client() as client:
        if watched:
            watch(client, session.output, groups, interval_s)
        else:
            show_once(client, session.output, groups)


@admin_command(app, "remove-member")
def remove_member(
    session: Session,
    *,
    group: GroupName,
    members: Annotated[
        list[str],
        typer.Argument(metavar="[MEMBER…]", help="Members by their ids.", default_factory=list, show_default=False),
    ],
    instances: Annotated[
        list[str], repeated("--instance", "-i", metavar="ID", help="A static member by its group.instance.id.")
    ],
    everything: Annotated[bool, typer.Option("--all", help="Remove all members of the group.")] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, for the broker's log.")
    ] = "removed by hand",
) -> None:
    """Have members leave a group, so that others get their partitions; one that still runs joins again."""
    if bool(members or instances) == everything:
        raise misused("name members, by ids or --instance, or say --all")
    with session.client() as client:
        leaving = [Leaving(member_id, None) for member_id in dict.fromkeys(members)]
        leaving += [Leaving(UNKNOWN_MEMBER, instance_id) for instance_id in dict.fromkeys(instances)]
        if everything:
            leaving = all_members(client, group)
        code, codes = 0, dict[Leaving, int]()
        if leaving:
            code, codes = retried(lambda: group_requests.remove_members(client, group, leaving, reason))
    if code:
        raise refused(f"group {group}", code)
    parts = [
        part_of(
            {"member_id": each.member_id or None, "instance_id": each.instance_id},
            f"member {each.instance_id or each.member_id}",
            its_code,
            "removed",
        )
        for each, its_code in codes.items()
    ]
    report(session.output, ("MEMBER-ID", "INSTANCE-ID", "STATUS"), parts)


def all_members(client: AdminClient, group: str) -> list[Leaving]:
    """The members of a group, static ones by their instance ids; raises ``CommandFailed`` where it is not there."""
    description = describe_all(client, [group])[group]
    if isinstance(description, CommandFailed):
        raise description
    return [
        Leaving(UNKNOWN_MEMBER, each["instance_id"]) if each["instance_id"] else Leaving(each["member_id"], None)
        for each in description["members"]
    ]


@admin_command(app, "delete")
def delete_groups(
    session: Session,
    *,
    groups: GroupNames,
) -> None:
    """Delete groups without members, and their offsets."""
    with session.client() as client:
        codes = group_requests.delete(client, groups)
    names = dict.fromkeys(groups)
    parts = [part_of({"group": group}, f"group {group}", codes[group], "deleted") for group in names]
    report(session.output, ("GROUP", "STATUS"), parts)


@admin_command(app, "reset-offsets")
def reset_offsets(
    session: Session,
    *,
    group: GroupName,
    topics: Topics,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions with a committed offset.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Move to the beginning of the log.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Move to the end of the log.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Stay, or move to the nearest offset that the log has.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="Move to this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Move to the first record of this time: ISO 8601, epoch milliseconds, or -15m, -24h, -7d before now.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move N records forward, or back where N is negative.")
    ] = None,
    execute: Execute = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the offsets; this is the default.")] = False,
) -> None:
    """Move the committed offsets of a group that has no members.

    --topic or --all-topics, and one of the options that say where to, are required.
    """
    if bool(topics) == all_topics:
        raise misused("give either --topic or --all-topics")
    if execute and dry_run:
        raise misused("give either --execute or --dry-run")
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
    with session.client() as client:
        require_inactive(client, group)
        partitions = chosen_partitions(client, group, topics, all_topics)
        plan = plan_reset(client, group, partitions, target, value) if partitions else []
        if execute and plan:
            commit_plan(client, group, plan)
    document = [{**entry, "status": "committed" if execute else "planned"} for entry in plan]
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "STATUS")
    session.output.result(document, columns, [list(entry.values()) for entry in document])
    if not execute:
        remark("Nothing was changed; add --execute to commit these offsets.")


def require_inactive(client: AdminClient, group: str) -> None:
    """Raise ``CommandFailed`` while the group has members; a group that does not exist yet may be given offsets."""
    description = describe_groups(client, [group]).get(group, {})
    if isinstance(description, CommandFailed):
        raise description
    state = description.get("state")
    if state is not None and state not in INACTIVE_STATES:
        raise CommandFailed(f"group {group} is {state}: offsets can only be reset while it has no members")


@admin_command(app, "delete-offsets")
def delete_offsets(
    session: Session,
    *,
    group: GroupName,
    topics: TopicsNeeded,
) -> None:
    """Delete committed offsets of a group, of topics to which no member is subscribed."""
    with session.client() as client:
        partitions = chosen_partitions(client, group, topics, all_topics=False)
        answer = retried(lambda: group_requests.delete_offsets(client, group, partitions))
    parts = [
        part_of({"topic": partition.topic, "partition": partition.number}, partition, code, "deleted")
        for partition, code in sorted(answer.items())
    ]
    report(session.output, ("TOPIC", "PARTITION", "STATUS"), parts)
