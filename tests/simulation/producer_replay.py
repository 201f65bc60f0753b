"""What a log's batches say of its producers, read off without the broker, and what the broker remembers of them.

Owns: the replay, and the comparison.  The broker keeps producers by appending, by a snapshot and the batches behind it,
and by cutting; each way has to come to what the batches say.  Owns no event: who compares, and when, is the observer's.

A producer that lies in no batch any more is left out, and so is what only timestamps tell (its expiry).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.model import Batch, check

if TYPE_CHECKING:
    from pybroker.storage.log.log import Log
    from pybroker.storage.rules.producer_state import ProducerStateEntry

PRODUCERS = "what a log remembers of its producers is what its batches say"
SNAPSHOTS = "no snapshot of producers lies behind its log's end"
EPOCHS_OF_PRODUCERS = "a producer's epoch never goes back in a log"
MARKERS = "a log takes no marker of a deposed coordinator"
BATCHES_RETAINED = 5
LAST_SEQUENCE = (1 << 31) - 1
IDS_WITH_A_MARK = 1 << 32  # from here on a producer id says which cluster has given it
_COORDINATOR_EPOCH = struct.Struct(">hi").unpack_from

# (first sequence, last sequence, first offset, last offset)
Written = tuple[int, int, int, int]


class Producer(NamedTuple):
    """One producer of a log, behind some batch."""

    epoch: int
    coordinator_epoch: int  # of its last marker; -1: none
    open_since: int  # the first offset of its open transaction; -1: none
    written: tuple[Written, ...]  # the last five, of this epoch


NOTHING = Producer(-1, -1, -1, ())


def replayed(batches: Iterable[Batch]) -> dict[int, Producer]:
    """The producers that have written batches, by their ids; a marker that the cleaner has emptied says nothing."""
    producers: dict[int, Producer] = {}
    for batch in batches:
        if batch.producer_id >= 0 and not (batch.is_control and not any(batch.records())):
            producers[batch.producer_id] = _after(producers.get(batch.producer_id), batch)
    return producers


def _after(before: Producer | None, batch: Batch) -> Producer:
    same_epoch = before is not None and before.epoch == batch.producer_epoch
    written = before.written if before is not None and same_epoch else ()
    if batch.is_control:
        return Producer(batch.producer_epoch, coordinator_epoch(batch), -1, written)
    open_since = before.open_since if before is not None else -1
    if batch.is_transactional and open_since < 0:
        open_since = batch.base_offset
    last = batch.sequence
    if last >= 0:
        last = (last + batch.last_offset - batch.base_offset) & LAST_SEQUENCE
    entry = batch.sequence, last, batch.base_offset, batch.last_offset
    coordinator = before.coordinator_epoch if before is not None else -1
    return Producer(batch.producer_epoch, coordinator, open_since, (*written, entry)[-BATCHES_RETAINED:])


def coordinator_epoch(marker: Batch) -> int:
    """Of a control batch: the epoch of the coordinator that wrote it; -1 where the cleaner left no record of it."""
    for _, _, value in marker.records():
        return int(_COORDINATOR_EPOCH(value)[1])
    return -1


def check_producers(
    where: str,
    log: Log,
    batches: Iterable[Batch],
    left: Iterable[Batch] | None = None,
    *,
    all_batches: bool,
    was_read: bool,
    first_epoch: int = 0,
) -> None:
    """Compare what an open log remembers with what its batches say.

    ``left``: what the cleaner has left of them.  It empties a producer's last marker, and an empty one says nothing, as
    in Kafka: a replica that fetches the log from its beginning after that knows no later epochs than are left.
    ``all_batches``: none has ever been taken from the log's beginning, so that it remembers no producer besides.
    ``was_read``: the log was opened, or cut, so that of a producer's last batches it may remember fewer than five.
    ``first_epoch``: what lies below that leader epoch is another cluster's, and counts for none of ours.
    """
    batches = list(batches)
    expected, state = replayed(batches), log.producers
    own = replayed(batch for batch in batches if batch.leader_epoch >= first_epoch)
    least = None if left is None else replayed(left)
    if all_batches:
        strangers = state.producers.keys() - expected.keys()
        check(not strangers, PRODUCERS, f"{where}: {sorted(strangers)} have written nothing")
    for producer_id, producer in expected.items():
        entry = state.producers.get(producer_id)
        if entry is None:
            all_is_gone = least is not None and producer_id not in least
            if _may_be_anothers(producer_id, first_epoch):
                all_is_gone = all_is_gone or not own.get(producer_id, NOTHING).written
            check(all_is_gone, PRODUCERS, f"{where}: producer {producer_id} is forgotten, {producer}")
            continue
        least_of = producer if least is None else least.get(producer_id, NOTHING)
        is_exact = all_batches and not was_read
        difference = _difference(entry, producer, least_of, is_exact=is_exact)
        if difference and _may_be_anothers(producer_id, first_epoch):
            of_ours = own.get(producer_id, NOTHING)
            difference = _difference(entry, of_ours, of_ours, is_exact=is_exact)
        check(not difference, PRODUCERS, f"{where}: producer {producer_id}: {difference}")
    is_open = {producer.open_since: key for key, producer in expected.items() if producer.open_since >= 0}
    same = all(state.ongoing_txns.get(offset) == key for offset, key in is_open.items())
    same = same and (not all_batches or len(is_open) == len(state.ongoing_txns))
    check(same, PRODUCERS, f"{where}: open since {state.ongoing_txns}, and by the batches since {is_open}")


def _may_be_anothers(producer_id: int, first_epoch: int) -> bool:
    """Whether the log's leader does not count what that producer id has left below its first epoch of our own."""
    return first_epoch > 0 and producer_id < IDS_WITH_A_MARK


def _difference(entry: ProducerStateEntry, producer: Producer, least: Producer, *, is_exact: bool) -> str:
    """In what a remembered producer differs; "" if in nothing.

    Unless ``is_exact`` it may remember more batches than there are, of a log whose beginning is gone, or fewer.
    """
    ranges = (
        ("epoch", entry.producer_epoch, least.epoch, producer.epoch),
        ("coordinator's epoch", entry.coordinator_epoch, least.coordinator_epoch, producer.coordinator_epoch),
        ("open transaction", entry.current_txn_first_offset, producer.open_since, producer.open_since),
    )
    for name, remembered, low, high in ranges:
        if not low <= remembered <= high:
            return f"its {name} is {remembered}, and {high} by the batches"
    written = (producer if entry.producer_epoch == producer.epoch else least).written
    kept = tuple(batch[:4] for batch in entry.batches)
    common = min(len(kept), len(written))
    same = kept == written
    if not is_exact:
        same = bool(kept) == bool(written) and kept[len(kept) - common :] == written[len(written) - common :]
    return "" if same else f"its batches are {kept}, and {written} by the log"


def check_snapshots(where: str, directory: Path, end_offset: int) -> None:
    """No snapshot says what was behind the offset at which a log was cut: a later start would believe it."""
    beyond = [file.name for file in directory.glob("*.snapshot") if int(file.stem) > end_offset]
    check(not beyond, SNAPSHOTS, f"{where}: it ends at {end_offset}, and there are {beyond}")
