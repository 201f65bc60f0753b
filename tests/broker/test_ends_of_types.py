"""Values from the ends of their types are answered, and no client is left without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.handlers import describe_cluster, find_coordinator
from pybroker.handlers.context import Parked, RequestContext
from pybroker.testing import Broker
from pybroker_protocol.errors import READABLE_CHARS_MAX, ErrorCode, readable
from pybroker_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pybroker_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pybroker_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pybroker_protocol.schema import Request
from tests.broker.wire_client import WireClient

LONGEST = "x" * 0x7FFF
UNENCODABLE = LONGEST + "x"
GROUP_KEY = 0
COORDINATOR_NOT_READY = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def client(pybroker: Broker) -> Iterator[WireClient]:
    with WireClient((pybroker.host, pybroker.port)) as connected:
        yield connected


def topic(name: str, **config: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic(LONGEST), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("long-config", **{LONGEST: "1"}), ErrorCode.INVALID_CONFIG),
        (topic("long-value", **{"retention.ms": LONGEST}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_error_that_quotes_the_longest_string_is_told(
    client: WireClient, asked: CreatableTopic, code: int, version: int
) -> None:
    request = CreateTopicsRequest(topics=[asked], timeout_ms=10_000, validate_only=True)
    (created,) = client.ask(request, version).topics
    assert created.error_code == code
    assert created.error_message == readable(created.error_message)


def test_an_error_that_quotes_the_longest_name_of_a_topic_is_told(client: WireClient) -> None:
    asked = DescribeProducersRequest(topics=[TopicRequest(name=LONGEST, partition_indexes=[0])])
    (partition,) = client.ask(asked, 0).topics[0].partitions
    assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_election_in_a_topic_of_the_longest_name_is_refused(client: WireClient) -> None:
    wanted = TopicPartitions(topic=LONGEST, partitions=[0])
    response = client.ask(ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=10_000), 2)
    (partition,) = response.replica_election_results[0].partition_result
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ask_coordinator(client: WireClient, group: str, request: Request, version: int) -> Any:
    """The first answer that is not about the coordinator itself."""
    assert client.ask(FindCoordinatorRequest(key=group, key_type=GROUP_KEY), 3).error_code == ErrorCode.NONE
    replies: list[Any] = []

    def is_answered() -> bool:
        replies.append(client.ask(request, version))
        return replies[-1].error_code not in COORDINATOR_NOT_READY

    wait_until(is_answered, f"an answer of {group}'s coordinator")
    return replies[-1]


def test_an_error_that_quotes_the_longest_assignor_is_told(client: WireClient) -> None:
    asked = ConsumerGroupHeartbeatRequest(
        group_id="long-assignor",
        member_id="m",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        server_assignor=LONGEST,
        topic_partitions=[],
    )
    assert ask_coordinator(client, "long-assignor", asked, 1).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("text", ["", "short", "x" * READABLE_CHARS_MAX, "\N{GRINNING FACE}" * READABLE_CHARS_MAX * 2])
def test_what_clients_read_fits_into_any_string(text: str) -> None:
    assert len(readable(text).encode()) <= 0x7FFF
    assert text.startswith(readable(text).removesuffix("…"))


@pytest.mark.parametrize(("version", "name"), [(3, ""), (6, ""), (7, None), (9, None)])
def test_a_protocol_without_a_name_is_null_where_it_may_be(client: WireClient, version: int, name: str | None) -> None:
    group = f"nameless-v{version}"

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="", metadata=b"")],
        )

    reply = ask_coordinator(client, group, join(""), version)
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        reply = client.ask(join(reply.member_id), version)
    assert (reply.error_code, reply.protocol_name) == (ErrorCode.NONE, name)


def _answer_what_cannot_be_said(_ctx: RequestContext, _request: Request) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=0, error_message=UNENCODABLE, cluster_id="", controller_id=0, brokers=[]
    )


def _answer_it_later(ctx: RequestContext, _request: Request) -> Parked:
    parked = Parked()
    found = Coordinator(key=UNENCODABLE, node_id=0, host="", port=0, error_code=0, error_message=None)
    late = FindCoordinatorResponse(throttle_time_ms=0, coordinators=[found])
    ctx.services.env.timers.call_soon(parked.complete, late)
    return parked


def test_a_reply_that_cannot_be_encoded_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_cluster, "handle", _answer_what_cannot_be_said)
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        assert client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0) is None


def test_a_late_reply_that_cannot_be_encoded_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_coordinator, "handle", _answer_it_later)
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        assert client.ask(FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=["g"]), 4) is None
