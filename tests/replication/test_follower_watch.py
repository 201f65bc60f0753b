"""What a leader looks at for a follower's fetch: partitions that something has happened to, and all now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from pybroker import rate_limited_log
from pybroker.handlers.context import Parked
from pybroker.replication.fetch_session import FetchPartition
from pybroker.replication.follower_fetch import FollowerFetch
from pybroker.replication.follower_watch import FOLLOWER_LOOK_MS
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition as AskedPartition
from pybroker_protocol.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from tests.replication.cluster import NAME, Cluster
from tests.storage.logs import TOPIC_ID

MakeCluster = Callable[..., Cluster]
MANY = 40


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that any leader has looked at for followers, in order."""
    seen: list[int] = []
    look = FollowerFetch._look

    def counted(self: FollowerFetch, fetched: FetchPartition, *args: Any) -> int:
        seen.append(fetched.index)
        return look(self, fetched, *args)

    monkeypatch.setattr(FollowerFetch, "_look", counted)
    return seen


@pytest.fixture
def resting(make_cluster: MakeCluster) -> Cluster:
    """A leader of many partitions whose two followers have all there is, and have been told so."""
    cluster = make_cluster(partitions=MANY, **{"replica.lag.time.max.ms": 30_000})
    for index in range(MANY):
        cluster.brokers[1].produce(index=index)
    cluster.pass_ms(10_000)
    return cluster


def test_partitions_at_rest_are_looked_at_now_and_then_alone(resting: Cluster, looks: list[int]) -> None:
    rounds = 4
    resting.pass_ms(rounds * FOLLOWER_LOOK_MS)
    assert 0 < len(looks) <= 2 * (rounds + 1) * MANY


def test_an_append_has_its_partition_looked_at_and_no_other(resting: Cluster, looks: list[int]) -> None:
    for _ in range(20):
        results = resting.brokers[1].produce(index=7)
        resting.pass_ms(100)
        assert results[0].error_code == 0
    assert looks.count(7) >= 2 * 20
    assert max(looks.count(other) for other in range(MANY) if other != 7) <= 2  # one look at all for each follower
    resting.pass_ms(1_100)
    assert [broker.offsets(7) for broker in resting.brokers.values()] == [(0, 21, 21)] * 3


def test_a_follower_at_rest_counts_as_caught_up(resting: Cluster) -> None:
    resting.pass_ms(120_000)
    resting.isolate(3)
    resting.brokers[1].produce(index=0)
    resting.pass_ms(20_000)
    assert resting.state(0).isr == (1, 2, 3)
    resting.pass_ms(30_000)
    assert resting.state(0).isr == (1, 2)


def test_where_the_log_begins_is_told_by_the_next_answer(resting: Cluster) -> None:
    assert resting.brokers[1].partition(3).delete_records(1) == 0
    resting.pass_ms(1_100)
    assert [broker.offsets(3)[0] for broker in resting.brokers.values()] == [1, 1, 1]


class Session:
    """A session of broker 2 that the test drives."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.session_id = 0
        self.epoch = 0

    def fetch(self, offsets: dict[int, int], *, wait_ms: int = 0, max_bytes: int = 1 << 20) -> Any:
        asked = [
            AskedPartition(partition=index, current_leader_epoch=0, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=2, replica_epoch=self.cluster.image.brokers[2].epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=NAME, topic_id=TOPIC_ID, partitions=asked)] if asked else [],
            forgotten_topics_data=[],
            rack_id="",
        )
        answer = self.cluster.brokers[1].serve(1, 17, codec.encode(request, 17))
        if isinstance(answer, Parked):
            if not answer.completed:
                return answer
            answer = answer.response
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer


def told(response: Any) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def served(response: Any) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions if len(data.records)]


@pytest.fixture
def quiet(make_cluster: MakeCluster) -> Cluster:
    """A leader with a record in each of three partitions, whose followers say nothing of themselves."""
    cluster = make_cluster(partitions=3)
    cluster.isolate(1)
    for index in range(3):
        cluster.brokers[1].produce(acks=1, index=index)
    return cluster


def test_a_small_answer_starves_no_partition(quiet: Cluster) -> None:
    session = Session(quiet)
    turns = [served(session.fetch({0: 0, 1: 0, 2: 0}, max_bytes=1))]
    turns += [served(session.fetch({}, max_bytes=1)) for _ in range(5)]
    assert turns == [[0], [1], [2]] * 2


def test_a_new_session_is_told_of_everything(quiet: Cluster) -> None:
    for offset in (0, 1):
        assert told(Session(quiet).fetch(dict.fromkeys(range(3), offset))) == [0, 1, 2]


def test_what_was_told_is_not_told_again(quiet: Cluster) -> None:
    session = Session(quiet)
    session.fetch({0: 1, 1: 1, 2: 1})
    assert told(session.fetch({})) == []
    quiet.brokers[1].produce(acks=1, index=1)
    assert told(session.fetch({})) == [1]


def test_a_new_session_ends_the_fetch_of_the_last_one_and_is_the_one_that_is_woken(quiet: Cluster) -> None:
    former, session = Session(quiet), Session(quiet)
    former.fetch({0: 1, 1: 1, 2: 1})
    waited_for = former.fetch({}, wait_ms=5_000)
    session.fetch({0: 1, 1: 1, 2: 1})
    assert waited_for.completed
    waiting = session.fetch({}, wait_ms=5_000)
    quiet.brokers[1].produce(acks=1, index=1)
    quiet.pass_ms(1)
    assert served(waiting.response) == [1]


def test_what_a_session_forgets_wakes_it_no_more(quiet: Cluster) -> None:
    session = Session(quiet)
    session.fetch({0: 1, 1: 1, 2: 1})
    known = quiet.brokers[1].replicas.sessions._sessions[session.session_id]
    known.forget([(TOPIC_ID, 1)])
    waiting = session.fetch({}, wait_ms=5_000)
    quiet.brokers[1].produce(acks=1, index=1)
    quiet.pass_ms(10)
    assert not waiting.completed
    quiet.brokers[1].produce(acks=1, index=2)
    quiet.pass_ms(10)
    assert served(waiting.response) == [2]


def test_nothing_is_kept_of_a_follower_that_has_no_replica_any_more_and_was_unregistered(quiet: Cluster) -> None:
    session, leader = Session(quiet), quiet.brokers[1]
    session.fetch({0: 1, 1: 1, 2: 1})
    waiting = session.fetch({}, wait_ms=5_000)
    followers = leader.partition().followers
    assert followers is not None
    assert list(followers.watched) == [2]
    for index in range(3):
        quiet.set(index, replicas=(1, 3), isr=(1,))
    quiet.tell([1])
    assert not followers.watched
    quiet.unregister(2)
    quiet.tell([1])
    assert waiting.completed
    assert not leader.replicas.follower_watches._by_broker


def test_what_a_leader_and_a_controller_answer_again_and_again_is_one_line_and_a_count(
    make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FollowerFetch, "_error", lambda *_: ErrorCode.KAFKA_STORAGE_ERROR)
    caplog.set_level(logging.INFO)
    cluster = make_cluster(partitions=3)
    cluster.refusal = ErrorCode.NETWORK_EXCEPTION
    cluster.pass_ms(3 * rate_limited_log.FOLDED_LOG_MS)
    for told in ("a partition cannot be fetched: KAFKA_STORAGE_ERROR", "stays: NETWORK_EXCEPTION"):
        lines = [line for line in caplog.messages if told in line and not line.startswith("…")]
        assert len(lines) == (2 if "fetched" in told else 1), "of each broker and partition there are many"
    assert any("more of in-sync replicas that stay" in line for line in caplog.messages)
    assert any("more of broker 1, which is followed" in line for line in caplog.messages)
