"""Checks of groups that commit offsets by transactions: each record is processed once by those that took effect."""

from __future__ import annotations

from collections import defaultdict

from histories.anomalies import Report
from histories.index import Index, Record, Transaction


def check_groups(index: Index, report: Report) -> None:
    consumers: dict[str, dict[Record, list[Transaction]]] = defaultdict(lambda: defaultdict(list))
    for transaction in index.transactions:
        if transaction.group is not None and transaction.committed is not False:
            for record in transaction.consumed:
                consumers[transaction.group][record].append(transaction)
    for group, by_record in consumers.items():
        for (key, offset, _), found in by_record.items():
            committed = [str(transaction.operation) for transaction in found if transaction.committed]
            if len(committed) > 1:
                report.add("processed-twice", f"{group}: {key} at {offset} by {' and by '.join(committed)}")
    for operation in index.history:
        if operation.kind == "committed" and operation.outcome == "ok":
            group = operation.value["group"]
            if group in consumers:
                _check_committed(index, report, group, operation.value["offsets"], consumers[group])


def _check_committed(
    index: Index,
    report: Report,
    group: str,
    committed: dict[str, int],
    by_record: dict[Record, list[Transaction]],
) -> None:
    """A group's last offsets and what its transactions consumed are the same."""
    for key, next_offset in committed.items():
        log = index.log.get(key, {})
        for offset in index.committed_offsets.get(key, ()):
            if offset < next_offset and (key, offset, log[offset]) not in by_record:
                report.add("processed-never", f"{group} has committed {next_offset} of {key}, nobody consumed {offset}")
    for (key, offset, _), found in by_record.items():
        if offset >= committed.get(key, 0) and any(transaction.committed for transaction in found):
            report.add("lost-commit", f"{group} stands at {committed.get(key, 0)} of {key}, {offset} was consumed")
