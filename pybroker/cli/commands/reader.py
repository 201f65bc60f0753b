"""One run of ``consume``: it polls, prints, commits what it has printed, and knows when it is done.

Owns: when reading ends, what is committed, and what is said of brokers that are gone.  Owns neither where it starts
(``read_positions``) nor how a record is printed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from pybroker.cli.commands.read_positions import (
    DENIED,
    PatternTopics,
    find_partitions,
    offsets_at,
    refusal,
    starting_at,
)
from pybroker.cli.connection.data_clients import ConsumedRecord, Watch, is_passing_error, passes
from pybroker.cli.connection.retries import retried
from pybroker.cli.records.record_format import Record
from pybroker.cli.requests.offsets import Origin, Start
from pybroker.cli.terminal.failure import CommandFailed, OutputClosed, describe_error
from pybroker.cli.terminal.interruption import Interruption
from pybroker.cli.terminal.output import Output, progress, remark

# Short enough that Ctrl-C and the check for the end feel immediate; the fetch itself is a long poll.
POLL_S = 0.2

POLL_RECORDS_MAX = 500

# As long as a fail-over, or the start of a broker, takes at most.
BROKERS_AWAITED_S = 15.0

COMMIT_INTERVAL_S = 1.0

# At the end, where it is refused for a reason that passes, and where brokers were gone.
COMMITTED_WITHIN_S = 5.0


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
        # What comes behind the last record that stdout has got, and behind the last that is on its way there.
        self._uncommitted: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._refused: str | None = None
        self._subscribe_anew: Callable[[], None] | None = None

    def run(self, subscribe_anew: Callable[[], None] | None = None) -> None:
        """Print records until there is a reason to stop; commits what was printed, however it stops.

        ``subscribe_anew`` where topics come and go meanwhile: it is called now and then.
        """
        self._subscribe_anew = subscribe_anew
        with Interruption() as interruption:
            try:
                self._poll_and_print(interruption)
            except OutputClosed:
                # How much of a pipe was read before it was closed, nothing tells.
                self._uncommitted.clear()
                raise
            except Exception:
                self._say_uncommitted(self._commit_at_end())
                raise
            if not interruption.stopped:
                self._await_brokers(COMMITTED_WITHIN_S)
            why = self._commit_at_end()
            if why is not None and not interruption.stopped:
                raise CommandFailed(f"not committed: {why}")
            self._say_uncommitted(why)

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
                self._print(self._next_messages(limit))
                self._look_for_brokers()
                if self._subscribe_anew is not None and not self._watch.is_out:
                    self._subscribe_anew()
                if time.monotonic() - self._committed_at_s >= COMMIT_INTERVAL_S:
                    self._commit()
                is_over = self._at_end()
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=self.printed, total=self._expected())
                if is_over:
                    return

    def _next_messages(self, limit: int) -> list[Any]:
        """At most so many, as soon as there is one: a wait for ``limit`` of them would last to its end."""
        first = self._client.poll(POLL_S)
        return [] if first is None else [first, *(self._client.consume(limit - 1, 0) if limit > 1 else ())]

    def _look_for_brokers(self) -> None:
        """A reader to an end does not wait for ever for brokers that are gone; one that follows says so, and waits."""
        if (found := self._watch.outage()) is None:
            return
        since_s, why = found
        if self._exit_at_end or self._count is not None or self._end_timestamp_ms is not None:
            if since_s >= BROKERS_AWAITED_S:
                raise CommandFailed(f"for {since_s:.0f} s no broker has let the command in: {why}")
        elif not self._waits:
            self._waits = True
            remark(f"pybroker: waiting for a broker: {why}")

    def _print(self, messages: Iterable[Any]) -> None:
        """Print records, also those before one that fails; what stdout has not got is not to be committed."""
        try:
            for message in messages:
                self._take(message)
        finally:
            self._output.flush()
            self._uncommitted |= self._written
            self._written.clear()

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
        self._watch.see_record()
        if self._end_timestamp_ms is not None and record.timestamp >= self._end_timestamp_ms:
            self._passed_end.add(partition)
        if partition in self._passed_end or (self._exit_at_end and record.offset >= self._end_of(partition)):
            return
        try:
            rendered = self._render(record)
        except ValueError as error:
            raise CommandFailed(f"{partition.topic} {partition.partition} offset {record.offset}: {error}") from error
        self._output.write(rendered)
        self.printed += 1
        self._written[partition] = record.offset + 1

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
                raise refusal(f"group {self._group}", error, "READ")
        elif error.code() in DENIED:
            raise refusal(f"topic {partition.topic}", error, "READ")
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._subscribe_anew is not None:
            # It was deleted, and is missed at the next look.
            pass
        elif not passes(error):
            raise KafkaException(error)

    def _expected(self) -> int | None:
        """How many records will have been printed at the end, as far as that is known."""
        if self._count is not None or not self._exit_at_end:
            return self._count
        ahead = (end - self._next.get(partition, end) for partition, end in self._ends.items())
        return self.printed + sum(max(0, records) for records in ahead)

    def _commit(self) -> None:
        """Commit what was printed; what cannot be committed now is so later, and said once."""
        self._committed_at_s = time.monotonic()
        if self._watch.is_out:
            return
        why = None
        try:
            self._commit_now()
        except KafkaException as error:
            why = describe_error(error)
        self._say_uncommitted(why)

    def _commit_at_end(self) -> str | None:
        """Commit what is left, within a time-out; why that is not possible, if it is not."""
        why = "no broker answers"
        if not self._watch.is_out:
            try:
                retried(self._commit_now, COMMITTED_WITHIN_S, is_passing_error)
            except KafkaException as error:
                why = describe_error(error)
        if not self._uncommitted or self._group is None:
            return None
        # The group's end, as the client closes, is no further attempt.
        self._uncommitted.clear()
        return why

    def _await_brokers(self, timeout_s: float) -> None:
        """Where they were gone a moment ago and something is to be committed, they may be back."""
        deadline_s = time.monotonic() + timeout_s
        while self._group is not None and self._uncommitted and self._watch.is_out and time.monotonic() < deadline_s:
            self._watch.outage()
            time.sleep(POLL_S)

    def _commit_now(self) -> None:
        """Raises ``KafkaException`` with what a broker says of a partition; the others are committed."""
        if not self._uncommitted or self._group is None:
            return
        offsets = [TopicPartition(each.topic, each.partition, at) for each, at in self._uncommitted.items()]
        refused = None
        for each in self._client.commit(offsets=offsets, asynchronous=False):
            if each.error is None:
                self._uncommitted.pop(each, None)
            else:
                refused = each.error
        if refused is not None:
            raise KafkaException(refused)

    def _say_uncommitted(self, why: str | None) -> None:
        if why is not None and why != self._refused:
            remark(f"pybroker: not committed: {why}")
        self._refused = why

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


def start_reading(
    client: Any,
    topics: list[str],
    pattern: re.Pattern[str] | None,
    partitions: list[int],
    reader: Reader,
    start: Start,
    *,
    joins: bool,
) -> Callable[[], None] | None:
    """Subscribe (``joins``, as a group's member) or assign by hand, at the start.

    A member gets topics that match a pattern also where they are made later: what is returned subscribes to them.
    """
    matching = None if pattern is None else PatternTopics(client, pattern)
    if matching is not None:
        topics = matching.names
    wanted = find_partitions(client, topics, partitions)
    if not joins:
        client.assign(starting_at(client, wanted, start))
        return None
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

    def subscribe(names: list[str]) -> None:
        client.subscribe(
            names,
            on_assign=on_assign,
            on_revoke=lambda _, gone: reader.on_revoke(gone),
            on_lost=lambda _, gone: reader.on_lost(gone),
        )

    subscribe(topics)
    if matching is None:
        return None

    def subscribe_anew() -> None:
        if matching.have_changed():
            subscribe(matching.names)

    return subscribe_anew
