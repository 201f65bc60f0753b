"""Checks of what lies in the partitions: is it what was written, all of it, once, and where it was said to be?"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from histories.anomalies import Report
from histories.clients import REQUEST_MS
from histories.history import NEVER_NS, Operation
from histories.index import FinalReading, Index, Transaction, Write

# Leaders of a cluster go on changing for so long after a fault: replicas catch up, and preferred ones lead again.
UNREST_NS = 20_000_000_000


def check_log(index: Index, report: Report) -> None:
    _check_offsets(index, report)
    _check_reads(index, report)
    _check_missing_writes(index, report)
    _check_order_of_sends(index, report)
    for key, end in index.final_uncommitted.ends.items():
        _check_gaps(index, report, key, end)


def _check_offsets(index: Index, report: Report) -> None:
    for (key, offset), values in index.overlaps.items():
        report.add("offset-overlap", f"{key} has at {offset} the values {sorted(values)}")
    for value, places in index.further_places.items():
        write = index.writes.get(value)
        if write is not None:
            kind = "retried-write" if _may_be_sent_again(index, write.operation) else "duplicate"
            report.add(kind, f"{write} lies at {sorted(places)}")
    for value, (key, offset) in index.places.items():
        write = index.writes.get(value)
        if write is None or value in index.further_places:
            continue
        acknowledged = write.offset if write.offset is not None and write.offset >= 0 else offset
        if (key, offset) != (write.key, acknowledged):
            report.add("misplaced", f"{write}, acknowledged at {write.offset}, lies in {key} at {offset}")


def _may_be_sent_again(index: Index, send: Operation) -> bool:
    """Whether its producer, without idempotence, had a reason to: the broker was away, or silent for too long.

    In a cluster leaders change at any time, and a leader that is deposed refuses what it has written already.
    """
    if index.client(send.process).producer != "plain":
        return False
    if index.faults or send.completed_ns - send.invoked_ns >= REQUEST_MS * 1_000_000:
        return True
    return any(
        fault.invoked_ns <= send.completed_ns and send.invoked_ns <= fault.completed_ns
        for fault in (*index.kills, *index.pauses)
    )


def _check_reads(index: Index, report: Report) -> None:
    for value, (key, offset) in index.places.items():
        write = index.writes.get(value)
        if write is None:
            report.add("unwritten-read", f"{value} in {key} at {offset}")
        elif write.operation.outcome == "fail":
            reader = index.first_committed_read.get(value)
            if reader is not None or (not write.is_transactional and not write.is_acknowledged):
                report.add("aborted-read", f"{write}, read by {reader}")
    for transaction in index.transactions:
        if transaction.commit_ns is None or transaction.committed is False:
            continue
        for write in transaction.writes:
            reader = index.first_committed_read.get(write.value)
            if reader is not None and reader.completed_ns < transaction.commit_ns:
                report.add("precommitted-read", f"{write}, read by {reader}")


def _check_missing_writes(index: Index, report: Report) -> None:
    """Acknowledged and committed writes have to be there, a transaction's all or none."""
    for operation in index.history:
        if operation.kind == "send":
            for _, value, _ in operation.value:
                write = index.writes[value]
                if write.is_acknowledged and _is_missing(index, write, committed=True):
                    report.add("lost-write", str(write))
    for transaction in index.transactions:
        # What is aborted is in the log all the same, for readers of everything.
        to_be_there = [write for write in transaction.writes if transaction.committed or write.is_acknowledged]
        missing = [write for write in to_be_there if _is_missing(index, write, bool(transaction.committed))]
        if not missing:
            continue
        if transaction.committed and len(missing) < len(to_be_there):
            report.add("torn-transaction", f"{transaction.operation}: {', '.join(map(str, missing))} missing")
        else:
            for write in missing:
                report.add("lost-write", str(write))


def _is_missing(index: Index, write: Write, committed: bool) -> bool:
    """Whether a final reading has not found it, or, without one, nobody has though readers have come further."""
    if _was_overlooked(index.final_uncommitted, write):
        return True
    if not committed:
        return False
    if write.key in index.final_committed.ends:
        return _was_overlooked(index.final_committed, write)
    if write.offset is None or write.value in index.places:
        return False
    offsets = index.committed_offsets.get(write.key)
    return bool(offsets and offsets[-1] > write.offset >= 0)


def _was_overlooked(final: FinalReading, write: Write) -> bool:
    return write.key in final.ends and write.value not in final.values


def _check_order_of_sends(index: Index, report: Report) -> None:
    """A write lies behind everything in its partition that was acknowledged or read before it began."""
    known_end: dict[str, int] = {}
    ends_before: dict[int, dict[str, int]] = {}  # position of an operation -> what was known when it began
    for position, is_completion in _by_time(index):
        operation = index.history[position]
        if operation.kind == "poll":
            if is_completion:
                for key, records in operation.value or ():
                    if records and records[-1][0] >= known_end.get(key, 0):
                        known_end[key] = records[-1][0] + 1
            continue
        sends = operation.value if operation.kind == "send" else operation.value["sends"]
        if not is_completion:
            ends_before[position] = {key: known_end.get(key, 0) for key, _, _ in sends}
            continue
        expected = ends_before.pop(position)
        for key, value, acknowledged in sends:
            offset = index.place(index.writes[value]) if acknowledged is not None else None
            if offset is None:
                continue
            if offset < expected[key]:
                report.add(
                    "nonmonotonic-send", f"{index.writes[value]} lies at {offset}, began when {expected[key]} was next"
                )
            expected[key] = max(expected[key], offset + 1)
        for key, end in expected.items():
            if end > known_end.get(key, 0):
                known_end[key] = end


def _by_time(index: Index) -> Iterator[tuple[int, bool]]:
    """(position in the history, whether it is the completion) of polls and writes; at one instant, beginnings first."""
    kinds = {"send", "txn", "poll"}
    moments = [
        moment
        for position, operation in enumerate(index.history)
        if operation.kind in kinds and operation.completed_ns < NEVER_NS
        for moment in (
            (operation.invoked_ns, False, position),
            (operation.completed_ns, True, position),
        )
    ]
    moments.sort()
    return ((position, is_completion) for _, is_completion, position in moments)


def _check_gaps(index: Index, report: Report, key: str, end: int) -> None:
    """Every offset without a record is the end of a transaction that may have ended there, each of a different one."""
    taken = index.acknowledged[key].union(index.log.get(key, ()))
    spans = sorted(_spans_of_markers(index, key))
    open_spans: list[int] = []  # the ends of those that have begun, nearest first
    begun = 0
    for offset in range(end):
        if offset in taken:
            continue
        while begun < len(spans) and spans[begun][0] < offset:
            heapq.heappush(open_spans, spans[begun][1])
            begun += 1
        while open_spans and open_spans[0] <= offset:
            heapq.heappop(open_spans)
        if open_spans:
            heapq.heappop(open_spans)
        else:
            report.add("offset-gap", f"{key} has nothing at {offset}, and no transaction ended there")


def _spans_of_markers(index: Index, key: str) -> Iterator[tuple[int, int]]:
    """(last offset before, first offset behind) of each marker that may be in the partition."""
    by_id: dict[str, list[Transaction]] = defaultdict(list)
    for transaction in index.transactions:
        if any(write.key == key for write in transaction.writes):
            by_id[transaction.transactional_id].append(transaction)
    for transactions in by_id.values():
        transactions.sort(key=lambda transaction: transaction.operation.invoked_ns)
        behind = NEVER_NS
        spans: list[tuple[int, int]] = []
        for transaction in reversed(transactions):
            offsets = [
                place for write in transaction.writes if write.key == key and (place := index.place(write)) is not None
            ]
            # Where no record has come to lie, the partition may have become part of the transaction all the same.
            spans.append((max(offsets, default=-1), behind))
            behind = min(offsets, default=behind)
        yield from spans
        yield from _repeated_markers(index, transactions, spans[::-1])


def _repeated_markers(
    index: Index, transactions: list[Transaction], spans: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """A coordinator that died before it had noted an end writes the markers again.

    It may have been any that was under way while the broker was dead, or the last two before: an end is answered before
    its markers are written, and the next transaction may have begun by then.  In a cluster so does one that was not
    answered because the partition got another leader, at any time, and again after faults.
    """
    if index.faults:
        yield from spans
    begun = [transaction.operation.invoked_ns for transaction in transactions]
    for faults, after_ns in ((index.kills, 0), (index.faults, UNREST_NS)):
        for fault in faults:
            first = bisect_left(begun, fault.invoked_ns) - 2
            yield from spans[max(0, first) : bisect_left(begun, fault.completed_ns + after_ns)]
