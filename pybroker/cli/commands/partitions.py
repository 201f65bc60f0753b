"""``pybroker partitions``: move the replicas of partitions to other brokers, and elect their leaders.

Owns: the shapes that these commands print, the wait until replicas have moved, and when a throttle is set and removed.
Does not own where replicas go where the user does not say it (``spreading``), nor what a throttle is (``throttles``).
Counterparts: kafka-reassign-partitions.sh, kafka-leader-election.sh.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer

from pybroker.cli.commands.topics import describe_existing
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.changes import may_be_done, remark_on_repeat, settled
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import topic_requests, wire_requests
from pybroker.cli.requests.partition_leaders import Partition, named_partitions
from pybroker.cli.requests.spreading import spread
from pybroker.cli.requests.throttles import Move, Throttle, find_throttles, remove_throttles, set_throttle
from pybroker.cli.requests.wire_requests import brokers as running_brokers
from pybroker.cli.terminal.error_names import part_of, refused, report
from pybroker.cli.terminal.failure import CommandFailed, named_error
from pybroker.cli.terminal.options import INT32_MAX, misused
from pybroker.cli.terminal.output import counted, progress, remark
from pybroker_protocol.errors import ErrorCode

app = typer.Typer(help="Move partitions to other brokers, and elect their leaders.", no_args_is_help=True)

PREFERRED, UNCLEAN = 0, 1  # the election types of ElectLeaders
_PAUSE_S = 0.2
_KNOWN_WITHIN_S = 5.0
_LOOK_S = 1.0  # so often it is asked how much was copied
_REMOVING = '"pybroker partitions reassignments --remove-throttle"'

Chosen = Annotated[
    list[str],
    typer.Argument(
        metavar="[TOPIC[:N,M]…]", help="Topics, or some of their partitions.", default_factory=list, show_default=False
    ),
]
All = Annotated[bool, typer.Option("--all", "-a", help="Choose all topics, internal ones as well.")]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replicas", "-r", min=1, max=2**15 - 1, help="Replicas of each partition; otherwise as many as now."
    ),
]
BytesPerSecond = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES_PER_S",
        min=1,
        help="Bytes per second of moves that a broker sends or fetches, at most.",
    ),
]
Answer = tuple[int, str | None]  # error code, message


class Reassignment(NamedTuple):
    """A move that is under way."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def choose(client: AdminClient, texts: list[str], everything: bool) -> dict[Partition, dict[str, Any]]:
    """The metadata of the partitions that were named; raises for one that does not exist."""
    if bool(texts) == everything:
        raise misused("name topics, or say --all")
    wanted = named_partitions(client, texts)
    found: dict[Partition, dict[str, Any]] = {}
    for topic in describe_existing(client, list(dict.fromkeys(name for name, _ in wanted)) or None):
        by_number = {each["partition_index"]: each for each in topic["partitions"]}
        of_this = [numbers for name, numbers in wanted if name == topic["name"]]
        numbers = None if None in of_this or not of_this else [each for some in of_this for each in some or ()]
        for number in sorted(by_number) if numbers is None else numbers:
            if number not in by_number:
                raise refused(f"{topic['name']}-{number}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found[Partition(topic["name"], number)] = by_number[number]
    return found


def parse_brokers(text: str, option: str) -> list[int]:
    """Ids of brokers with commas between them, each once."""
    ids = [int(part) if part.strip().isdecimal() else -1 for part in text.split(",")]
    if min(ids) < 0 or max(ids) > INT32_MAX or len(set(ids)) < len(ids):
        raise typer.BadParameter(f"{option} takes different ids of brokers with commas, not {text!r}")
    return ids


@admin_command(app, "reassign")
def reassign(
    session: Session,
    *,
    partitions: Chosen,
    everything: All = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="ID,…", help="The brokers of each partition's replicas, the preferred leader first."
        ),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,…", help="The brokers to spread replicas over; otherwise all that run."),
    ] = None,
    replicas: Replicas = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the moves that are under way.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Return when all partitions have moved.")] = False,
    stalled_after: Annotated[
        int,
        typer.Option(
            "--stalled-after", metavar="S", min=1, help="Seconds without anything copied, after which --wait fails."
        ),
    ] = 60,
    throttle: BytesPerSecond = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")] = False,
) -> None:
    """Move the replicas of partitions to other brokers, while they are in use.

    As few as possible are copied where --to does not say where they go. A broker that is to be retired is left out of
    --brokers. A throttle holds for all moves that are under way. It is taken away at the end of --wait, by --cancel,
    and by "reassignments --remove-throttle", once nothing moves any more.
    """
    if (to is not None) + (brokers is not None or replicas is not None) + cancel > 1 or (cancel and (wait or dry_run)):
        raise misused("--to, --cancel, and --brokers with --replicas exclude each other")
    if throttle is not None and (cancel or dry_run):
        raise misused("--throttle goes with moves, not with --cancel or --dry-run")
    exact = None if to is None else parse_brokers(to, "--to")
    allowed = None if brokers is None else parse_brokers(brokers, "--brokers")
    with session.client() as client:
        under_way = listed(client, None)
        now = {each: list(state["replica_nodes"]) for each, state in choose(client, partitions, everything).items()}
        if cancel:
            taken_back = dict.fromkeys(each for each in under_way if each in now)
            answers = alter(client, taken_back, under_way)
            remove_throttle(client, by_topic(taken_back))
            report_moves(session, now, taken_back, answers, done="cancelled")
            return
        plan = dict.fromkeys(now, exact) if exact else planned(client, at_rest(now, under_way), allowed, replicas)
        changed = {each: wanted for each, wanted in plan.items() if wanted is not None and wanted != now[each]}
        if dry_run:
            report_moves(session, now, changed, dict.fromkeys(changed, (0, None)), done="planned")
            return
        if throttle is not None and changed:
            set_throttle(client, moves(under_way, now, changed), throttle)
            remark(f"throttled to {throttle:,} bytes per second until {'all have moved' if wait else _REMOVING}")
        answers = alter(client, changed)
        begun = [each for each, (code, _) in answers.items() if not code]
        if wait:
            wait_until_moved(client, begun, stalled_after)
            answers |= not_moved(client, {each: changed[each] for each in begun})
        if throttle is not None and (wait or not begun):
            remove_throttle(client, by_topic(changed))
    report_moves(session, now, changed, answers, done="moved" if wait else "started")


def at_rest(
    now: Mapping[Partition, list[int]], under_way: Mapping[Partition, Reassignment]
) -> dict[Partition, list[int]]:
    """The replicas that each has when what is under way has ended, by what was listed before ``now`` was asked for.

    A move may end in between: then ``now`` has its end already.
    """
    leaving = {each: moving.removing for each, moving in under_way.items()}
    return {each: [broker for broker in held if broker not in leaving.get(each, ())] for each, held in now.items()}


def planned(
    client: AdminClient, now: Mapping[Partition, list[int]], allowed: list[int] | None, replicas: int | None
) -> dict[Partition, list[int]]:
    """Where the replicas go unless --to says it: those of each topic are spread by themselves."""
    racks = wire_requests.racks(client)
    if unknown := sorted(set(allowed or ()) - set(racks)):
        raise CommandFailed(f"no broker with the id {unknown[0]} runs: {', '.join(map(str, sorted(racks)))}")
    plan: dict[Partition, list[int]] = {}
    load: Counter[int] = Counter()
    for each_of in by_topic(now).values():
        # Of brokers that have as many of this topic, the one with the least of others comes first.
        brokers = sorted(allowed or sorted(racks), key=load.__getitem__)
        try:
            plan |= spread({each: now[each] for each in each_of}, brokers, racks, replicas)
        except ValueError as error:
            raise CommandFailed(f"{each_of[0].topic}: {error}") from None
        load.update(broker for each in each_of for broker in plan[each])
    return plan


def alter(
    client: AdminClient,
    wanted: Mapping[Partition, list[int] | None],
    under_way: Mapping[Partition, Reassignment] = MappingProxyType({}),
) -> dict[Partition, Answer]:
    """AlterPartitionReassignments; ``None`` cancels what was ``under_way``.  Answers by partition."""
    from pybroker_protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    if not wanted:
        return {}
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[ReassignablePartition(partition_index=each.number, replicas=wanted[each]) for each in each_of],
        )
        for topic, each_of in by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    response = retried(lambda: client.ask(request))
    raise_whole(response.error_code, response.error_message)
    answers = {Partition(topic.name, at.partition_index): at for topic in response.responses for at in topic.partitions}
    # A move that is under way no more may have come to its end instead.
    before = {
        each: set(under_way[each].replicas) - set(under_way[each].adding)
        for each, at in answers.items()
        if may_be_done(client, request, at.error_code)
    }
    moved = elsewhere(client, before) if before else {}
    return {
        each: (at.error_code if each in moved else settled(client, request, at.error_code, str(each)), at.error_message)
        for each, at in answers.items()
    }


def elsewhere(client: AdminClient, wanted: Mapping[Partition, Iterable[int]]) -> dict[Partition, list[int]]:
    """The replicas of those partitions that have not the ``wanted`` ones; none of a partition that is gone.

    A broker that is asked may know a moment later what the controller knows.
    """
    deadline_s = time.monotonic() + _KNOWN_WITHIN_S
    while True:
        now = {
            Partition(topic["name"], each["partition_index"]): each["replica_nodes"]
            for topic in topic_requests.described(client, sorted(by_topic(wanted)))
            for each in topic["partitions"]
        }
        found = {each: now.get(each, []) for each in wanted if set(now.get(each, [])) != set(wanted[each])}
        if not found or time.monotonic() >= deadline_s:
            return found
        time.sleep(_PAUSE_S)


def listed(client: AdminClient, partitions: Iterable[Partition] | None) -> dict[Partition, Reassignment]:
    """ListPartitionReassignments: what is under way, of some partitions or of all."""
    from pybroker_protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )

    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=[each.number for each in each_of])
            for topic, each_of in by_topic(partitions).items()
        ]
    response = retried(lambda: client.ask(ListPartitionReassignmentsRequest(topics=topics)))
    raise_whole(response.error_code, response.error_message)
    return {
        Partition(topic.name, each.partition_index): Reassignment(
            list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def moves(
    under_way: Mapping[Partition, Reassignment],
    now: Mapping[Partition, list[int]],
    changed: Mapping[Partition, list[int]],
) -> list[Move]:
    """All that will be under way: what is now, and with other ends what is changed."""
    found = []
    for each in sorted({*under_way, *changed}):
        moving = under_way.get(each)
        replicas, adding = (now[each], []) if moving is None else (moving.replicas, moving.adding)
        sources = [broker for broker in replicas if broker not in adding]
        wanted = changed.get(each, adding)
        found.append(Move(*each, sources, [broker for broker in wanted if broker not in sources]))
    return found


def remove_throttle(client: AdminClient, topics: Iterable[str]) -> list[Throttle]:
    """What held replicas of ``topics`` back, and does no more; nothing, with a remark, while anything moves."""
    found = find_throttles(client, topics)
    if found and (left := len(listed(client, None))):
        remark(f"the throttle stays: {counted(left, 'partition')} still to move; {_REMOVING} takes it away")
        return []
    remove_throttles(client, found)
    return found


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Partitions grouped, as requests name them."""
    grouped: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


def raise_whole(code: int, message: str | None) -> None:
    """Fail for what concerns a request as a whole."""
    if code:
        raise CommandFailed(named_error(code, message))


def wait_until_moved(client: AdminClient, partitions: Sequence[Partition], stalled_after_s: float) -> None:
    """Return when none of them is on its way any more; Ctrl-C ends the wait, and not the moves.

    Raises ``CommandFailed`` when for ``stalled_after_s`` nothing has ended, and nothing more has been copied.
    """
    seen: object = None
    went_on_s = looked_s = time.monotonic()
    with progress("moving partitions", len(partitions)) as bar:
        while left := listed(client, partitions) if partitions else {}:
            if bar is not None:
                bar.update(bar.task_ids[0], completed=len(partitions) - len(left))
            now_s = time.monotonic()
            if now_s - looked_s >= _LOOK_S:
                looked_s = now_s
                running = set(running_brokers(client))
                found = (len(left), copied(client, left, running))
                if found != seen:
                    seen, went_on_s = found, now_s
                elif now_s - went_on_s >= stalled_after_s:
                    raise CommandFailed(stalled(left, running, now_s - went_on_s))
            time.sleep(_PAUSE_S)


def not_moved(client: AdminClient, wanted: Mapping[Partition, list[int]]) -> dict[Partition, Answer]:
    """What became of moves that ended, and not where they were to: others may cancel and replace them."""
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    return {
        each: (code, f"the move was cancelled or replaced, its replicas are {replicas}")
        for each, replicas in (elsewhere(client, wanted) if wanted else {}).items()
    }


def copied(client: AdminClient, under_way: Mapping[Partition, Reassignment], running: Set[int]) -> dict[int, int]:
    """Of each broker that gets replicas, and answers, the bytes that it has of them by now."""
    from pybroker_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    sizes: dict[int, int] = {}
    for broker in sorted({broker for moving in under_way.values() for broker in moving.adding} & running):
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=[each.number for each in each_of])
            for topic, each_of in by_topic(
                each for each, moving in under_way.items() if broker in moving.adding
            ).items()
        ]
        with suppress(CommandFailed):
            response = client.ask(DescribeLogDirsRequest(topics=topics), broker)
            of_partitions = (part for found in response.results for topic in found.topics for part in topic.partitions)
            sizes[broker] = sum(part.partition_size for part in of_partitions)
    return sizes


def stalled(under_way: Mapping[Partition, Reassignment], running: Set[int], since_s: float) -> str:
    """What stands still, and why as far as that can be seen from here."""
    first = min(under_way)
    others = f" and {len(under_way) - 1} more" if len(under_way) > 1 else ""
    absent = sorted({broker for moving in under_way.values() for broker in moving.adding} - running)
    why = f" (broker {absent[0]} does not run)" if absent else ""
    return f"nothing was copied for {since_s:.0f} s{why}; still under way: {first}{others}"


def report_moves(
    session: Session,
    now: Mapping[Partition, list[int]],
    wanted: Mapping[Partition, list[int] | None],
    answers: Mapping[Partition, Answer],
    *,
    done: str,
) -> None:
    """Print what became of each; raises ``CommandFailed`` when one failed."""
    parts = []
    for each, (code, message) in sorted(answers.items()):
        named = {"topic": each.topic, "partition": each.number, "from": now[each], "to": wanted[each]}
        document, failure = part_of(named, each, code, done, message)
        parts.append(({**document, "message": message or None}, failure))
    report(session.output, ("TOPIC", "PARTITION", "FROM", "TO", "STATUS"), parts)


@admin_command(app, "reassignments")
def reassignments(
    session: Session,
    *,
    remove: Annotated[
        bool, typer.Option("--remove-throttle", help="Remove throttles of moves that have ended, and list them.")
    ] = False,
) -> None:
    """List the moves that are under way."""
    with session.client() as client:
        found = listed(client, None)
        if remove:
            if found:
                still = f"{counted(len(found), 'partition')} still to move"
                raise CommandFailed(f"{still}; a throttle is removed when nothing moves")
            removed = remove_throttle(client, [topic["name"] for topic in describe_existing(client, None)])
            throttled = ("RESOURCE", "NAME", "SETTING", "VALUE")
            session.output.result([each._asdict() for each in removed], throttled, removed)
            return
    document = [{"topic": each.topic, "partition": each.number, **found[each]._asdict()} for each in sorted(found)]
    columns = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING")
    session.output.result(document, columns, [tuple(entry.values()) for entry in document])


@admin_command(app, "elect")
def elect(
    session: Session,
    *,
    partitions: Chosen,
    everything: All = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect a replica that is not in sync where none is; records may be lost.")
    ] = False,
) -> None:
    """Elect the preferred replicas as leaders, or with --unclean any replica.

    The preferred replica is the first one of a partition. A partition that needs no election is not listed.
    """
    from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    with session.client() as client:
        chosen = choose(client, partitions, everything)
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=[
                TopicPartitions(topic=topic, partitions=[each.number for each in each_of])
                for topic, each_of in by_topic(chosen).items()
            ],
        )
        response = retried(lambda: client.ask(request, min_version=ElectLeadersRequest.since("election_type")))
        remark_on_repeat(client, request, "elected")
    raise_whole(response.error_code, None)
    answers = {
        Partition(topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
        if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
    }
    parts = []
    for each, (code, message) in sorted(answers.items()):
        named = {"topic": each.topic, "partition": each.number}
        document, failure = part_of(named, each, code, "elected", message)
        parts.append(({**document, "message": message or None}, failure))
    report(session.output, ("TOPIC", "PARTITION", "STATUS"), parts)
