"""Producers and transactions of a log against a naive model: any interleaving of producers, epochs, markers, rolls,
truncations, restarts and crashes.

The model keeps the list of what was appended and, whenever it is asked, works everything out from its beginning.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from harness.virtual_world import VirtualWorld
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pybroker.storage.log.log import Log
from pybroker.storage.results import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
    ReadResult,
)
from tests.storage.batches import batch
from tests.storage.logs import TRANSACTIONAL_FLAG, Client, ModelSettings, Storage


class Deed(NamedTuple):
    """A batch of data, or the marker of a transaction; most are right, ``fault`` says what is odd about one."""

    producer_id: int
    ends: bool | None
    fault: str
    epoch_change: int
    version: int


DEEDS = st.builds(
    Deed,
    producer_id=st.integers(1, 3),
    ends=st.sampled_from([None, None, False, True]),
    fault=st.sampled_from(["", "", "", "", "gap", "plain", "unverified"]),
    epoch_change=st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]),
    version=st.sampled_from([0, 1, 2, 2]),
)


class Entry(NamedTuple):
    """One batch of the model's log; ``marker`` is None for data, else whether it commits."""

    offset: int
    producer_id: int
    epoch: int
    last_sequence: int = -1
    transactional: bool = True
    marker: bool | None = None
    coordinator_epoch: int = -1


class Producer:
    """What a log knows of one producer."""

    def __init__(self) -> None:
        self.epoch = -1
        self.last_sequence = -1
        self.open_since: int | None = None
        self.coordinator_epoch = -1

    def take(self, entry: Entry) -> int | None:
        """One more batch; where the transaction began that it ends, if it does."""
        if entry.epoch != self.epoch:
            self.epoch, self.last_sequence = entry.epoch, -1
        if entry.marker is not None:
            began, self.open_since = self.open_since, None
            self.coordinator_epoch = entry.coordinator_epoch
            return began
        self.last_sequence = entry.last_sequence
        if entry.transactional and self.open_since is None:
            self.open_since = entry.offset
        return None

    @property
    def next_sequence(self) -> int:
        return self.last_sequence + 1


class TransactionMachine(RuleBasedStateMachine):
    """``entries`` is the log; ``verified`` holds what the coordinator has allowed: (epoch, lowest sequence)."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transaction-model-"))
        self.entries: list[Entry] = []
        self.verified: dict[int, tuple[int, int]] = {}
        self.leader_epoch = 0

    @initialize(segment_bytes=st.sampled_from([300, 700, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.config: ModelSettings = {
            "internal_segment_bytes": segment_bytes,
            "index_interval_bytes": 0,
            "retention_ms": -1,
        }
        self.open()

    def open(self) -> None:
        self.world = VirtualWorld()
        self.storage = Storage(self.directory / "data", self.world)
        self.log: Log = self.storage.log(**self.config)
        self.client = Client(self.log, self.leader_epoch)
        self.verified.clear()

    # --- the model ------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self.entries[-1].offset + 1 if self.entries else 0

    def producers(self) -> dict[int, Producer]:
        found: dict[int, Producer] = {}
        for entry in self.entries:
            found.setdefault(entry.producer_id, Producer()).take(entry)
        return found

    def aborted(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, marker's offset), in the order of the markers."""
        producers: dict[int, Producer] = {}
        found = []
        for entry in self.entries:
            began = producers.setdefault(entry.producer_id, Producer()).take(entry)
            if began is not None and entry.marker is False:
                found.append((entry.producer_id, began, entry.offset))
        return found

    def expected_error(self, producer_id: int, epoch: int, sequence: int, transactional: bool) -> int:
        known = self.producers().get(producer_id)
        goes_on = known is not None and known.open_since is not None and known.epoch == epoch
        if known is not None and epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH
        if transactional and not goes_on:
            verified_epoch, lowest = self.verified.get(producer_id, (-1, 0))
            if verified_epoch != epoch:
                return INVALID_TXN_STATE
            if sequence > lowest:
                return OUT_OF_ORDER_SEQUENCE_NUMBER
        if known is None:
            return 0
        if sequence != (known.next_sequence if known.epoch == epoch else 0):
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        return INVALID_TXN_STATE if known.open_since is not None and not transactional else 0

    def last_stable_offset(self, high_watermark: int) -> int:
        """The high watermark, or where the first transaction begins whose marker is not below it."""
        producers: dict[int, Producer] = {}
        unstable = [high_watermark]
        for entry in self.entries:
            began = producers.setdefault(entry.producer_id, Producer()).take(entry)
            if began is not None and entry.offset >= high_watermark:
                unstable.append(began)
        return min(unstable + [one.open_since for one in producers.values() if one.open_since is not None])

    # --- what happens ---------------------------------------------------------------------------------------------

    @rule(deeds=st.lists(DEEDS, min_size=1, max_size=12))
    def producers_and_coordinators_write(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            if deed.ends is None:
                self.append(deed)
            else:
                self.end(deed, deed.ends)

    def append(self, deed: Deed) -> None:
        producer_id, transactional = deed.producer_id, deed.fault != "plain"
        known = self.producers().get(producer_id)
        epoch = max((known.epoch if known is not None else 0) + deed.epoch_change, 0)
        same_epoch = known is not None and known.epoch == epoch
        sequence = (known.next_sequence if known is not None and same_epoch else 0) + 7 * (deed.fault == "gap")
        goes_on = known is not None and known.open_since is not None and same_epoch
        is_old = known is not None and epoch < known.epoch
        if transactional and deed.fault != "unverified" and not goes_on and not is_old:
            self.verify(producer_id, epoch, sequence)
        error = self.expected_error(producer_id, epoch, sequence, transactional)
        data = batch(
            attributes=TRANSACTIONAL_FLAG if transactional else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
        )
        result = self.client.send_now(data)
        assert result.error_code == error, result.error_message
        if not error:
            assert result.base_offset == self.end_offset
            self.entries.append(Entry(self.end_offset, producer_id, epoch, sequence, transactional))
            if transactional:
                self.verified.pop(producer_id, None)

    def verify(self, producer_id: int, epoch: int, sequence: int) -> None:
        verifications = self.log.producers.verifications
        before = verifications.of(producer_id)
        lowest = sequence
        if before is not None and before.epoch == epoch:
            lowest = min(before.lowest_sequence, sequence)
        elif before is not None and before.epoch > epoch:
            lowest = before.lowest_sequence
        self.client.verify(producer_id, epoch, sequence)
        self.verified[producer_id] = (epoch, lowest)

    def end(self, deed: Deed, commit: bool) -> None:
        producer_id, version = deed.producer_id, deed.version
        known = self.producers().get(producer_id) or Producer()
        usual_change = 1 if version == 2 and deed.fault != "gap" else 0
        epoch = max(known.epoch + usual_change + deed.epoch_change, 0)
        coordinator_epoch = max(known.coordinator_epoch + (deed.fault == "plain") - (deed.fault == "unverified"), 0)
        error = 0
        late = epoch < known.epoch or (version == 2 and epoch == known.epoch and known.open_since is not None)
        if late:
            error = INVALID_PRODUCER_EPOCH
        elif coordinator_epoch < known.coordinator_epoch:
            error = TRANSACTION_COORDINATOR_FENCED
        result = self.client.end(producer_id, epoch, commit, coordinator_epoch, version)
        assert result.error_code == error, result.error_message
        if not error:
            assert result.base_offset == self.end_offset
            self.entries.append(
                Entry(self.end_offset, producer_id, epoch, marker=commit, coordinator_epoch=coordinator_epoch)
            )
            self.verified.pop(producer_id, None)

    @rule()
    def replicate(self) -> None:
        self.log.update_high_watermark(self.end_offset)

    @rule(data=st.data())
    def replicate_some(self, data: st.DataObject) -> None:
        self.log.update_high_watermark(data.draw(st.integers(self.log.high_watermark, self.end_offset)))

    @rule()
    def roll(self) -> None:
        if self.log.on_disk:
            self.log.roll()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.entries)))
        self.log.truncate_to(keep)
        if keep < len(self.entries):
            self.verified.clear()
        del self.entries[keep:]
        self.leader_epoch += 1
        self.client.leader_epoch = self.leader_epoch

    @rule()
    def stop_and_start(self) -> None:
        self.storage.close()
        self.open()

    @rule(torn=st.integers(0, 60))
    def crash_and_start(self, torn: int) -> None:
        path = self.log.active.path()
        self.storage.kill()
        if path.exists():
            with path.open("ab") as file:
                file.write(batch([bytes(30)], base_offset=self.end_offset)[:torn])
        self.open()

    @rule()
    def shut(self) -> None:
        self.log = self.client.log = self.storage.shut_and_open(self.log)

    @rule(data=st.data())
    def fetch_committed(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, self.end_offset))
        upper = data.draw(st.integers(start, self.end_offset))
        found = [
            (one.producer_id, one.first_offset, one.last_offset) for one in self.log.aborted_transactions(start, upper)
        ]
        assert found == [one for one in self.aborted() if one[2] >= start and one[1] < upper]
        read = self.log.read(start, data.draw(st.sampled_from([1, 150, 1 << 20])), upper, True)
        assert isinstance(read, ReadResult)
        if len(read.records):
            of_read = self.log.aborted_transactions_of(start, read.records)
            assert of_read is not None
            last = self.last_offset_of(read)
            expected = [one[:2] for one in self.aborted() if one[2] >= start and one[1] <= last]
            assert [(one.producer_id, one.first_offset) for one in of_read] == expected

    def every_reader_is_told_of_what_was_aborted(self) -> None:
        aborted = self.aborted()
        for start in range(self.end_offset + 1):
            found = self.log.aborted_transactions(start, self.end_offset)
            assert [one[:3] for one in found] == [one for one in aborted if one[2] >= start]

    @staticmethod
    def last_offset_of(read: ReadResult) -> int:
        from tests.storage.batches import parse

        return parse(read.records)[-1][1]

    # --- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def readers_stop_at_the_first_transaction_that_is_open_or_not_replicated(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_end_offset == self.end_offset
        assert log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.last_stable_offset == self.last_stable_offset(log.high_watermark)

    @invariant()
    def producers_are_known_as_the_log_has_them(self) -> None:
        if not hasattr(self, "log"):
            return
        known = {
            producer_id: (
                entry.producer_epoch,
                entry.last_sequence,
                entry.current_txn_first_offset,
                entry.coordinator_epoch,
            )
            for producer_id, entry in self.log.producers.producers.items()
        }
        assert known == {
            producer_id: (
                one.epoch,
                one.last_sequence,
                -1 if one.open_since is None else one.open_since,
                one.coordinator_epoch,
            )
            for producer_id, one in self.producers().items()
        }

    def teardown(self) -> None:
        try:
            if hasattr(self, "storage"):
                self.every_reader_is_told_of_what_was_aborted()
                self.storage.kill()
        finally:
            shutil.rmtree(self.directory)


TransactionMachine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTransactionModel = TransactionMachine.TestCase
