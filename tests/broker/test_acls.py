"""ACLs of a whole broker: created, described, deleted, kept over a restart, and obeyed.

Everybody is User:ANONYMOUS here; who somebody is, is the address they come from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until

from pybroker.cluster.decisions.acl_changes import create_acls, delete_acls
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.security.acl_bindings import CLUSTER_NAME, Acl, AclFilter, AclOperation, PatternType, Permission, Resource
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pybroker_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pybroker_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pybroker_protocol.messages.describe_acls import DescribeAclsRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.steps import end_of

ADMIN, GUEST = "127.0.0.1", "127.0.0.2"
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
ANYBODY = "User:*"
CREATED = 0, ""
ANY_FILTER = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)


def acl(
    name: str,
    operation: AclOperation,
    *,
    of: Resource = Resource.TOPIC,
    host: str = GUEST,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(of, name, pattern, ANYBODY, host, operation, permission)


def creation(each: Acl) -> AclCreation:
    return AclCreation(
        resource_type=each.resource_type,
        resource_name=each.resource_name,
        resource_pattern_type=each.pattern_type,
        principal=each.principal,
        host=each.host,
        operation=each.operation,
        permission_type=each.permission_type,
    )


def create(client: WireClient, *acls: Acl) -> list[tuple[int, str | None]]:
    reply = client.ask(CreateAclsRequest(creations=[creation(each) for each in acls]), 3)
    return [(result.error_code, result.error_message) for result in reply.results]


def fields_of(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def described(client: WireClient, wanted: AclFilter = ANY_FILTER) -> set[Acl]:
    reply = client.ask(DescribeAclsRequest(**fields_of(wanted)), 3)
    assert reply.error_code == 0
    return {
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in reply.resources
        for each in resource.acls
    }


def delete(client: WireClient, *filters: AclFilter) -> list[tuple[int, str | None, list[str]]]:
    reply = client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**fields_of(each)) for each in filters]), 3)
    return [
        (result.error_code, result.error_message, sorted(each.resource_name for each in result.matching_acls))
        for result in reply.filter_results
    ]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    with Broker(settings=SETTINGS, data_dir=tmp_path) as broker:
        yield broker


def client_of(broker: Broker, source: str = ADMIN) -> WireClient:
    return WireClient((broker.host, broker.port), source=source)


def test_acls_are_created_once_described_by_filters_and_deleted(guarded: Broker) -> None:
    one, two = acl("a", AclOperation.READ), acl("b", AclOperation.WRITE, pattern=PatternType.PREFIXED)
    with client_of(guarded) as client:
        assert create(client, one, one, two) == [CREATED] * 3
        assert create(client, one) == [CREATED]
        assert described(client) == {one, two}
        assert described(client, ANY_FILTER._replace(resource_name="bar", pattern_type=PatternType.MATCH)) == {two}
        assert described(client, ANY_FILTER._replace(resource_name="bar")) == set()
        nothing, both = AclFilter(*one)._replace(host="*"), ANY_FILTER._replace(principal=ANYBODY)
        assert delete(client, nothing, both, AclFilter(*one)) == [
            (0, None, []),
            (0, None, ["a", "b"]),
            (0, None, ["a"]),
        ]
        assert described(client) == set()


def test_what_can_be_no_acl_is_refused_one_by_one(guarded: Broker) -> None:
    sound = acl("a", AclOperation.READ)
    wrong = {
        sound._replace(resource_name=""): "Invalid empty resource name",
        sound._replace(resource_type=4): "The only valid name for the CLUSTER resource is kafka-cluster",
        sound._replace(resource_type=1): "Invalid resourceType ANY",
        sound._replace(resource_type=99): "Invalid resourceType UNKNOWN",
        sound._replace(pattern_type=2): "Invalid patternType MATCH",
        sound._replace(operation=1): "Invalid operation ANY",
        sound._replace(operation=77): "Invalid operation UNKNOWN",
        sound._replace(permission_type=1): "Invalid permissionType ANY",
        sound._replace(principal="anna"): "Could not parse principal from `anna` (no colon is present separating the "
        "principal type from the principal name)",
    }
    with client_of(guarded) as client:
        results = create(client, *wrong, sound)
        assert results == [*((ErrorCode.INVALID_REQUEST, message) for message in wrong.values()), CREATED]
        assert described(client) == {sound}
        of_the_future = [ANY_FILTER._replace(pattern_type=9), ANY_FILTER._replace(operation=99), AclFilter(*sound)]
        assert [result[:2] for result in delete(client, *of_the_future)] == [
            (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
            (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
            (0, None),
        ]


def test_acls_outlive_the_broker(tmp_path: Path) -> None:
    names = ["a", "ü b", "x/../y", "%", 'quote"', "line\nbreak", "\u0430dmin"]
    acls = {acl(name, AclOperation.READ, of=Resource.GROUP) for name in names}
    with Broker(settings=SETTINGS, data_dir=tmp_path) as broker, client_of(broker) as client:
        assert create(client, *acls) == [CREATED] * len(acls)
    with Broker(settings=SETTINGS, data_dir=tmp_path) as broker, client_of(broker) as client:
        assert described(client) == acls


def test_who_was_denied_is_refused_from_then_on_and_until_it_is_taken_back(guarded: Broker) -> None:
    with client_of(guarded) as admin, client_of(guarded, GUEST) as guest:
        admin.create_topic("t")
        for _ in range(3):  # the like of which goes by a fast path from now on
            assert guest.produce("t", batch(b"a")).error_code == 0
        everybody = acl("*", AclOperation.ALL, host="*")
        denied = acl("t", AclOperation.WRITE, permission=Permission.DENY)
        create(admin, everybody, denied)
        assert guest.produce("t", batch(b"a")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert admin.produce("t", batch(b"a")).error_code == 0
        delete(admin, AclFilter(*denied))
        assert guest.produce("t", batch(b"a")).error_code == 0


def test_acls_of_the_cluster_say_who_may_see_and_change_acls(guarded: Broker) -> None:
    with client_of(guarded) as admin, client_of(guarded, GUEST) as guest:
        create(admin, acl(CLUSTER_NAME, AclOperation.ALL, of=Resource.CLUSTER, host=ADMIN))
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ((code, _),) = create(guest, acl("t", AclOperation.READ))
        assert code == refused
        assert delete(guest, ANY_FILTER)[0][0] == refused
        assert guest.ask(DescribeAclsRequest(**fields_of(ANY_FILTER)), 3).error_code == refused
        create(admin, acl(CLUSTER_NAME, AclOperation.ALTER, of=Resource.CLUSTER))
        assert create(guest, acl("t", AclOperation.READ)) == [CREATED]
        assert len(described(guest)) == 3  # who may alter may describe


def test_who_may_write_to_any_topic_may_do_so_idempotently(guarded: Broker) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    with client_of(guarded) as admin, client_of(guarded, GUEST) as guest:
        create(
            admin,
            acl(CLUSTER_NAME, AclOperation.ALL, of=Resource.CLUSTER, host=ADMIN),
            acl("*", AclOperation.ALL, host=ADMIN),
        )
        assert guest.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        create(admin, acl("any", AclOperation.WRITE))
        assert guest.ask(request, 4).error_code == 0


def test_operations_on_the_cluster_are_told_to_who_may_describe_it(guarded: Broker) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    with client_of(guarded) as admin, client_of(guarded, GUEST) as guest:
        create(
            admin,
            acl(CLUSTER_NAME, AclOperation.ALL, of=Resource.CLUSTER, host=ADMIN),
            acl(CLUSTER_NAME, AclOperation.CREATE, of=Resource.CLUSTER),
        )
        assert guest.ask(request, 1).cluster_authorized_operations == 0
        create(admin, acl(CLUSTER_NAME, AclOperation.DESCRIBE, of=Resource.CLUSTER))
        told = guest.ask(request, 1).cluster_authorized_operations
        assert told == 1 << AclOperation.CREATE | 1 << AclOperation.DESCRIBE


def test_denials_are_in_the_audit_log(guarded: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "kafka.authorizer.logger"),
        client_of(guarded) as admin,
        client_of(guarded, GUEST) as guest,
    ):
        create(admin, acl("t", AclOperation.ALL, host=ADMIN))
        guest.produce("t", batch(b"a"))
    (line,) = [each.getMessage() for each in caplog.records if each.name == "kafka.authorizer.logger"]
    assert line.startswith(
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.2 on resource = Topic:LITERAL:t "
        "for request = Produce"
    )


def test_a_regular_expression_names_no_topic_that_its_member_may_not_know_of(guarded: Broker) -> None:
    guarded.create_topic("seen")
    guarded.create_topic("secret")
    with client_of(guarded) as admin, client_of(guarded, GUEST) as guest:
        assert (
            create(
                admin,
                acl("*", AclOperation.ALL, host=ADMIN),
                acl(CLUSTER_NAME, AclOperation.ALL, of=Resource.CLUSTER, host=ADMIN),
                acl("g", AclOperation.READ, of=Resource.GROUP),
                acl("seen", AclOperation.READ),
            )
            == [CREATED] * 4
        )
        ids = {topic.name: topic.topic_id for topic in admin.ask(MetadataRequest(topics=None), 12).topics}
        assert ids.keys() >= {"seen", "secret"}
        guest.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        epoch, assigned = 0, set[bytes]()

        def has_partitions() -> bool:
            nonlocal epoch, assigned
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="a-member",
                member_epoch=epoch,
                instance_id=None,
                rack_id=None,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[],
                subscribed_topic_regex=".*",
                server_assignor=None,
                topic_partitions=[],
            )
            reply = guest.ask(request, 1)
            assert reply.error_code in (0, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            epoch = reply.member_epoch
            assigned = {each.topic_id for each in reply.assignment.topic_partitions} if reply.assignment else set()
            return bool(assigned)

        wait_until(has_partitions, "the group has partitions")
        assert assigned == {ids["seen"]}


def test_without_an_authorizer_there_are_no_acls(pybroker: Broker) -> None:
    with client_of(pybroker) as client:
        disabled, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
        assert create(client, acl("a", AclOperation.READ)) == [(disabled, message)]
        assert delete(client, ANY_FILTER) == [(disabled, message, [])]
        reply = client.ask(DescribeAclsRequest(**fields_of(ANY_FILTER)), 3)
        assert (reply.error_code, reply.error_message) == (disabled, "No Authorizer is configured on the broker")


def test_acls_made_at_any_broker_are_obeyed_by_all() -> None:
    """The request is forwarded, and judged by the principal and the host of its client."""
    with Cluster(2, settings=SETTINGS) as cluster:
        addresses = [(host, int(port)) for host, port in (each.rsplit(":", 1) for each in cluster.bootstrap.split(","))]
        admins = [WireClient(address) for address in addresses]
        guests = [WireClient(address, source=GUEST) for address in addresses]
        for number, admin in enumerate(admins):
            cluster_acl = acl(CLUSTER_NAME, AclOperation.ALL, of=Resource.CLUSTER, host=ADMIN)
            assert create(admin, cluster_acl, acl(f"t{number}", AclOperation.READ)) == [CREATED] * 2
        for admin in admins:
            wait_until(lambda admin=admin: len(described(admin)) == 3, "all ACLs")  # type: ignore[misc]
        for guest in guests:
            ((code, _),) = create(guest, acl("t", AclOperation.READ))
            assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for client in [*admins, *guests]:
            client.close()


def test_one_request_brings_and_takes_a_bounded_number_of_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.cluster.decisions.acl_changes.ACLS_PER_REQUEST", 3)
    builder = ImageBuilder(ClusterImage())
    many = [acl(f"t{number}", AclOperation.READ) for number in range(4)]
    wrong = acl("", AclOperation.READ)
    outcomes = end_of(create_acls(builder, [*many, wrong]))
    message = "Unable to perform excessively large batch operation."
    assert [outcome.error_message for outcome in outcomes] == [message] * 4 + ["Invalid empty resource name"]
    assert not builder.view().acls
    for each in many:
        end_of(create_acls(builder, [each]))
    assert len(builder.view().acls) == 4
    first = AclFilter(*many[0])
    answers = end_of(delete_acls(builder, [first, ANY_FILTER]))
    assert {answer.error_message for answer in answers} == {
        "Cannot remove more than 3 acls in a single delete operation."
    }
    assert len(builder.view().acls) == 4
    assert [len(answer.deleted) for answer in end_of(delete_acls(builder, [first, first]))] == [1, 1]
