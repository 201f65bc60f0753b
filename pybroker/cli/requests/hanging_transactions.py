"""Which open transactions hang: no coordinator will ever end them.

Owns: the two judgements of kafka-transactions.sh find-hanging, and the search that asks brokers for both. The first is
what is open for so long that its time-out must be over; the second is what of that no coordinator knows. Owns no
request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import transaction_requests as requests
from pybroker.cli.requests.partition_leaders import Partition, asked_of_leaders
from pybroker.cli.requests.transaction_requests import Listing, Producer, Transaction


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


def find_hanging(
    client: AdminClient, partitions: Iterable[Partition] | None, max_timeout_ms: int
) -> tuple[list[OpenTransaction], dict[Partition, int]]:
    """Those of the partitions (None: of all), and the error codes of partitions that could not be looked at."""
    known, failed = split_answers(
        asked_of_leaders(client, partitions, lambda leaders: requests.describe_producers(client, leaders))
    )
    found = long_open(known, time.time_ns() // 1_000_000, max_timeout_ms)
    if found:
        producer_ids = sorted({each.producer.producer_id for each in found})
        listings, _ = retried(lambda: requests.list_transactions(client, producer_ids=producer_ids))
        ids = [listing.transactional_id for listing in listings]
        found = hanging(found, listings, retried(lambda: requests.describe_transactions(client, ids)))
    return found, failed


def split_answers(
    answers: Mapping[Partition, list[Producer] | int],
) -> tuple[dict[Partition, list[Producer]], dict[Partition, int]]:
    """The producers of the partitions that answered, and the error codes of the others."""
    known = {partition: answer for partition, answer in answers.items() if not isinstance(answer, int)}
    failed = {partition: answer for partition, answer in sorted(answers.items()) if isinstance(answer, int)}
    return known, failed
