"""What a timer of a coordinator could not write is written when there is room again."""

from __future__ import annotations

from pybroker.coordinators.shard import TIMER_RETRY_MS
from pybroker_protocol.errors import ErrorCode
from tests.coordinators.consumer_support import SESSION_MS, ConsumerCluster


def test_a_dead_member_whose_end_could_not_be_written_is_fenced_later() -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(t=2)
    assert cluster.enter("m", "t").error == 0
    cluster.world.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.world.advance(SESSION_MS + 3 * TIMER_RETRY_MS)
    assert set(cluster.group().members) == {"m"}
    cluster.world.append_error = 0
    cluster.world.advance(TIMER_RETRY_MS)
    assert not cluster.group().members
