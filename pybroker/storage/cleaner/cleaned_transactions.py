"""Which batches belong to aborted transactions, and which markers are still needed.  CleanedTransactionMetadata.

Owns the state of the transactions while a pass goes through a log from its first batch on.

Invariants:
- A data batch of an aborted transaction may go.
- A marker may go once no data batch of its transaction was seen in the pass. Where the batch was dropped in this very
  pass, the marker stays for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pybroker.storage.results import AbortedTransaction
from pybroker_protocol.record_codec import ControlRecordType, control_type


class CleanedTransactions:
    """One pass; ``aborted`` are all aborted transactions that touch what the pass goes through.

    ``on_retained_abort(transaction)`` is called for each whose marker is retained for its data's sake: the cleaned
    segment's transaction index has to name it.
    """

    def __init__(
        self, aborted: Iterable[AbortedTransaction], on_retained_abort: Callable[[AbortedTransaction], None]
    ) -> None:
        self._coming = sorted(set(aborted), key=lambda transaction: transaction.first_offset, reverse=True)
        self._on_retained_abort = on_retained_abort
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()  # producer ids of aborted transactions of which a batch was seen
        self._committed: set[int] = set()

    def _advance(self, last_offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= last_offset:
            transaction = coming.pop()
            self._aborted.setdefault(transaction.producer_id, transaction)

    def on_data(self, producer_id: int, last_offset: int, transactional: bool) -> bool:
        """Go past a data batch; whether it was aborted."""
        self._advance(last_offset)
        if not transactional:
            return False
        if producer_id in self._aborted:
            self._with_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control(self, producer_id: int, last_offset: int, key: bytes | None, emptied: bool) -> bool:
        """Go past a control batch, given its record's key; whether it may be discarded."""
        self._advance(last_offset)
        if emptied:
            return True
        kind = control_type(key)
        if kind == ControlRecordType.ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._with_data:
                return True
            self._with_data.discard(producer_id)
            self._on_retained_abort(transaction)
            return False
        if kind == ControlRecordType.COMMIT:
            seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not seen
        return False
