"""What is stored says the largest timestamp of its records, whatever its producer claims; what goes by it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from harness.virtual_world import START_MS, VirtualWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.storage.log.append_run import append_run
from pybroker.storage.log.log import Log
from pybroker.storage.log.timestamp_lookup import Found
from pybroker.storage.results import INVALID_TIMESTAMP, AppendResult, TimestampOffset
from pybroker.storage.rules.maximum_timestamp import INLINE_TIMES_RECORDS_MAX
from pybroker_protocol.records import is_intact, read_batch_header
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Client, Storage, read

NOW = START_MS
DAY_MS = 86_400_000
CODECS = [0, 1, 2, 3, 4]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def claiming(maximum: int, times: Sequence[int], values: Sequence[bytes] | None = None, codec: int = 0) -> bytearray:
    """A batch of records of these times whose header claims ``maximum``."""
    return batch(values or [b"v"] * len(times), timestamps=times, max_timestamp=maximum, attributes=codec)


def outcome(log: Log, world: VirtualWorld, data: bytearray) -> AppendResult:
    client = Client(log)
    result = client.send(data)
    if result is None:
        world.run()
        (result,) = client.later
    return result


def place(found: Found) -> tuple[int, int]:
    assert isinstance(found, TimestampOffset)
    return found.timestamp, found.offset


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.integers(0, NOW + 1_000) | st.just(-1), min_size=1, max_size=40),
    claim=INT64 | st.integers(NOW - 1_000, NOW + 1_000) | st.just(-1),
    codec=st.sampled_from([0, 0, 0, *CODECS]),
    sizes=st.sampled_from([[5], [5, 70, 900], [100, 100, 100, 7]]),
    is_run=st.booleans(),
)
def test_stored_header_has_the_maximum_of_its_records(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    claim: int,
    codec: int,
    sizes: list[int],
    is_run: bool,
) -> None:
    world = VirtualWorld()
    storage = Storage(tmp_path_factory.mktemp("maximum"), world)
    try:
        log = storage.log(internal_segment_bytes=1 << 20)
        Client(log).fill(1, timestamp=0)  # no run makes the files
        data = claiming(claim, times, [bytes(sizes[i % len(sizes)]) for i in range(len(times))], codec)
        if not (is_run and append_run(log, [memoryview(data)], 0, LATEST_PRODUCE)):
            assert outcome(log, world, data).error_code == 0
        stored = read(log, 1)[0][2]
        assert is_intact(stored)
        assert read_batch_header(stored).max_timestamp == max(times)
        assert log.active.max_timestamp == max([0, *times])
    finally:
        storage.kill()


@pytest.mark.parametrize("codec", CODECS)
def test_new_record_behind_an_old_one_does_not_expire_with_it(
    storage: Storage, world: VirtualWorld, codec: int
) -> None:
    """KafkaJS 2.2.4 claims the largest of the times that the application gave."""
    log = storage.log(retention_ms=DAY_MS, segment_ms=1_000)
    old = NOW - 8 * DAY_MS
    assert outcome(log, world, claiming(old, [old, NOW], codec=codec)).error_code == 0
    world.clock.pass_ms(2_000)
    assert Client(log).send_now(timestamp=world.clock.now_ms()).base_offset == 2
    log.update_high_watermark(3)
    log.apply_retention()
    assert (len(log.segments), log.log_start_offset) == (2, 0)
    assert place(log.offset_for_timestamp(NOW - 3_600_000)) == (NOW, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_records_whose_header_claims_no_time_are_found_and_expire(
    storage: Storage, world: VirtualWorld, codec: int
) -> None:
    """Sarama before 1.45 claims -1."""
    log = storage.log(retention_ms=DAY_MS, segment_ms=1_000)
    old = NOW - 2 * DAY_MS
    assert outcome(log, world, claiming(-1, [old, old + 5], codec=codec)).error_code == 0
    assert place(log.offset_for_timestamp(old + 1)) == (old + 5, 1)
    assert place(log.offset_of_max_timestamp()) == (old + 5, 1)
    world.clock.pass_ms(2_000)
    assert outcome(log, world, claiming(-1, [NOW], codec=codec)).base_offset == 2
    log.update_high_watermark(3)
    log.apply_retention()
    assert log.log_start_offset == 2


def test_segment_without_any_timestamp_does_not_have_the_newest_record(storage: Storage, world: VirtualWorld) -> None:
    """When its file was written counts for its expiry alone."""
    log = storage.log(internal_segment_bytes=4096)
    for time in (NOW - 9, -1):
        assert outcome(log, world, claiming(time, [time], [bytes(3000)])).error_code == 0
    assert len(log.segments) == 2
    assert place(log.offset_of_max_timestamp()) == (NOW - 9, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claim", [-1, NOW, NOW + 10 * DAY_MS])
def test_record_of_the_far_future_is_refused_whatever_the_header_claims(
    storage: Storage, world: VirtualWorld, codec: int, claim: int
) -> None:
    log = storage.log()
    result = outcome(log, world, claiming(claim, [NOW, NOW + 10 * DAY_MS, NOW], codec=codec))
    assert (result.error_code, result.base_offset) == (INVALID_TIMESTAMP, -1)
    assert [index for index, _ in result.record_errors] == [1]
    assert log.next_offset == 0


@pytest.mark.parametrize("codec", CODECS)
def test_sums_that_64_bits_do_not_hold_are_those_of_kafka(storage: Storage, world: VirtualWorld, codec: int) -> None:
    log = storage.log(message_timestamp_after_max_ms=(1 << 63) - 1)
    end = (1 << 63) - 1
    data = claiming(0, [end - 5, end + NOW + 100_000], codec=codec)  # the second one's is negative, in 64 bits
    assert outcome(log, world, data).error_code == 0
    assert read_batch_header(read(log, 0)[0][2]).max_timestamp == end - 5


@pytest.mark.parametrize("values", [[b""] * (INLINE_TIMES_RECORDS_MAX + 1), [bytes(200_000)] * 2])
@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_keep_their_order_and_get_their_maximum(
    storage: Storage, world: VirtualWorld, values: list[bytes], codec: int
) -> None:
    log = storage.log(internal_segment_bytes=1 << 24)
    client, count = Client(log), len(values)
    times = [NOW - 5] * (count - 1) + [NOW]
    for results in (1, 2, 3):
        result = client.send(claiming(NOW - 9, times, values, codec))
        if result is not None:
            client.later.append(result)
        assert len(client.later) <= results
    world.run()
    assert [(result.error_code, result.base_offset) for result in client.later] == [(0, i * count) for i in range(3)]
    assert {read_batch_header(data).max_timestamp for _, _, data in read(log, 0, 1 << 23)} == {NOW}


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_the_brokers_whatever_the_header_claims(
    storage: Storage, world: VirtualWorld, codec: int
) -> None:
    log = storage.log(message_timestamp_type="LogAppendTime")
    result = outcome(log, world, claiming(-1, [5, 9], codec=codec))
    assert (result.error_code, result.log_append_time_ms) == (0, NOW)
    assert read_batch_header(read(log, 0)[0][2]).max_timestamp == NOW


def test_retried_batch_is_known_again_though_its_header_was_corrected(storage: Storage) -> None:
    log = storage.log()
    fields: dict[str, Any] = {"producer_id": 4, "producer_epoch": 0, "sequence": 0}
    for _ in range(2):
        assert Client(log).send_now(timestamp=NOW, max_timestamp=-1, **fields).base_offset == 0
    assert log.next_offset == 1
    assert log.producers.producers[4].last_timestamp == NOW
