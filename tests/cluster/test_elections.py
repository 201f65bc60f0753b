"""Electing leaders on request: who is elected, and what is said where nobody is."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.cluster.decisions.elections import elect_leaders, elect_uncleanly
from pybroker.cluster.decisions.operations import PREFERRED, UNCLEAN, NewTopic
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.config.resources import TOPIC, UNCLEAN_LEADER_ELECTION
from pybroker.handlers import elect_leaders as handler
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .fakes import FakeCluster

DIRECTORY, GONE = b"a" * 16, b"b" * 16


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **more: Any) -> PartitionImage:
    return PartitionImage(replicas, isr, leader, 5, 7, (DIRECTORY,) * len(replicas), **more)


def elected(partition: PartitionImage, election_type: int, *live: int) -> tuple[int, PartitionImage]:
    """The error code, and the partition afterwards, in a cluster of which some brokers are live."""
    builder = ImageBuilder(ClusterImage())
    builder.put_topic(TopicImage("t", b"t" * 16, (partition,)))
    for broker in (1, 2, 3):
        builder.put_broker(BrokerRegistration(broker, 0, bytes(16), {}, None, broker not in live, False, (DIRECTORY,)))
    (((_, (election,)),), code, _) = elect_leaders(builder, election_type, [("t", [0])])
    assert code == 0
    return election.error_code, builder.view().topics_by_name["t"].partitions[0]


@pytest.mark.parametrize(
    ("before", "election_type", "live", "code", "leader"),
    [
        (partition((1, 2), (1, 2), 1), PREFERRED, (1, 2), ErrorCode.ELECTION_NOT_NEEDED, 1),
        (partition((1, 2), (1, 2), 2), PREFERRED, (1, 2), ErrorCode.NONE, 1),
        (partition((1, 2), (1, 2), 2), PREFERRED, (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (partition((1, 2), (2,), 2), PREFERRED, (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (partition((1, 2), (2,), NO_LEADER), PREFERRED, (1,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, NO_LEADER),
        (partition((1, 2), (2,), NO_LEADER), PREFERRED, (1, 2), ErrorCode.NONE, 2),
        (partition((1, 2), (), NO_LEADER, elr=(2,)), PREFERRED, (1, 2), ErrorCode.NONE, 2),
        (partition((1, 2), (), NO_LEADER, last_known_elr=(2,)), PREFERRED, (1, 2), ErrorCode.NONE, 2),
        (partition((1, 2), (1, 2), 2), UNCLEAN, (1, 2), ErrorCode.ELECTION_NOT_NEEDED, 2),
        (partition((1, 2), (), NO_LEADER, last_known_elr=(2,)), UNCLEAN, (1, 2), ErrorCode.NONE, 2),
        (partition((1, 2, 3), (3,), NO_LEADER), UNCLEAN, (1, 2, 3), ErrorCode.NONE, 3),
        (partition((1, 2, 3), (3,), NO_LEADER), UNCLEAN, (2,), ErrorCode.NONE, 2),
        (partition((1, 2), (1,), NO_LEADER), UNCLEAN, (3,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER),
    ],
)
def test_who_is_elected(
    before: PartitionImage, election_type: int, live: tuple[int, ...], code: ErrorCode, leader: int
) -> None:
    given, after = elected(before, election_type, *live)
    assert (given, after.leader) == (code, leader)
    if code:
        assert after is before
    else:
        assert (after.leader_epoch, after.partition_epoch) == (6, 8)
        assert leader in after.isr
        assert leader not in after.elr


def test_an_unclean_leader_is_the_only_one_in_sync_and_has_to_recover() -> None:
    _, after = elected(partition((1, 2), (1,), NO_LEADER), UNCLEAN, 2)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)


@pytest.mark.parametrize("state", [RECOVERED, RECOVERING])
@pytest.mark.parametrize(
    "before", [partition((1, 2), (2,), NO_LEADER), partition((1, 2), (), NO_LEADER, elr=(2,))], ids=["isr", "elr"]
)
def test_a_clean_election_leaves_what_a_leader_has_to_recover_from(before: PartitionImage, state: int) -> None:
    _, after = elected(before._replace(leader_recovery_state=state), UNCLEAN, 1, 2)
    assert (after.leader, after.leader_recovery_state) == (2, state)


def test_who_was_eligible_is_so_no_more_beside_an_unclean_leader() -> None:
    """It lacks what that one takes from now on."""
    _, after = elected(partition((1, 2), (), NO_LEADER, elr=(1,)), UNCLEAN, 2)
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())


def test_whose_log_dir_is_gone_leads_an_empty_log_in_another_one_where_an_unclean_election_is_asked_for() -> None:
    lost = partition((1, 2), (), NO_LEADER, elr=(2,))._replace(directories=(GONE, GONE))
    code, after = elected(lost, UNCLEAN, 2)
    assert (code, after.leader, after.isr, after.elr) == (ErrorCode.NONE, 2, (2,), ())
    assert (after.directories, after.leader_recovery_state) == ((GONE, DIRECTORY), RECOVERING)
    assert after.leader_epoch == 6


@pytest.mark.parametrize(
    ("election_type", "directories", "live", "code"),
    [
        (PREFERRED, (GONE, GONE), (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        # The other one may come back with what it has.
        (UNCLEAN, (GONE, DIRECTORY), (1,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (UNCLEAN, (GONE, GONE), (3,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_nobody_begins_anew_while_anybody_may_have_something(
    election_type: int, directories: tuple[bytes, ...], live: tuple[int, ...], code: ErrorCode
) -> None:
    before = partition((1, 2), (1,), NO_LEADER)._replace(directories=directories)
    assert elected(before, election_type, *live) == (code, before)


def test_elections_that_nobody_asked_for_begin_no_empty_log() -> None:
    lost = partition((1,), (1,), NO_LEADER)._replace(directories=(GONE,))
    builder = ImageBuilder(ClusterImage(configs={(TOPIC, "t"): {UNCLEAN_LEADER_ELECTION: "true"}}))
    builder.put_topic(TopicImage("t", b"t" * 16, (lost,)))
    builder.put_broker(BrokerRegistration(1, 0, bytes(16), {}, None, False, False, (DIRECTORY,)))
    assert not list(filter(None, elect_uncleanly(builder, False)))
    assert builder.view().topics_by_name["t"].partitions == (lost,)


def ask(cluster: FakeCluster, version: int, *topics: tuple[str, list[int]], kind: int = PREFERRED) -> Any:
    """The reply, after it went over the wire; without topics, to a request for all partitions."""
    wanted = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted or None)
    response = cluster.handle(handler, request, version)
    return codec.decode(type(response), version, codec.encode(response, version))


def rows(reply: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (result.topic, [(row.partition_id, row.error_code) for row in result.partition_result])
        for result in reply.replica_election_results
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_partition_is_answered_for_itself(cluster: FakeCluster, version: int) -> None:
    cluster.ask(cluster.controller.create_topics, [NewTopic("t", 2, 1)])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reply = ask(cluster, version, ("t", [1, 2, -1]), ("u", [0]))
    assert rows(reply) == [
        ("t", [(1, ErrorCode.ELECTION_NOT_NEEDED), (2, unknown), (-1, unknown)]),
        ("u", [(0, unknown)]),
    ]
    assert rows(ask(cluster, version)) == [("t", [])]


def test_an_unknown_type_is_an_error_of_the_whole_and_of_each(cluster: FakeCluster) -> None:
    cluster.ask(cluster.controller.create_topics, [NewTopic("t", 1, 1)])
    reply = ask(cluster, 2, ("t", [0]), kind=2)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert rows(reply) == [("t", [(0, ErrorCode.INVALID_REQUEST)])]
