"""The handlers of the group APIs: every version's shape, and what they decide before a group is asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.apis import APIS
from pybroker.cluster.image.cluster_image import (
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    ImageDelta,
    PartitionImage,
)
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.config.broker import BrokerConfig
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol import messages
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_groups import DeleteGroupsRequest
from pybroker_protocol.messages.describe_groups import DescribeGroupsRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pybroker_protocol.messages.sync_group import SyncGroupRequest
from tests.authorizers import AnyOfType
from tests.coordinators.support import TOPIC_ID, Cluster, image, round_trip, subscription
from tests.handled import answer_of

ROWS = {
    api.handler: api
    for api in APIS
    if api.handler.endswith(("_group", "_groups", "heartbeat", "offset_commit", "offset_fetch", "offset_delete"))
    or api.handler == "find_coordinator"
}
OTHER_ID = b"\x07" * 16
PARKED = object()


class AutoTopicCreation:
    """Creates the internal topic when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[int], None]]] = []

    def ensure(self, name: str, done: Callable[[int], None]) -> None:
        self.asked.append((name, done))


class Desk(AnyOfType):
    """Handlers over a coordinator in memory: ``ask`` goes through the bytes of a version, both ways."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.auto_topics = AutoTopicCreation()
        self.denied: set[tuple[AclOperation, Resource]] = set()
        self.set_image(with_offsets_topic=True)

    def set_image(self, with_offsets_topic: bool) -> None:
        before = self.cluster.metadata.image
        broker = BrokerRegistration(1, 1, bytes(16), {"INSIDE": Endpoint("in", 1), "OUTSIDE": Endpoint("out", 2)})
        topics = dict(image().topics_by_name)
        if not with_offsets_topic:
            del topics[GROUPS.topic]
        after = ClusterImage(
            epoch=before.epoch + 1,
            brokers={1: broker},
            topics_by_name=topics,
            topics_by_id={topic.topic_id: topic for topic in topics.values()},
        )
        self.cluster.metadata.apply(after, ImageDelta(brokers_changed=(1,)))

    def context(self, version: int) -> RequestContext:
        ctx = RequestContext()
        ctx.services = SimpleNamespace(  # type: ignore[assignment]
            authorizer=self,
            config=BrokerConfig(),
            groups=self.cluster.groups,
            metadata=self.cluster.metadata,
            auto_topic_creation=self.auto_topics,
            suspected_brokers=None,
        )
        ctx.api_version = version
        ctx.client_id, ctx.client_host = "client", "/127.0.0.1"
        ctx.listener, ctx.principal = "OUTSIDE", "User:ANONYMOUS"
        return ctx

    def ask(self, handler: str, request: Any, version: int) -> Any:
        """The response as a client of the version reads it, PARKED while there is none."""
        handled = answer_of(
            import_module(f"pybroker.handlers.{handler}").handle(self.context(version), round_trip(request, version))
        )
        if isinstance(handled, Parked):
            if not handled.completed:
                return PARKED
            handled = handled.response
        assert isinstance(handled, messages.response_class(ROWS[handler].key))
        return round_trip(handled, version)

    def allows(self, _request: Any, operation: int, resource: int, _name: str, *, log_if_denied: bool = True) -> bool:
        return (operation, resource) not in self.denied


@pytest.fixture
def desk() -> Desk:
    return Desk()


def versions_of(handler: str) -> list[int]:
    lowest, highest = ROWS[handler].versions
    return list(range(lowest, highest + 1))


def join_request(version: int, group: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000 if version else -1,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )


def commit_request(version: int, *partitions: int, group: str = "g", topic: str = "t") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=(TOPIC_ID if topic == "t" else OTHER_ID) if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=10 + index)
                    for index in partitions
                ],
            )
        ],
    )


def fetch_request(version: int, topics: dict[str, list[int]] | None, group: str = "g") -> OffsetFetchRequest:
    if version < 8:
        single = None
        if topics is not None:
            single = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        return OffsetFetchRequest(group_id=group, topics=single, groups=[])
    batched = None
    if topics is not None:
        batched = [
            OffsetFetchRequestTopics(
                name=name,
                topic_id=(TOPIC_ID if name == "t" else OTHER_ID) if version >= 10 else bytes(16),
                partition_indexes=indexes,
            )
            for name, indexes in topics.items()
        ]
    return OffsetFetchRequest(group_id="", groups=[OffsetFetchRequestGroup(group_id=group, topics=batched)])


def fetched(response: Any, version: int) -> tuple[int, dict[tuple[Any, int], tuple[int, int]]]:
    """(the group's error, (topic, partition) -> (offset, error)); topics by id from 10 on."""
    group = response if version < 8 else response.groups[0]
    offsets = {
        (topic.topic_id if version >= 10 else topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.error_code,
        )
        for topic in group.topics
        for partition in topic.partitions
    }
    return group.error_code if version >= 2 else 0, offsets


# --- every version ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_member_joins_syncs_lives_and_leaves_in_every_version(desk: Desk, version: int) -> None:
    def at_most(handler: str) -> int:
        return min(version, ROWS[handler].versions[1])

    member_id = ""
    if version >= 4:
        member_id = desk.ask("join_group", join_request(version), version).member_id
    module = import_module("pybroker.handlers.join_group")
    parked = module.handle(desk.context(version), round_trip(join_request(version, member_id=member_id), version))
    desk.cluster.world.advance()
    joined = round_trip(parked.response, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    assert desk.ask("sync_group", sync, at_most("sync_group")).error_code == 0
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert desk.ask("heartbeat", beat, at_most("heartbeat")).error_code == 0
    leave_version = at_most("leave_group")
    leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id if leave_version < 3 else "", members=[])
    if leave_version >= 3:
        leave.members = [MemberIdentity(member_id=joined.member_id, group_instance_id=None)]
    assert desk.ask("leave_group", leave, leave_version).error_code == 0
    assert desk.cluster.state() == "Empty"


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_refused_join_has_a_shape_in_every_version(desk: Desk, version: int) -> None:
    response = desk.ask("join_group", join_request(version, group=""), version)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID
    assert response.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_error_of_the_only_leaving_member_is_that_of_the_response(desk: Desk, version: int) -> None:
    desk.cluster.stable_group()
    request = LeaveGroupRequest(group_id="g", member_id="stranger", members=[])
    assert desk.ask("leave_group", request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_has_to_name_the_protocol_from_version_5_on(desk: Desk) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    assert desk.ask("sync_group", request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.ask("sync_group", request, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_offsets_are_committed_in_every_version(desk: Desk, version: int) -> None:
    response = desk.ask("offset_commit", commit_request(version, 0, 3), version)
    (topic,) = response.topics
    assert (topic.topic_id if version >= 10 else topic.name) == (TOPIC_ID if version >= 10 else "t")
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 0), (3, 0)]
    assert desk.cluster.committed() == {("t", 0): 10, ("t", 3): 13}


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_offsets_are_fetched_in_every_version(desk: Desk, version: int) -> None:
    desk.cluster.commit(7)
    name = TOPIC_ID if version >= 10 else "t"
    response = desk.ask("offset_fetch", fetch_request(version, {"t": [0, 1]}), version)
    assert fetched(response, version) == (0, {(name, 0): (7, 0), (name, 1): (-1, 0)})
    if version >= 2:
        response = desk.ask("offset_fetch", fetch_request(version, None), version)
        assert fetched(response, version) == (0, {(name, 0): (7, 0)})


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_groups_are_listed_in_every_version(desk: Desk, version: int) -> None:
    desk.cluster.stable_group()
    response = desk.ask("list_groups", ListGroupsRequest(states_filter=[], types_filter=[]), version)
    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", versions_of("describe_groups"))
def test_groups_are_described_in_every_version(desk: Desk, version: int) -> None:
    desk.cluster.stable_group()
    request = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=version >= 3)
    group, nobody = desk.ask("describe_groups", request, version).groups
    assert (group.group_state, len(group.members)) == ("Stable", 1)
    assert group.authorized_operations == (3_400 if version >= 3 else -(2**31))
    assert nobody.group_state == "Dead"
    assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions_of("delete_groups"))
def test_groups_are_deleted_in_every_version_and_once_each(desk: Desk, version: int) -> None:
    desk.cluster.commit(1)
    request = DeleteGroupsRequest(groups_names=["g", "nobody", "g"])
    results = desk.ask("delete_groups", request, version).results
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert [(result.group_id, result.error_code) for result in results] == [("g", 0), ("nobody", not_found)]


# --- topics and partitions that are not there ------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_commit_to_what_does_not_exist_is_refused_one_by_one(desk: Desk, version: int) -> None:
    request = commit_request(version, 0, 10, -1)
    request.topics = [*request.topics, *commit_request(version, 0, topic="missing").topics]
    response = desk.ask("offset_commit", request, version)
    known, missing = response.topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = {partition.partition_index: partition.error_code for partition in known.partitions}
    assert codes == {0: 0, 10: unknown, -1: unknown}
    assert missing.partitions[0].error_code == (ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown)
    assert desk.cluster.committed() == {("t", 0): 10}


def test_commit_of_nothing_is_answered_with_nothing(desk: Desk) -> None:
    request = commit_request(9)
    assert [topic.partitions for topic in desk.ask("offset_commit", request, 9).topics] == []
    request.topics = []
    assert desk.ask("offset_commit", request, 9).topics == []


def test_fetch_of_an_unknown_topic_is_unknown_by_id_and_nothing_by_name(desk: Desk) -> None:
    response = desk.ask("offset_fetch", fetch_request(9, {"missing": [0]}), 9)
    assert fetched(response, 9) == (0, {("missing", 0): (-1, 0)})
    response = desk.ask("offset_fetch", fetch_request(10, {"missing": [0]}), 10)
    assert fetched(response, 10) == (0, {(OTHER_ID, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID)})


def test_offsets_of_topics_without_an_id_are_not_shown_by_id(desk: Desk) -> None:
    desk.cluster.commit(1, topic="gone")
    desk.cluster.commit(2, topic="t")
    response = desk.ask("offset_fetch", fetch_request(10, None), 10)
    assert fetched(response, 10) == (0, {(TOPIC_ID, 0): (2, 0)})
    response = desk.ask("offset_fetch", fetch_request(9, None), 9)
    assert fetched(response, 9) == (0, {("gone", 0): (1, 0), ("t", 0): (2, 0)})


def test_several_groups_are_fetched_at_once(desk: Desk) -> None:
    desk.cluster.commit(1, group="a")
    desk.cluster.commit(2, group="b")
    groups = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("b", "a", "nobody")]
    response = desk.ask("offset_fetch", OffsetFetchRequest(group_id="", groups=groups), 8)
    offsets = [[t.partitions[0].committed_offset for t in group.topics] for group in response.groups]
    assert ([group.group_id for group in response.groups], offsets) == (["b", "a", "nobody"], [[2], [1], []])


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_fetch_from_the_wrong_broker_fails_in_every_version(desk: Desk, version: int) -> None:
    desk.cluster.groups.on_leadership(set(), {0})
    error, offsets = fetched(desk.ask("offset_fetch", fetch_request(version, {"t": [0]}), version), version)
    if version < 2:
        assert offsets == {("t", 0): (-1, ErrorCode.NOT_COORDINATOR)}
    else:
        assert (error, offsets) == (ErrorCode.NOT_COORDINATOR, {})


def delete_request(topics: dict[str, list[int]], group: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    )


def test_offsets_are_deleted_and_what_does_not_exist_is_refused(desk: Desk) -> None:
    desk.cluster.commit(1, partition=0)
    desk.cluster.commit(1, partition=1)
    response = desk.ask("offset_delete", delete_request({"t": [0, 2, 77], "missing": [0]}), 0)
    codes = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): 0, ("t", 2): 0, ("t", 77): unknown, ("missing", 0): unknown}
    assert desk.cluster.committed() == {("t", 1): 1}


def test_offsets_of_no_group_are_not_deleted(desk: Desk) -> None:
    response = desk.ask("offset_delete", delete_request({"t": [0], "missing": [0]}), 0)
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


# --- FindCoordinator -------------------------------------------------------------------------------------------------


def find_request(version: int, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=[])
    return FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=list(keys))


@pytest.mark.parametrize("version", versions_of("find_coordinator"))
def test_coordinator_is_found_by_the_listener_of_the_request(desk: Desk, version: int) -> None:
    response = desk.ask("find_coordinator", find_request(version, "g"), version)
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "out", 2)


def test_several_coordinators_are_found_in_the_order_asked(desk: Desk) -> None:
    response = desk.ask("find_coordinator", find_request(4, "b", "a"), 4)
    assert [found.key for found in response.coordinators] == ["b", "a"]


@pytest.mark.parametrize("version", versions_of("find_coordinator"))
def test_first_request_creates_the_topic_and_waits_for_it(desk: Desk, version: int) -> None:
    desk.set_image(with_offsets_topic=False)
    handler = import_module("pybroker.handlers.find_coordinator")
    parked = answer_of(handler.handle(desk.context(version), find_request(version, "g")))
    ((name, done),) = desk.auto_topics.asked
    assert name == GROUPS.topic
    assert not parked.completed
    desk.set_image(with_offsets_topic=True)
    done(0)
    response = round_trip(parked.response, version)
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id) == (0, 1)


def test_topic_that_cannot_be_created_leaves_no_coordinator(desk: Desk) -> None:
    desk.set_image(with_offsets_topic=False)
    handler = import_module("pybroker.handlers.find_coordinator")
    parked = answer_of(handler.handle(desk.context(3), find_request(3, "g")))
    desk.auto_topics.asked[0][1](ErrorCode.INVALID_REPLICATION_FACTOR)
    assert parked.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_partition_without_a_leader_has_no_coordinator(desk: Desk) -> None:
    before = desk.cluster.metadata.image
    topic = before.topics_by_name[GROUPS.topic]
    headless = topic._replace(partitions=(PartitionImage((1,), (), -1),))
    topics = {**before.topics_by_name, GROUPS.topic: headless}
    desk.cluster.metadata.apply(
        ClusterImage(epoch=before.epoch + 1, brokers=before.brokers, topics_by_name=topics), ImageDelta()
    )
    response = desk.ask("find_coordinator", find_request(4, "g"), 4)
    found = response.coordinators[0]
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)


@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_coordinators_of_other_kinds_are_invalid(desk: Desk, key_type: int) -> None:
    response = desk.ask("find_coordinator", find_request(6, "g:id:0", key_type=key_type), 6)
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert desk.auto_topics.asked == []


# --- what the client may not do --------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, AclOperation]] = {
    "join_group": (join_request(9), AclOperation.READ),
    "sync_group": (
        SyncGroupRequest(
            group_id="g", generation_id=1, member_id="m", protocol_type="a", protocol_name="b", assignments=[]
        ),
        AclOperation.READ,
    ),
    "heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), AclOperation.READ),
    "leave_group": (LeaveGroupRequest(group_id="g", member_id="", members=[]), AclOperation.READ),
    "offset_delete": (delete_request({"t": [0]}), AclOperation.DELETE),
}


@pytest.mark.parametrize("handler", list(REFUSED))
def test_group_that_the_client_may_not_use_is_refused(desk: Desk, handler: str) -> None:
    request, operation = REFUSED[handler]
    desk.denied = {(operation, Resource.GROUP)}
    response = desk.ask(handler, request, ROWS[handler].versions[1])
    assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_groups_that_the_client_may_not_see_are_refused_one_by_one(desk: Desk) -> None:
    told = ErrorCode.GROUP_AUTHORIZATION_FAILED
    desk.cluster.commit(1)
    desk.denied = {
        (operation, Resource.GROUP) for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)
    }
    committed = desk.ask("offset_commit", commit_request(9, 0), 9)
    assert committed.topics[0].partitions[0].error_code == told
    assert fetched(desk.ask("offset_fetch", fetch_request(9, {"t": [0]}), 9), 9) == (told, {})
    assert desk.ask("describe_groups", DescribeGroupsRequest(groups=["g"]), 6).groups[0].error_code == told
    assert desk.ask("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == told
    assert desk.ask("find_coordinator", find_request(6, "g"), 6).coordinators[0].error_code == told
    desk.denied.add((AclOperation.DESCRIBE, Resource.CLUSTER))
    assert desk.ask("list_groups", ListGroupsRequest(states_filter=[], types_filter=[]), 5).groups == []


def test_topics_that_the_client_may_not_see_are_refused_one_by_one(desk: Desk) -> None:
    told = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    desk.cluster.commit(1)
    desk.denied = {(AclOperation.READ, Resource.TOPIC), (AclOperation.DESCRIBE, Resource.TOPIC)}
    committed = desk.ask("offset_commit", commit_request(9, 0), 9)
    assert committed.topics[0].partitions[0].error_code == told
    assert fetched(desk.ask("offset_fetch", fetch_request(9, {"t": [0]}), 9), 9) == (0, {("t", 0): (-1, told)})
    assert fetched(desk.ask("offset_fetch", fetch_request(9, None), 9), 9) == (0, {})
    deleted = desk.ask("offset_delete", delete_request({"t": [0]}), 0)
    assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (0, told)
