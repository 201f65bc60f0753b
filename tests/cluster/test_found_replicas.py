"""A broker that finds replicas in other log dirs than the metadata says tells the controller (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pybroker.cluster.controller.controller import Controller
from pybroker.cluster.decisions.broker_changes import assign_replicas
from pybroker.cluster.decisions.operations import Assignments, FoundReplicas
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from tests.steps import end_of

from .members import Members, log_dir

HERE, THERE, LOST = log_dir(1), log_dir(1, 1), log_dir(1, 2)
TOPIC_ID = b"t" * 16


def assigned(state: PartitionImage, found: FoundReplicas) -> tuple[dict[tuple[bytes, int], int], PartitionImage]:
    """What is told of a broker with two log dirs that work, and the partition afterwards."""
    builder = ImageBuilder(ClusterImage())
    builder.put_broker(BrokerRegistration(1, 0, bytes(16), {}, log_dirs=(HERE, THERE)))
    builder.put_broker(BrokerRegistration(2, 0, bytes(16), {}, log_dirs=(log_dir(2),)))
    builder.put_topic(TopicImage("t", TOPIC_ID, (state,)))
    errors = end_of(assign_replicas(builder, 1, found))
    return errors, builder.view().topics_by_name["t"].partitions[0]


def partition(isr: tuple[int, ...], leader: int, directory: bytes) -> PartitionImage:
    return PartitionImage((1, 2), isr, leader, 5, 7, (directory, log_dir(2)))


def test_a_replica_lies_where_it_was_found() -> None:
    errors, after = assigned(partition((1, 2), 1, HERE), {(TOPIC_ID, 0): THERE})
    assert not errors
    assert after.directories == (THERE, log_dir(2))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (1, (1, 2), 5, 8)


def test_what_is_known_changes_nothing() -> None:
    before = partition((1, 2), 1, HERE)
    assert assigned(before, {(TOPIC_ID, 0): HERE}) == ({}, before)


def test_the_last_replica_in_sync_leads_again_once_its_log_dir_is_found() -> None:
    _, after = assigned(partition((1,), NO_LEADER, LOST), {(TOPIC_ID, 0): THERE})
    assert (after.leader, after.directories[0]) == (1, THERE)


def test_a_replica_in_a_log_dir_that_does_not_work_leads_nothing() -> None:
    _, after = assigned(partition((1, 2), 1, HERE), {(TOPIC_ID, 0): LOST})
    assert (after.leader, after.isr, after.directories[0]) == (2, (2,), LOST)


def test_replicas_of_others_are_refused_each_for_itself() -> None:
    others = PartitionImage((2,), (2,), 2, directories=(log_dir(2),))
    unknown = b"u" * 16
    found = {(TOPIC_ID, 0): THERE, (TOPIC_ID, 1): THERE, (TOPIC_ID, -1): THERE, (unknown, 0): THERE}
    assert assigned(others, found) == (
        {
            (TOPIC_ID, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (TOPIC_ID, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (TOPIC_ID, -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        },
        others,
    )


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    yield cluster
    cluster.close()


def the_partition(members: Members, seen_by: int) -> PartitionImage:
    found = members.image(seen_by).partition("t", 0)
    assert found is not None
    return found


def test_a_broker_starts_when_its_image_has_each_replica_where_it_was_found(members: Members) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = 3 - active
    members.create_topic("t", (other, active))
    topic_id = members.image(active).topics_by_name["t"].topic_id
    members.kill(other)
    elsewhere = log_dir(other, 1)
    ended = members.join(other, found={(topic_id, 0): elsewhere, (b"gone" * 4, 0): elsewhere})
    published: list[bytes] = []
    members.caches[other].subscribe(
        lambda image, _: published.append(image.topics_by_name["t"].partitions[0].directory(other))
    )
    members.settle()
    assert ended == [None]
    assert set(published) == {elsewhere}
    assert the_partition(members, active).directory(other) == elsewhere


def test_the_active_controllers_own_broker_does_so_too(members: Members) -> None:
    members.start(1)
    members.create_topic("t", (1,))
    topic_id = members.image(1).topics_by_name["t"].topic_id
    members.kill(1)
    ended = members.join(1, found={(topic_id, 0): THERE})
    members.settle()
    assert ended == [None]
    state = the_partition(members, 1)
    assert (state.directory(1), state.leader) == (THERE, 1)


def joined_with_its_replica_elsewhere(members: Members) -> tuple[int, list[str | None], Controller]:
    """A broker that is not the controller is killed, and joins again with its replica in another log dir: its id, how
    its start ends, and the controller."""
    members.start(1, 2)
    (active,) = members.active()
    other = 3 - active
    members.create_topic("t", (other, active))
    topic_id = members.image(active).topics_by_name["t"].topic_id
    members.kill(other)
    ended = members.join(other, found={(topic_id, 0): log_dir(other, 1)})
    controller = members.by_id[active].controller
    return other, ended, controller


def test_a_controller_that_cannot_be_reached_is_told_again(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    other, ended, controller = joined_with_its_replica_elsewhere(members)
    told: list[int] = []
    assign = controller.assign_replicas

    def fail_once(broker_id: int, epoch: int, found: FoundReplicas, done: Callable[[Assignments], None]) -> None:
        told.append(broker_id)
        if len(told) == 1:
            members.world.timers.call_soon(done, Assignments({}, ErrorCode.REQUEST_TIMED_OUT))
        else:
            assign(broker_id, epoch, found, done)

    monkeypatch.setattr(controller, "assign_replicas", fail_once)
    members.settle()
    assert told == [other, other]
    assert ended == [None]


def test_a_broker_that_loses_its_session_while_it_tells_of_its_replicas_tells_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, ended, controller = joined_with_its_replica_elsewhere(members)
    assign = controller.assign_replicas
    told: list[int] = []

    def lose_session_once(
        broker_id: int, epoch: int, found: FoundReplicas, done: Callable[[Assignments], None]
    ) -> None:
        told.append(broker_id)
        if len(told) == 1:
            members.stores[other].expire()
            members.world.timers.call_later(1_000, done, Assignments({}, ErrorCode.STALE_BROKER_EPOCH))
        else:
            assign(broker_id, epoch, found, done)

    monkeypatch.setattr(controller, "assign_replicas", lose_session_once)
    members.settle()
    assert told == [other, other]
    assert ended == [None]


def test_a_broker_whose_replicas_are_refused_gives_up_with_the_reason_and_tells_of_it_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members({"initial.broker.registration.timeout.ms": "20000"}).start(1, 2)
    (active,) = members.active()
    other = 3 - active
    members.create_topic("t", (other, active))
    topic_id = members.image(active).topics_by_name["t"].topic_id
    members.kill(other)
    ended = members.join(other, found={(topic_id, 0): log_dir(other, 1)})

    def refuse(broker_id: int, epoch: int, found: FoundReplicas, done: Callable[[Assignments], None]) -> None:
        members.world.timers.call_soon(done, Assignments({}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    monkeypatch.setattr(members.by_id[active].controller, "assign_replicas", refuse)
    members.settle(19_000)
    assert ended == []
    (told,) = {line for line in caplog.messages if "has not joined its cluster yet" in line}
    assert "CLUSTER_AUTHORIZATION_FAILED" in told
    members.settle(2_000)
    (why,) = ended
    assert why is not None
    assert "within 20000 ms" in why
    assert "CLUSTER_AUTHORIZATION_FAILED" in why
    members.close()


def ask(members: Members, broker_id: int, epoch: int, directory: bytes, topic_id: bytes) -> Any:
    partitions = [AssignReplicasToDirsRequestPartitionData(partition_index=index) for index in (0, 1)]
    topic = AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=partitions)
    told = AssignReplicasToDirsRequestDirectoryData(id=directory, topics=[topic])
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=[told])
    return members.ask_controller(request, 0)


def test_each_replica_is_answered_for_itself_and_another_life_of_the_broker_not_at_all(members: Members) -> None:
    members.start(1)
    members.create_topic("t", (1,))
    image = members.image(1)
    topic_id, epoch = image.topics_by_name["t"].topic_id, image.brokers[1].epoch
    response = ask(members, 1, epoch, HERE, topic_id)
    ((topic,),) = [directory.topics for directory in response.directories]
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, 0),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert ask(members, 1, epoch + 1, HERE, topic_id).error_code == ErrorCode.STALE_BROKER_EPOCH
    refused: Assignments = members.ask(lambda done: members.by_id[1].controller.assign_replicas(7, 0, {}, done))
    assert refused == Assignments({}, ErrorCode.STALE_BROKER_EPOCH)
