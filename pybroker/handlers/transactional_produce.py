"""Produce (key 0), when there are transactional batches in the request: they wait for the transaction coordinator.

Owns: keeping a request's batches until the coordinator has been heard, and which of them are appended then.  The rules
of Produce are in ``produce``, which loads this module at the first such request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import storage_limits
from pybroker.replication.transaction_verification import (
    PASSING_PRODUCE_ERRORS,
    ProducerOfTransaction,
    TransactionOperation,
    produce_error,
    produce_operation,
)
from pybroker_protocol.records import HEADER_BYTES, BatchHeader, read_batch_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pybroker.handlers.context import Parked, RequestContext
    from pybroker.handlers.produce_appends import ProduceAppends
    from pybroker.replication.partition import Partition
    from pybroker.storage.results import PartitionErrors
    from pybroker_protocol.messages.produce import PartitionProduceResponse, ProduceResponse

# A batch with its place: the partition, and where its fate is written.
Place = tuple["Partition", memoryview, "PartitionProduceResponse"]


def transactional_headers(batches: Iterable[memoryview]) -> Iterator[BatchHeader]:
    """The headers of those batches that a producer wrote inside of a transaction."""
    for records in batches:
        if len(records) >= HEADER_BYTES:
            header = read_batch_header(records)
            if header.is_transactional and header.producer_id >= 0:
                yield header


def producers_of(batches: Iterable[memoryview]) -> set[tuple[int, int]]:
    """Ids, with their epochs, of those who wrote the batches inside of transactions."""
    return {(header.producer_id, header.producer_epoch) for header in transactional_headers(batches)}


class TransactionalProduce:
    """The batches of one request, until they are appended."""

    __slots__ = ("_is_appended", "_operation", "_produce", "places")

    def __init__(self, produce: ProduceAppends) -> None:
        self._produce = produce
        self.places: list[Place] = []
        self._is_appended = False
        self._operation: TransactionOperation = produce_operation(produce.api_version)

    def place(self, partition: Partition, records: memoryview, reply: PartitionProduceResponse) -> None:
        """Keep a batch whose partition was found."""
        self.places.append((partition, records, reply))

    def start(self, ctx: RequestContext, transactional_id: str | None) -> ProduceResponse | Parked | None:
        """Append what may be appended, once the coordinator has answered, even if the client is gone by then."""
        self.verify(ctx, transactional_id, self._append_all)
        return self._produce.answer(ctx) if self._is_appended else self._wait(ctx)

    def verify(
        self, ctx: RequestContext, transactional_id: str | None, done: Callable[[PartitionErrors], None]
    ) -> None:
        """Ask the coordinator about all batches; ``done`` hears what speaks against a partition."""
        assert transactional_id is not None
        producer: ProducerOfTransaction | None = None
        batches: list[tuple[Partition, int]] = []
        for partition, records, _ in self.places:
            for header in transactional_headers([records]):
                producer = ProducerOfTransaction(transactional_id, header.producer_id, header.producer_epoch)
                batches.append((partition, header.base_sequence))
        if producer is None:
            done({})
        else:
            verification = ctx.services.transaction_verification
            verification.verify(producer, batches, self._operation, done, retries=True)

    def _wait(self, ctx: RequestContext) -> Parked:
        """The coordinator has not answered yet: small records are copied, for large ones the request is held."""
        produce = self._produce
        records_bytes = sum(len(records) for _, records, _ in self.places)
        if records_bytes > storage_limits.INLINE_WRITE_BYTES_MAX:
            produce.held = ctx.connection.hold_request()
        else:
            produce.held = ctx.connection.hold_copy(records_bytes)
            self.places = [(place[0], memoryview(bytearray(place[1])), place[2]) for place in self.places]
        parked = produce.wait(ctx)
        parked.holds_back = True
        return parked

    def _append_all(self, errors: PartitionErrors) -> None:
        self._is_appended = True
        produce = self._produce
        produce.pending += 1  # so that no append which completes in here is taken for the last one
        self.append(self.places, errors)
        self.places = []
        produce.pending -= 1
        produce.complete_if_done()

    def append(self, places: Iterable[Place], errors: PartitionErrors) -> None:
        """Append the batches of these places, but for those that an error speaks against."""
        for partition, records, reply in places:
            error = errors.get((partition.topic, partition.index))
            if error:
                refusal = produce_error(self._operation, error)
                if refusal in PASSING_PRODUCE_ERRORS:
                    partition.log.note_refusal(records, refusal)
                reply.error_code = refusal
                reply.error_message = "The partition could not be verified to be part of the transaction"
            else:
                self._produce.append(partition, records, reply)
