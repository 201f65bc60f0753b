"""``pybroker consume``: print the records of topics, as kcat -C and ``rpk topic consume`` do.

Owns: where reading starts, when it ends, and how a record is printed.  Without ``--group`` partitions are assigned
by hand and nothing is committed; with it the group assigns them.  Only what the reader of our stdout was handed is
committed, once a second and at the end, so a record is printed again after a crash and never lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from pybroker.cli.client_settings import ClientOptions
from pybroker.cli.data_clients import ConsumedRecord, Watch, consumer, passes, retried
from pybroker.cli.failure import CommandFailed, describe_error, describe_error_code, describe_kafka_error
from pybroker.cli.interruption import Interruption
from pybroker.cli.offsets import Origin, ReadRange, Start, parse_partitions, parse_range, parse_timestamp_ms
from pybroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, CommandConfig, repeated
from pybroker.cli.output import Output, progress, remark
from pybroker.cli.record_format import Record, compile_format, to_json

# Short enough that Ctrl-C and the check for the end feel immediate; the fetch itself is a long poll.
POLL_S = 0.2

POLL_RECORDS_MAX = 500

REQUEST_TIMEOUT_S = 20.0

# As long as a fail-over, or the start of a broker, takes at most.
BROKERS_AWAITED_S = 15.0

DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}

COMMIT_INTERVAL_S = 1.0

# How names of internal topics begin.
INTERNAL = "__"

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


def find_partitions(client: Any, topics: list[str], wanted: list[int]) -> list[TopicPartition]:
    """The partitions to read by hand; raises ``CommandFailed`` for what does not exist, or may not be described."""
    return [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in _partitions_of(topic, retried(partial(_described, client, topic)), wanted)
    ]


def _described(client: Any, topic: str) -> Any:
    """The metadata of a topic; ``KafkaException`` for what passes."""
    found = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if found.error is not None and passes(found.error):
        raise KafkaException(found.error)
    return found


def _partitions_of(topic: str, described: Any, wanted: list[int]) -> list[int]:
    if described.error is not None:
        raise CommandFailed(f"topic {topic}: {refusal(described.error, 'DESCRIBE')}")
    if missing := set(wanted) - described.partitions.keys():
        raise CommandFailed(f"topic {topic} has no partition {min(missing)}")
    return sorted(wanted or described.partitions)


def refusal(error: KafkaError, operation: str) -> str:
    """What a broker says of a topic or a group, with the permission that is missing where it is one."""
    name = describe_error_code(error.code()) if error.code() > 0 else describe_kafka_error(error)
    return f"{name}: the user lacks the permission {operation}" if error.code() in DENIED else name


def offsets_at(client: Any, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """The offset of a moment in each partition; ``OFFSET_BEGINNING`` and ``OFFSET_END`` are such moments, too.

    The end of a reader of committed records is the last stable offset.
    """
    asked = [TopicPartition(each.topic, each.partition, at) for each in partitions]
    if not asked:
        return {}

    def ask() -> list[TopicPartition]:
        found: list[TopicPartition] = client.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return found

    return {TopicPartition(each.topic, each.partition): each.offset for each in retried(ask)}


def starting_at(client: Any, partitions: list[TopicPartition], start: Start) -> list[TopicPartition]:
    """The partitions with the offset that each is read from."""
    if start.origin is Origin.STORED:
        return partitions
    found = dict.fromkeys(partitions, OFFSET_BEGINNING)
    if start.origin is Origin.END:
        found = dict.fromkeys(partitions, OFFSET_END)
    elif start.origin is Origin.ABSOLUTE:
        found = _within(client, partitions, start.value)
    elif start.origin is Origin.BEFORE_END:
        firsts, ends = (offsets_at(client, partitions, at) for at in (OFFSET_BEGINNING, OFFSET_END))
        found = {each: max(firsts[each], ends[each] - start.value) for each in partitions}
    elif start.origin is Origin.TIMESTAMP:
        # Where no record is that young reading starts with the next one to come: such an offset is OFFSET_END.
        found = offsets_at(client, partitions, start.value)
    return [TopicPartition(each.topic, each.partition, offset) for each, offset in found.items()]


def _within(client: Any, partitions: list[TopicPartition], offset: int) -> dict[TopicPartition, int]:
    """``offset``, or the nearest end of what there is, with a remark: a policy cannot tell the two ends apart."""
    firsts, ends = (offsets_at(client, partitions, at) for at in (OFFSET_BEGINNING, OFFSET_END))
    found = {}
    for partition in partitions:
        nearest = max(firsts[partition], min(offset, ends[partition]))
        if nearest != offset:
            what = "the first record left" if nearest > offset else "the end"
            remark(f"pybroker: {partition.topic} {partition.partition}: reading from {what}, offset {nearest}")
        found[partition] = nearest
    return found


class Reader:
    """One run of ``consume``: polls, prints, and knows when it is done."""

    def __init__(
        self,
        client: Any,
        watch: Watch,
        output: Output,
        render: Callable[[Record], bytes],
        *,
        count: int | None,
        exit_at_end: bool,
        end_timestamp_ms: int | None,
        until_ms: int | None,
        group: str | None,
    ) -> None:
        """``count``: how many records to print at most; ``end_timestamp_ms`` ends a partition by a record of that time.

        With ``exit_at_end`` a partition ends where it does when reading begins, with ``until_ms`` before the first
        record of that time, if there is one.  What is printed is committed for the ``group``, if there is one.
        """
        self.printed = 0
        self._client = client
        self._watch = watch
        self._waits = False
        self._output = output
        self._render = render
        self._count = count
        self._exit_at_end = exit_at_end or until_ms is not None
        self._until_ms = until_ms
        self._end_timestamp_ms = end_timestamp_ms
        # Of each assigned partition: where it ended when reading began, and what comes next.
        self._ends: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._passed_end: set[TopicPartition] = set()
        self._group = group
        self._committed_at_s = time.monotonic()
        self._uncommitted: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """Print records until there is a reason to stop; commits what was printed, however it stops."""
        with Interruption() as interruption:
            try:
                self._poll_and_print(interruption)
            finally:
                self._commit()
                if self._uncommitted and self._group is not None:
                    remark("pybroker: not committed: no broker answers")

    def on_revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what was printed of partitions that go to another member, and forget them."""
        self._commit()
        self._forget(partitions)

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Of partitions that are another member's already, nothing is to be committed."""
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            for known in (self._ends, self._next, self._uncommitted):
                known.pop(each, None)
            self._passed_end.discard(each)

    def _poll_and_print(self, interruption: Interruption) -> None:
        total = self._count
        with progress("records", total=total) as bar:
            while not interruption.stopped and (total is None or self.printed < total):
                # With a count no more is taken than will be printed.
                limit = POLL_RECORDS_MAX if total is None else min(POLL_RECORDS_MAX, total - self.printed)
                for message in self._client.consume(limit, POLL_S):
                    self._take(message)
                self._output.flush()
                self._look_for_brokers()
                if time.monotonic() - self._committed_at_s >= COMMIT_INTERVAL_S:
                    self._commit()
                is_over = self._at_end()
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=self.printed, total=self._expected())
                if is_over:
                    return

    def _look_for_brokers(self) -> None:
        """Who reads to an end does not wait for ever for brokers that are gone; who follows is told, and waits."""
        if (found := self._watch.outage()) is None:
            return
        since_s, why = found
        if self._exit_at_end or self._count is not None or self._end_timestamp_ms is not None:
            if since_s >= BROKERS_AWAITED_S:
                raise CommandFailed(f"for {since_s:.0f} s no broker has let the command in: {why}")
        elif not self._waits:
            self._waits = True
            remark(f"pybroker: waiting for a broker: {why}")

    def _take(self, message: Any) -> None:
        """Print a record, or hear what the client says of a partition or of all."""
        error = message.error()
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        if error is not None:
            self._hear(error, partition, message)
            return
        record = ConsumedRecord.of(message)
        self._next[partition] = record.offset + 1
        self._waits = False
        if self._end_timestamp_ms is not None and record.timestamp >= self._end_timestamp_ms:
            self._passed_end.add(partition)
        if partition in self._passed_end or (self._exit_at_end and record.offset >= self._end_of(partition)):
            return
        self._output.write(self._render(record))
        self.printed += 1
        self._uncommitted[partition] = record.offset + 1

    def _end_of(self, partition: TopicPartition) -> int:
        self._find_ends([partition])
        return self._ends[partition]

    def _find_ends(self, partitions: Iterable[TopicPartition]) -> None:
        missing = [partition for partition in partitions if partition not in self._ends]
        ends = offsets_at(self._client, missing, OFFSET_END)
        if self._until_ms is not None:
            found = offsets_at(self._client, missing, self._until_ms)
            ends |= {each: min(ends[each], offset) for each, offset in found.items() if offset >= 0}
        self._ends |= ends

    def _hear(self, error: KafkaError, partition: TopicPartition, message: Any) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # Behind the last record there may be markers of transactions, which are no records.
            self._next[partition] = max(message.offset(), self._next.get(partition, 0))
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # The client looks for a coordinator of its nominal group, too, where there is none.
            if self._group is not None:
                raise CommandFailed(f"group {self._group}: {refusal(error, 'READ')}")
        elif error.code() in DENIED:
            raise CommandFailed(f"topic {partition.topic}: {refusal(error, 'READ')}")
        elif not passes(error):
            raise KafkaException(error)

    def _expected(self) -> int | None:
        """How many records will have been printed at the end, as far as that is known."""
        if self._count is not None or not self._exit_at_end:
            return self._count
        ahead = (end - self._next.get(partition, end) for partition, end in self._ends.items())
        return self.printed + sum(max(0, records) for records in ahead)

    def _commit(self) -> None:
        """Commit what was printed; partitions that a rebalance took away are their next owner's business."""
        self._committed_at_s = time.monotonic()
        if self._watch.is_out:
            return
        offsets = [TopicPartition(each.topic, each.partition, at) for each, at in self._uncommitted.items()]
        self._uncommitted.clear()
        if not offsets or self._group is None:
            return
        try:
            for each in self._client.commit(offsets=offsets, asynchronous=False):
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            remark(f"pybroker: not committed: {describe_error(error)}")

    def _at_end(self) -> bool:
        """Whether every assigned partition has been read up to the end it had when reading began."""
        if not self._exit_at_end and self._end_timestamp_ms is None:
            return False
        assigned = self._client.assignment()
        if not assigned:
            return False
        self._find_ends(assigned)
        return all(
            partition in self._passed_end
            or (self._exit_at_end and self._next.get(partition, -1) >= self._ends[partition])
            for partition in assigned
        )


def matching_topics(client: Any, pattern: re.Pattern[str]) -> list[str]:
    """The topics whose whole name matches; internal ones only where the pattern names them."""
    names = retried(lambda: client.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
    with_internal = pattern.pattern.startswith(INTERNAL)
    found = [
        name for name in sorted(names) if pattern.fullmatch(name) and (with_internal or not name.startswith(INTERNAL))
    ]
    if not found:
        raise CommandFailed(f"no topic that the user may see matches {pattern.pattern}")
    return found


def start_reading(
    client: Any,
    topics: list[str],
    pattern: re.Pattern[str] | None,
    partitions: list[int],
    reader: Reader,
    start: Start,
    *,
    joins: bool,
) -> None:
    """Subscribe (``joins``, as a group's member) or assign by hand, at the start.

    A member gets topics that match a pattern also where they are made later.
    """
    if pattern is not None:
        topics = matching_topics(client, pattern)
    wanted = find_partitions(client, topics, partitions)
    if not joins:
        client.assign(starting_at(client, wanted, start))
        return
    is_first = True

    def on_assign(client: Any, assigned: list[TopicPartition]) -> None:
        nonlocal is_first
        # What comes by a later rebalance goes on where its last owner stood.
        if is_first and start.origin is not Origin.STORED:
            assigned = starting_at(client, assigned, start)
        is_first = False
        try:
            client.assign(assigned)
        except KafkaException:
            # The group's protocol takes partitions one by one, and not all anew.
            client.incremental_assign(assigned)

    client.subscribe(
        topics if pattern is None else [f"^({pattern.pattern})$"],
        on_assign=on_assign,
        on_revoke=lambda _, gone: reader.on_revoke(gone),
        on_lost=lambda _, gone: reader.on_lost(gone),
    )


def choose_start(wanted: ReadRange, group: str | None) -> Start:
    """The start that was asked for, else the group's offsets, else the beginning."""
    if wanted.start is None:
        return Start(Origin.STORED if group is not None else Origin.BEGINNING)
    if wanted.start.origin is Origin.STORED and group is None:
        raise typer.BadParameter("--offset stored needs --group")
    return wanted.start


def client_settings(group: str | None, isolation: str, *, hides_internal: bool) -> dict[str, str]:
    """The command's own settings of its consumer."""
    return {
        # librdkafka wants a group's name also where partitions are assigned by hand; nothing is committed then.
        "group.id": group or "pybroker",
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        **({"topic.blacklist": "^__"} if hides_internal else {}),
    }


def consume(
    *,
    topics: Annotated[list[str], typer.Argument(metavar="[TOPIC…]", default_factory=list, show_default=False)],
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="In place of names: topics that match as a whole.")
    ] = None,
    offsets: Annotated[
        list[str],
        repeated("--offset", "-o", help="beginning, end, stored, N, -N (before the end), @TIME; e@TIME stops there."),
    ],
    partitions: Annotated[list[str], repeated("--partitions", "-p", help="Only these: N, N,M or N-M.")],
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end instead of waiting.")] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Exit before the first record of this time, or: now.")
    ] = None,
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
    if (pattern is None) is not bool(topics):
        raise typer.BadParameter("give either topics or --pattern")
    now_ms = int(time.time() * 1000)
    try:
        wanted = parse_range(offsets, now_ms)
        until_ms = None if until is None else now_ms if until == "now" else parse_timestamp_ms(until, now_ms)
        numbers = parse_partitions(partitions) if partitions else []
        render = to_json if as_json else compile_format(default_format(key_delimiter) if form is None else form)
        regex = None if pattern is None else re.compile(pattern)
    except (ValueError, re.error) as error:
        raise typer.BadParameter(str(error)) from error
    start = choose_start(wanted, group)
    options = ClientOptions(bootstrap, properties, command_config)
    hides_internal = pattern is not None and not pattern.startswith(INTERNAL)
    own = client_settings(group, ISOLATION_LEVELS[isolation], hides_internal=hides_internal)
    with consumer(options, own) as (client, watch):
        reader = Reader(
            client,
            watch,
            Output(),
            render,
            count=count,
            exit_at_end=exit_at_end,
            end_timestamp_ms=wanted.end_timestamp_ms,
            until_ms=until_ms,
            group=group,
        )
        joins = group is not None and not numbers
        start_reading(client, topics, regex, numbers, reader, start, joins=joins)
        reader.run()
