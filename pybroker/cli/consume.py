"""``pybroker consume``: print the records of topics, as kcat -C and ``rpk topic consume`` do.

Owns: where reading starts, when it ends, and how a record is printed.  Without ``--group`` partitions are assigned
by hand and nothing is committed; with it the group assigns them.  Only what the reader of our stdout was handed is
committed, once a second and at the end, so a record is printed again after a crash and never lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from pybroker.cli.connection import ClientOptions, consumer, retried
from pybroker.cli.failure import CommandFailed
from pybroker.cli.interruption import Interruption
from pybroker.cli.offsets import Origin, ReadRange, Start, parse_partitions, parse_range
from pybroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, CommandConfig, repeated
from pybroker.cli.output import Output, progress, remark
from pybroker.cli.record_format import Record, compile_format, to_json

# Short enough that Ctrl-C and the check for the end feel immediate; the fetch itself is a long poll.
POLL_MS = 200

POLL_RECORDS_MAX = 500

COMMIT_INTERVAL_S = 1.0

# By the short names and by Kafka's own.
ISOLATION_LEVELS = {
    "uncommitted": "read_uncommitted",
    "committed": "read_committed",
    "read_uncommitted": "read_uncommitted",
    "read_committed": "read_committed",
}


def default_format(key_delimiter: str | None) -> str:
    """Value and newline, after the key and its delimiter where one is asked for."""
    return "%s\\n" if key_delimiter is None else f"%k{key_delimiter.replace('%', '%%')}%s\\n"


def find_partitions(client: Any, topics: list[str], wanted: list[int]) -> list[Any]:
    """The partitions to read by hand; raises ``CommandFailed`` for a topic or partition that does not exist."""
    from kafka import TopicPartition

    found = []
    for topic in topics:
        existing = client.partitions_for_topic(topic)
        if not existing:
            raise CommandFailed(f"topic {topic}: UNKNOWN_TOPIC_OR_PARTITION")
        if missing := set(wanted) - existing:
            raise CommandFailed(f"topic {topic} has no partition {min(missing)}")
        found += [TopicPartition(topic, partition) for partition in sorted(wanted or existing)]
    return found


def seek(client: Any, partitions: Iterable[Any], start: Start) -> None:
    """Move the assigned partitions to where reading starts."""
    partitions = list(partitions)
    if start.origin is Origin.BEGINNING:
        client.seek_to_beginning(*partitions)
    elif start.origin is Origin.END:
        client.seek_to_end(*partitions)
    elif start.origin is Origin.ABSOLUTE:
        seek_within(client, partitions, start.value)
    elif start.origin is Origin.BEFORE_END:
        firsts, ends = client.beginning_offsets(partitions), client.end_offsets(partitions)
        for partition in partitions:
            client.seek(partition, max(firsts[partition], ends[partition] - start.value))
    elif start.origin is Origin.TIMESTAMP:
        ends = client.end_offsets(partitions)
        found = client.offsets_for_times(dict.fromkeys(partitions, start.value))
        for partition in partitions:
            # No record is that young: reading starts with the next one to come.
            client.seek(partition, found[partition].offset if found[partition] else ends[partition])


def seek_within(client: Any, partitions: list[Any], offset: int) -> None:
    """Move to ``offset``, or to the nearest end of what there is, with a remark.

    The client's own policy cannot tell the two ends apart.  The end of a reader of committed records is the last stable
    offset.
    """
    firsts, ends = client.beginning_offsets(partitions), client.end_offsets(partitions)
    for partition in partitions:
        nearest = max(firsts[partition], min(offset, ends[partition]))
        if nearest != offset:
            what = "the first record left" if nearest > offset else "the end"
            remark(f"pybroker: {partition.topic} {partition.partition}: reading from {what}, offset {nearest}")
        client.seek(partition, nearest)


class Reader:
    """One run of ``consume``: polls, prints, and knows when it is done."""

    def __init__(
        self,
        client: Any,
        output: Output,
        render: Callable[[Record], bytes],
        *,
        count: int | None,
        exit_at_end: bool,
        end_timestamp_ms: int | None,
        commits: bool,
    ) -> None:
        """``count``: how many records to print at most; ``end_timestamp_ms`` ends a partition at that time."""
        self.printed = 0
        self._client = client
        self._output = output
        self._render = render
        self._count = count
        self._exit_at_end = exit_at_end
        self._end_timestamp_ms = end_timestamp_ms
        self._ends: dict[Any, int] = {}
        self._passed_end: set[Any] = set()
        self._commits = commits
        self._committed_at_s = time.monotonic()
        self._uncommitted: dict[Any, int] = {}

    def run(self) -> None:
        """Print records until there is a reason to stop; commits what was printed, however it stops."""
        with Interruption() as interruption:
            try:
                self._poll_and_print(interruption)
            finally:
                self._commit()

    def _poll_and_print(self, interruption: Interruption) -> None:
        total = self._count
        with progress("records", total=total) as bar:
            while not interruption.stopped and (total is None or self.printed < total):
                # With a count no more is taken than will be printed.
                limit = None if total is None else min(POLL_RECORDS_MAX, total - self.printed)
                batches = self._client.poll(timeout_ms=POLL_MS, max_records=limit)
                printed = {partition: self._print(partition, records) for partition, records in batches.items()}
                self._output.flush()
                self._uncommitted |= {partition: offset for partition, offset in printed.items() if offset is not None}
                if time.monotonic() - self._committed_at_s >= COMMIT_INTERVAL_S:
                    self._commit()
                is_over = self._at_end()
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=self.printed, total=self._expected())
                if is_over:
                    return

    def _print(self, partition: Any, records: Iterable[Record]) -> int | None:
        """Print one partition's records; returns the offset after the last printed one."""
        next_offset = None
        for record in records:
            if self._end_timestamp_ms is not None and record.timestamp >= self._end_timestamp_ms:
                self._passed_end.add(partition)
                self._client.pause(partition)
                break
            self._output.write(self._render(record))
            self.printed += 1
            next_offset = record.offset + 1
        return next_offset

    def _expected(self) -> int | None:
        """How many records will have been printed at the end, as far as that is known."""
        if self._count is not None or not self._exit_at_end:
            return self._count
        positions = {partition: self._client.position(partition) for partition in self._client.assignment()}
        ahead: list[int] = [
            self._ends[partition] - offset for partition, offset in positions.items() if partition in self._ends
        ]
        return self.printed + sum(max(0, records) for records in ahead)

    def _commit(self) -> None:
        """Commit what was printed; partitions that a rebalance took away are their next owner's business."""
        from kafka import OffsetAndMetadata
        from kafka.errors import CommitFailedError

        self._committed_at_s = time.monotonic()
        owned = self._client.assignment() if self._commits else set()
        offsets = {
            partition: OffsetAndMetadata(offset, "", -1)
            for partition, offset in self._uncommitted.items()
            if partition in owned
        }
        self._uncommitted.clear()
        if not offsets:
            return
        try:
            self._client.commit(offsets)
        except CommitFailedError as error:
            remark(f"pybroker: not committed: {error}")

    def _at_end(self) -> bool:
        """Whether every assigned partition has been read up to the end it had when reading began."""
        if not self._exit_at_end and self._end_timestamp_ms is None:
            return False
        assigned = self._client.assignment()
        if not assigned:
            return False
        if missing := [partition for partition in assigned if partition not in self._ends]:
            self._ends |= retried(lambda: self._client.end_offsets(missing))
        return all(
            partition in self._passed_end
            or (self._exit_at_end and self._client.position(partition) >= self._ends[partition])
            for partition in assigned
        )


def start_reading(client: Any, topics: list[str], partitions: list[int], group: str | None, start: Start) -> None:
    """Subscribe (with a group) or assign by hand, and move to the start."""
    wanted = retried(lambda: find_partitions(client, topics, partitions))
    if group is not None and not partitions:
        client.subscribe(topics)
        if start.origin is Origin.STORED:
            return
        # Positions exist once the group has assigned partitions; a poll that is empty by construction gets them.
        while not client.assignment():
            client.poll(timeout_ms=POLL_MS, max_records=1, update_offsets=False)
    else:
        client.assign(wanted)
    if start.origin is not Origin.STORED:
        seek(client, client.assignment(), start)


def choose_start(wanted: ReadRange, group: str | None) -> Start:
    """The start that was asked for, else the group's offsets, else the beginning."""
    if wanted.start is None:
        return Start(Origin.STORED if group is not None else Origin.BEGINNING)
    if wanted.start.origin is Origin.STORED and group is None:
        raise typer.BadParameter("--offset stored needs --group")
    return wanted.start


def consume(
    *,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…")],
    offsets: Annotated[
        list[str],
        repeated("--offset", "-o", help="beginning, end, stored, N, -N (before the end), @TIME; e@TIME stops there."),
    ],
    partitions: Annotated[list[str], repeated("--partitions", "-p", help="Only these: N, N,M or N-M.")],
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end instead of waiting.")] = False,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", help="Tokens %s %k %t %p %o %T %h %S %K %R %%, escapes \\n \\t \\xNN."),
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Print the key and this before the value.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Consume as a member of this group.")] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="committed (read_committed) or uncommitted (read_uncommitted).")
    ] = "committed",
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object per record.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
) -> None:
    """Print the records of topics."""
    if isolation not in ISOLATION_LEVELS:
        raise typer.BadParameter(f"--isolation must be committed or uncommitted, not {isolation!r}")
    try:
        wanted = parse_range(offsets, now_ms=int(time.time() * 1000))
        numbers = parse_partitions(partitions) if partitions else []
        render = to_json if as_json else compile_format(default_format(key_delimiter) if form is None else form)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    start = choose_start(wanted, group)
    config = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "isolation_level": ISOLATION_LEVELS[isolation],
        "allow_auto_create_topics": False,
        "enable_auto_commit": False,
        # Internal topics are topics too for whoever names one.
        "exclude_internal_topics": False,
    }
    with consumer(ClientOptions(bootstrap, properties, command_config), **config) as client:
        start_reading(client, topics, numbers, group, start)
        reader = Reader(
            client,
            Output(),
            render,
            count=count,
            exit_at_end=exit_at_end,
            end_timestamp_ms=wanted.end_timestamp_ms,
            commits=group is not None,
        )
        reader.run()
