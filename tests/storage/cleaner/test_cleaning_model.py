"""Cleaning against a naive model: keyed records, tombstones, transactions, rounds, restarts, crashes in any order."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from harness.virtual_world import VirtualWorld
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pybroker.storage.cleaner.offset_map import ENTRY_BYTES
from pybroker_protocol.record_codec import ControlRecordType, control_type, decode_records
from tests.storage.cleaner.logs import BACKOFF_MS, all_batches, clean, compacted, end_transaction, file_names, put
from tests.storage.logs import Storage

RETENTION_MS = 3_600_000
KEYS = [b"%d" % i for i in range(7)]
PRODUCERS = [1, 2, 3]  # idempotent, and in turn transactional
CODECS = st.sampled_from([0, 1, 2, 3, 4])
DEDUPE_BYTES = (1 << 20) + 1  # the least that Kafka allows
LOAD_FACTOR_OF_FIVE_KEYS = 5.5 / (DEDUPE_BYTES // ENTRY_BYTES)
KEYED = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=4)


class Appended(NamedTuple):
    """One data record of the model; ``producer_id`` is -1 outside of transactions."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int
    written_ms: int


class GivenUp(logging.Handler):
    """What is said of logs that are left alone from now on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "uncleanable" in record.msg:
            self.lines.append(record.getMessage())


class CleaningMachine(RuleBasedStateMachine):
    """``appended`` is everything since the last truncation; ``fate`` says of transactions' records how they ended."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="cleaning-model-"))
        self.appended: list[Appended] = []
        self.open: dict[int, list[int]] = {}  # producer id -> offsets of its open transaction
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.counter = 0
        self.world = VirtualWorld()
        self.given_up = GivenUp()
        logging.getLogger("pybroker.storage").addHandler(self.given_up)

    @initialize(
        segment_bytes=st.sampled_from([400, 1500, 1 << 20]),
        load_factor=st.sampled_from([LOAD_FACTOR_OF_FIVE_KEYS, 0.9]),
    )
    def begin(self, segment_bytes: int, load_factor: float) -> None:
        self.load_factor = load_factor  # with room for five keys a round ends early
        self.attributes = {
            "internal_segment_bytes": segment_bytes,
            "delete_retention_ms": RETENTION_MS,
            "index_interval_bytes": 100,
        }
        self.start()

    def start(self) -> None:
        self.storage = Storage(
            self.directory / "data",
            self.world,
            log_cleaner_backoff_ms=BACKOFF_MS,
            log_cleaner_dedupe_buffer_size=DEDUPE_BYTES,
            log_cleaner_io_buffer_load_factor=self.load_factor,
            log_retention_check_interval_ms=10**12,
        )
        self.log = compacted(self.storage, **self.attributes)
        self.log.update_high_watermark(self.log.log_end_offset)

    # What happens ---------------------------------------------------------------------------------------------------

    def values(self, keyed: list[tuple[bytes, bool]]) -> list[tuple[bytes, bytes | None]]:
        self.counter += 1
        return [(key, b"%d" % self.counter if filled else None) for key, filled in keyed]

    def note(self, base_offset: int, records: list[tuple[bytes, bytes | None]], producer_id: int) -> list[int]:
        self.appended += [
            Appended(base_offset + i, key, value, producer_id, self.world.clock.now_ms())
            for i, (key, value) in enumerate(records)
        ]
        return list(range(base_offset, base_offset + len(records)))

    @rule(batches=st.lists(KEYED, min_size=1, max_size=3), codec=CODECS)
    def append(self, batches: list[list[tuple[bytes, bool]]], codec: int) -> None:
        for keyed in batches:
            records = self.values(keyed)
            self.note(put(self.log, *records, compression=codec), records, -1)

    @rule(
        keyed=KEYED,
        codec=CODECS,
        producer_id=st.sampled_from(PRODUCERS),
        end=st.sampled_from(["commit", "abort", "commit", "abort", "later"]),
    )
    def append_in_transaction(self, keyed: list[tuple[bytes, bool]], codec: int, producer_id: int, end: str) -> None:
        records = self.values(keyed)
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        base_offset = put(
            self.log,
            *records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        self.open.setdefault(producer_id, []).extend(self.note(base_offset, records, producer_id))

        if end != "later":
            self.end(producer_id, commit=end == "commit")

    def end(self, producer_id: int, *, commit: bool) -> None:
        end_transaction(self.log, producer_id, commit=commit)
        (self.committed if commit else self.aborted).update(self.open.pop(producer_id))

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end_all(self, commit: bool) -> None:
        for producer_id in list(self.open):
            self.end(producer_id, commit=commit)

    @precondition(lambda self: self.appended)
    @rule(minutes=st.sampled_from([1, 20, 61]))
    def clean(self, minutes: int) -> None:
        self.world.clock.pass_ms(minutes * 60_000)
        self.log.roll()
        bound = min(self.log.last_stable_offset, self.log.active.base_offset)
        before = self.stored()
        end_offset = self.log.log_end_offset
        clean(self.world, 2)
        assert self.given_up.lines == []
        after = self.stored()
        assert [record for record in after if record[0] >= bound] == [r for r in before if r[0] >= bound]
        assert self.log.log_end_offset == end_offset
        assert not [name for name in file_names(self.log) if name.endswith((".cleaned", ".swap"))]

    @precondition(lambda self: self.appended)
    @rule(end=st.sampled_from(["clean stop", "crash", "crash, and the snapshots are gone"]))
    def reopen(self, end: str) -> None:
        self.world.run()
        state = self.producer_state()
        if end == "clean stop":
            self.storage.close()
        else:
            self.storage.kill()
        if end.endswith("gone"):
            for path in (self.directory / "data").glob("t-0/*.snapshot"):
                path.unlink()
        self.start()
        assert self.producer_state() == state

    # What has to hold -----------------------------------------------------------------------------------------------

    def producer_state(self) -> dict[int, tuple[int, list[Any], int]]:
        return {
            producer_id: (
                entry.producer_epoch,
                [batch[:4] for batch in entry.batches],  # a marker may have a later time
                entry.current_txn_first_offset,
            )
            for producer_id, entry in self.log.producers.producers.items()
        }

    def stored(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [
            (record.offset, record.key, record.value)
            for header, data in all_batches(self.log)
            if not header.is_control
            for record in decode_records(data)
        ]

    def read_committed(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """What Kafka's consumer gives to a read_committed application, by its own rules."""
        stable = self.log.last_stable_offset
        coming = sorted(self.log.aborted_transactions(0, stable), key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        seen = []
        for header, data in all_batches(self.log):
            if header.base_offset >= stable:
                break
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            records = list(decode_records(data))
            if header.is_control:
                if records and control_type(records[0].key) == ControlRecordType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                seen += [(record.offset, record.key, record.value) for record in records]
        return seen

    def visible(self) -> list[Appended]:
        """What read_committed showed if nothing were ever cleaned."""
        stable = self.log.last_stable_offset
        return [
            record
            for record in self.appended
            if record.offset < stable and (record.producer_id < 0 or record.offset in self.committed)
        ]

    @invariant()
    def what_is_stored_was_appended_in_this_order(self) -> None:
        if not hasattr(self, "log"):
            return
        known = {record.offset: (record.offset, record.key, record.value) for record in self.appended}
        stored = self.stored()
        assert stored == [known[offset] for offset, _, _ in stored]
        assert [offset for offset, _, _ in stored] == sorted({offset for offset, _, _ in stored})

    @invariant()
    def latest_committed_value_of_each_key_is_visible_and_nothing_else_of_transactions(self) -> None:
        if not hasattr(self, "log"):
            return
        expected: dict[bytes | None, bytes | None] = {record.key: record.value for record in self.visible()}
        seen = self.read_committed()
        found = {key: value for _, key, value in seen}
        assert {key: value for key, value in found.items() if value is not None} == {
            key: value for key, value in expected.items() if value is not None
        }
        assert not {offset for offset, _, _ in seen} & self.aborted

    @invariant()
    def tombstones_stay_for_their_time(self) -> None:
        """The last tombstone of a key is there until ``delete.retention.ms`` after it was written."""
        if not hasattr(self, "log"):
            return
        latest = {record.key: record for record in self.visible()}
        stored = {offset for offset, _, _ in self.stored()}
        for record in latest.values():
            if record.value is None and record.offset not in stored:
                assert self.world.clock.now_ms() - record.written_ms >= RETENTION_MS

    def teardown(self) -> None:
        logging.getLogger("pybroker.storage").removeHandler(self.given_up)
        if hasattr(self, "storage"):
            self.storage.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


TestCleaningModel = CleaningMachine.TestCase
TestCleaningModel.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
