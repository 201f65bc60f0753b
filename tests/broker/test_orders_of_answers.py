"""Lists of answers come in Kafka's order, where clients' tests compare them; what is expected Kafka has answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.waiting import wait_until

from pybroker.testing import Broker
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pybroker_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pybroker_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from tests.broker.wire_client import WireClient

FIRST_OF_A_TOPIC = [
    "compression.type", "errors.deadletterqueue.group.enable", "remote.copy.lag.bytes", "remote.log.delete.on.disable",
    "leader.replication.throttled.replicas", "remote.storage.enable", "min.insync.replicas", "segment.jitter.ms",
]  # fmt: skip
RATES = ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"]
QUOTAS: list[tuple[list[tuple[str, str | None]], list[str]]] = [
    ([("client-id", "c1"), ("user", None)], RATES),
    ([("ip", None)], ["connection_creation_rate"]),
    ([("client-id", None), ("user", "alice")], RATES),
    ([("client-id", "x"), ("user", "erin")], RATES),
    ([("user", "bob")], RATES),
    ([("user", "carol")], RATES),
    ([("client-id", "c1")], RATES),
    ([("user", "alice")], RATES),
    ([("user", None)], RATES),
    ([("client-id", None)], RATES),
    ([("client-id", "c1"), ("user", "alice")], RATES),
    ([("ip", "10.0.0.1")], ["connection_creation_rate"]),
    ([("user", "dave")], RATES),
]
SET_IN_ORDER = (7, 4, 8, 6, 9, 10, 0, 11, 1, 5, 2, 12, 3)


@pytest.fixture
def client() -> Iterator[WireClient]:
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        yield client


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (None, FIRST_OF_A_TOPIC),
        (
            ["retention.ms", "cleanup.policy", "compression.type"],
            ["compression.type", "cleanup.policy", "retention.ms"],
        ),
    ],
)
def test_settings_come_in_the_order_of_kafkas_table(
    client: WireClient, keys: list[str] | None, expected: list[str]
) -> None:
    client.create_topic("t")
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    (result,) = client.ask(request, 4).results
    assert [config.name for config in result.configs][: len(expected)] == expected


def test_quotas_come_in_the_order_of_kafkas_table(client: WireClient) -> None:
    for entity, keys in (QUOTAS[index] for index in SET_IN_ORDER):
        entry = AlterClientQuotasRequestEntryData(
            entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=100.0, remove=False) for key in sorted(keys)],
        )
        answer = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        assert answer.entries[0].error_code == 0
    for components in ([], [ComponentData(entity_type="user", match_type=2, match=None)]):
        described = client.ask(DescribeClientQuotasRequest(components=components, strict=False), 1).entries
        assert [
            ([(part.entity_type, part.entity_name) for part in entry.entity], [value.key for value in entry.values])
            for entry in described
        ] == [quota for quota in QUOTAS if not components or any(kind == "user" for kind, _ in quota[0])]


def join(client: WireClient, group: str, member: str) -> None:
    """A member of a group of KIP-848 heartbeats for the first time, as soon as there is a coordinator."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        server_assignor=None,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    wait_until(lambda: client.ask(request, 1).error_code == 0, f"{member} in {group}")


def test_groups_and_members_come_in_the_order_of_kafkas_tables(client: WireClient) -> None:
    """As ListGroupsRequestTest and ConsumerGroupDescribeRequestTest expect them, whatever order they came in."""
    client.create_topic("t")
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["grp-1"]), 4)  # makes the coordinators' topic
    for group in ("grp-1", "grp-4"):
        for member in ("member-1", "member-2"):
            join(client, group, member)
    listed = client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5).groups
    assert [group.group_id for group in listed] == ["grp-4", "grp-1"]
    request = ConsumerGroupDescribeRequest(group_ids=["grp-1"], include_authorized_operations=False)
    (group,) = client.ask(request, 1).groups
    assert [member.member_id for member in group.members] == ["member-2", "member-1"]
