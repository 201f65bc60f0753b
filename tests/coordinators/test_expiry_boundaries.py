"""What ends by the clock in the coordinators, at its boundary and on both sides of it."""

from __future__ import annotations

import pytest
from harness.virtual_world import START_MS

from pybroker_protocol.errors import ErrorCode
from tests.coordinators import transaction_support
from tests.coordinators.support import Cluster

MINUTE_MS = 60_000
LEFT = {("t", 0): 1}


@pytest.mark.parametrize(("look_ms", "left"), [(MINUTE_MS - 1, LEFT), (MINUTE_MS, {}), (MINUTE_MS + 1, {})])
def test_offset_expires_at_the_very_millisecond_of_its_retention(
    look_ms: int, left: dict[tuple[str, int], int]
) -> None:
    cluster = Cluster(offsets_retention_minutes=1, offsets_retention_check_interval_ms=look_ms)
    cluster.commit(1)
    cluster.world.advance(look_ms)
    assert cluster.committed() == left


@pytest.mark.parametrize(("retention_ms", "left"), [(4_999, {}), (5_000, {}), (5_001, LEFT)])
def test_offset_expires_at_the_very_millisecond_that_its_client_asked_for(
    retention_ms: int, left: dict[tuple[str, int], int]
) -> None:
    cluster = Cluster(offsets_retention_check_interval_ms=5_000)
    cluster.commit(1, retention_ms=retention_ms, version=4)
    cluster.world.advance(5_000)
    assert cluster.committed() == left


@pytest.mark.parametrize(("late_ms", "left"), [(-1, {}), (0, {}), (1, LEFT)])
def test_offset_of_a_group_expires_a_retention_after_the_last_member_left(
    late_ms: int, left: dict[tuple[str, int], int]
) -> None:
    look_ms = 10_000
    cluster = Cluster(offsets_retention_minutes=1, offsets_retention_check_interval_ms=look_ms)
    (member,), generation = cluster.stable_group(session_ms=1_000_000)
    cluster.commit(1, member, generation)
    cluster.world.advance(2 * look_ms - (cluster.world.clock.now_ms() - START_MS) % look_ms + late_ms)
    cluster.leave((member, None))
    cluster.world.advance(MINUTE_MS - late_ms)
    assert cluster.committed() == left


@pytest.mark.parametrize(("silent_ms", "error"), [(9_999, 0), (10_000, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_session_ends_at_its_very_millisecond(silent_ms: int, error: int) -> None:
    cluster = Cluster()
    (member,), generation = cluster.stable_group(session_ms=10_000)
    cluster.heartbeat(member, generation)
    cluster.world.advance(silent_ms)
    assert cluster.heartbeat(member, generation).error == error


@pytest.mark.parametrize(("timeout_ms", "state"), [(9_999, "CompleteAbort"), (10_000, "Ongoing"), (10_001, "Ongoing")])
def test_transaction_is_aborted_once_it_is_older_than_its_timeout(timeout_ms: int, state: str) -> None:
    cluster = transaction_support.Cluster()
    producer = cluster.producer(timeout_ms=timeout_ms)
    cluster.add_for(producer, transaction_support.T0)
    cluster.world.advance(10_000)
    assert cluster.state() == state


@pytest.mark.parametrize(("expiration_ms", "left"), [(7_199_999, set()), (7_200_000, set()), (7_200_001, {"a"})])
def test_transactional_id_is_forgotten_once_it_is_unused_for_its_expiration(expiration_ms: int, left: set[str]) -> None:
    cluster = transaction_support.Cluster(transactional_id_expiration_ms=expiration_ms)
    cluster.producer("a")
    cluster.world.advance(7_200_000)
    assert cluster.listed() == left
