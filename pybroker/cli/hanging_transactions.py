"""Which open transactions hang: no coordinator will ever end them.  Pure.

Owns: the two judgements of kafka-transactions.sh find-hanging: what is open for so long that its time-out must be
over, and of that what no coordinator knows of.  Owns no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pybroker.cli.partition_leaders import Partition
from pybroker.cli.transaction_requests import Listing, Producer, Transaction


class OpenTransaction(NamedTuple):
    """A producer's open transaction in one partition."""

    partition: Partition
    producer: Producer


def long_open(producers: Mapping[Partition, list[Producer]], now_ms: int, max_timeout_ms: int) -> list[OpenTransaction]:
    """The open transactions whose producer wrote nothing for longer than any transaction may last."""
    return [
        OpenTransaction(partition, producer)
        for partition, known in sorted(producers.items())
        for producer in known
        if producer.txn_start_offset is not None and now_ms - producer.last_timestamp > max_timeout_ms
    ]


def hanging(
    candidates: Iterable[OpenTransaction], listings: Iterable[Listing], described: Mapping[str, Transaction | int]
) -> list[OpenTransaction]:
    """Those of the candidates that no coordinator is going to end.

    ``listings`` are the ids of the candidates' producers.  A coordinator describes the partitions that a transaction
    has written to, and while it ends one those that still lack their marker: it will end these and no others.
    """
    ids = {listing.producer_id: listing.transactional_id for listing in listings}

    def is_expected(candidate: OpenTransaction) -> bool:
        transaction = described.get(ids.get(candidate.producer.producer_id, ""))
        return isinstance(transaction, Transaction) and candidate.partition in transaction.partitions

    return [candidate for candidate in candidates if not is_expected(candidate)]
