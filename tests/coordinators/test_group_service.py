"""The service around the shards: which partition, what is listed and described, and ids."""

from __future__ import annotations

import re

import pytest

from pybroker.coordinators.partitioning import java_string_hash, partition_for
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from tests.coordinators.support import Cluster, Reply, subscription

# String.hashCode as Java computes it.
JAVA_HASHES = {
    "": 0,
    "g1": 3242,
    "test-group": 627_841_412,
    "polygenelubricants": -(2**31),
    "ünïcode-grüppe": 1_800_023_767,
    "\U0001f600": 1_772_899,
}


@pytest.mark.parametrize(("text", "expected"), JAVA_HASHES.items())
def test_hash_of_a_group_id_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partition_of_a_group_is_kafkas() -> None:
    assert partition_for("g1", 50) == 42
    assert partition_for("ünïcode-grüppe", 50) == 17
    # Java has no positive counterpart of the smallest number; Kafka takes 0 for it.
    assert partition_for("polygenelubricants", 50) == 0


def test_groups_are_spread_over_the_partitions() -> None:
    cluster = Cluster(partitions=5)
    for number in range(50):
        assert cluster.commit_error(number, group=f"g{number}") == 0
    assert sorted(cluster.world.partitions.logs) == [0, 1, 2, 3, 4]
    assert all(cluster.committed(f"g{number}") == {("t", 0): number} for number in range(50))


def test_member_id_is_the_clients_id_and_a_random_uuid() -> None:
    member_id = Cluster().join().response.member_id
    assert re.fullmatch(r"client-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", member_id)


def listed(cluster: Cluster, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    reply = Reply()
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    cluster.groups.list_groups(request, reply.done)
    assert reply.error == 0
    return {
        group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in reply.response.groups
    }


def test_groups_are_listed_over_several_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(partitions=3)
    names = {f"g{number}" for number in range(9)}
    for name in names:
        assert cluster.commit_error(1, group=name) == 0
    monkeypatch.setattr("pybroker.coordinators.runtime.LISTING_SLICE_MS", 0)
    reply = Reply()
    cluster.groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[]), reply.done)
    turns = 0
    while reply.parked:
        turns += 1
        cluster.world.turn()
    assert turns == 2, "one partition in each"
    assert {group.group_id for group in reply.response.groups} == names


def test_groups_of_all_partitions_are_listed() -> None:
    cluster = Cluster(partitions=5)
    for number in range(20):
        cluster.commit(number, group=f"g{number}")
    assert set(listed(cluster)) == {f"g{number}" for number in range(20)}


def test_broker_without_partitions_lists_nothing() -> None:
    cluster = Cluster()
    cluster.groups.on_leadership(set(), {0})
    assert listed(cluster) == {}


def test_groups_are_filtered_by_state_and_type_whatever_the_case() -> None:
    cluster = Cluster()
    cluster.commit(1, group="simple")
    cluster.stable_group()
    stable, simple = {"g": ("consumer", "Stable", "classic")}, {"simple": ("", "Empty", "classic")}
    assert listed(cluster) == stable | simple
    assert listed(cluster, states=(" STABLE",)) == stable
    assert listed(cluster, states=("empty", "Dead")) == simple
    assert listed(cluster, states=("no such state",)) == {}
    assert listed(cluster, types=("Classic",)) == stable | simple
    assert listed(cluster, types=("consumer",)) == {}
    assert listed(cluster, states=("Stable",), types=("share",)) == {}


def test_stable_group_is_described_with_metadata_and_assignments() -> None:
    cluster = Cluster()
    (member_id,), _ = cluster.stable_group()
    group = cluster.describe()
    (member,) = group.members
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), member_id.encode())


def test_group_in_a_rebalance_is_described_without_metadata_and_with_the_assignments_it_had() -> None:
    cluster = Cluster()
    (leader, follower), _ = cluster.stable_group(2)
    cluster.join(leader)
    group = cluster.describe()
    assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 2)
    assert [(member.member_metadata, member.member_assignment) for member in group.members] == [
        (b"", leader.encode()),
        (b"", follower.encode()),
    ]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_group_that_does_not_exist_is_described_as_dead(version: int, error: int) -> None:
    group = Cluster().describe("nobody", version)
    assert (group.group_id, group.group_state, group.error_code) == ("nobody", "Dead", error)


def test_groups_are_described_and_deleted_in_the_order_asked() -> None:
    cluster = Cluster(partitions=5)
    ids = [f"g{number}" for number in range(10)]
    for group_id in ids[::2]:
        cluster.commit(1, group=group_id)
    described, deleted = Reply(), Reply()
    cluster.groups.describe_groups(ids, 5, described.done)
    cluster.groups.delete_groups(ids, deleted.done)
    assert [group.group_id for group in described.response] == ids
    assert [result.group_id for result in deleted.response] == ids
    assert [result.error_code for result in deleted.response] == [0, ErrorCode.GROUP_ID_NOT_FOUND] * 5


def test_nothing_asked_is_nothing_answered() -> None:
    cluster = Cluster()
    described, deleted = Reply(), Reply()
    cluster.groups.describe_groups([], 5, described.done)
    cluster.groups.delete_groups([], deleted.done)
    assert (described.response, deleted.response) == ([], [])
