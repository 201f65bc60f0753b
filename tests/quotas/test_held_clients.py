"""Clients that are over a quota: what their replies tell, and that their connections rest for so long (KIP-219).

Quotas and rests go by a clock that stands until a test lets time pass: what a reply waits for is no matter of speed.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.batches import batch
from harness.virtual_world import VirtualClock, VirtualWorld
from harness.waiting import wait_until

from pybroker.config.broker import BrokerConfig
from pybroker.env import Env
from pybroker.net import processor
from pybroker.net.metering import Meter, Metered
from pybroker.quotas import client_quotas
from pybroker.quotas.client_quotas import ClientQuotas
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pybroker_protocol.messages.describe_quorum import DescribeQuorumRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from pybroker_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from pybroker_protocol.uuids import ZERO_UUID
from tests.broker.wire_client import WireClient, fetch_request, produce_request
from tests.net.conftest import served_side

CLIENT, TOPIC = "greedy", "t"
A_SAMPLE_MS = 1_000  # no rest for the time of requests is longer
WORK_NS = 30_000  # that the loop is busy with a part of a request
A_MOMENT_S = 0.05  # in which a request that is not held up is answered
API_VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
BATCH = batch(b"x" * 10_000)


def set_quota(wire: WireClient, key: str, value: float | None, **entity: str | None) -> None:
    parts = entity or {"client_id": CLIENT}
    entry = AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in parts.items()
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    (told,) = wire.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries
    assert told.error_code == 0, told.error_message


class WorkingClock(VirtualClock):
    """Between two looks at it, at the beginning and the end of some work, that work takes time."""

    def monotonic_ns(self) -> int:
        self.pass_ns(WORK_NS)
        return super().monotonic_ns()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> VirtualWorld:
    """The clock and the timers of quotas, and of nothing else."""
    world = VirtualWorld(clock=WorkingClock())

    def meter(connection: Metered, quotas: ClientQuotas, _: Env) -> Meter:
        return Meter(connection, quotas, world.env)

    def quotas(_: Env, config: BrokerConfig) -> ClientQuotas:
        return ClientQuotas(world.env, config)

    monkeypatch.setattr(processor, "Meter", meter)
    monkeypatch.setattr(client_quotas, "ClientQuotas", quotas)
    return world


@pytest.fixture
def broker(world: VirtualWorld) -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Rest:
    """The rest of the greedy client's connection."""

    def __init__(self, broker: Broker, world: VirtualWorld, wire: WireClient) -> None:
        self._broker = broker
        self._world = world
        self._wire = wire

    def passes(self, ms: int) -> None:
        """So many milliseconds pass."""

        def advance(_: BrokerServer, done: Callable[[None], None]) -> None:
            self._world.advance(ms)
            done(None)

        self._broker._call(advance)

    def has_begun(self) -> bool:
        """Whether the connection rests."""
        meter = served_side(self._broker, self._wire).meter
        return meter is not None and meter.is_muted

    def is_kept(self, ms: int) -> Any:
        """The reply to what was sent, which comes when so many milliseconds have passed, and no sooner."""
        self.passes(ms - 1)
        assert self.has_begun()
        assert not select.select([self._wire._socket], [], [], A_MOMENT_S)[0]
        self.passes(1)
        return self._wire.receive()

    def over(self, request: Any, version: int, ms: int) -> Any:
        """The reply to a request that is sent now, and served when the rest of so many milliseconds is over."""
        self._wire.send(request, version)
        return self.is_kept(ms)


@pytest.fixture
def admin(broker: Broker) -> Iterator[WireClient]:
    with WireClient((broker.host, broker.port), client_id="admin") as wire:
        wire.create_topic(TOPIC)
        yield wire


@pytest.fixture
def greedy(broker: Broker, admin: WireClient) -> Iterator[WireClient]:
    with WireClient((broker.host, broker.port), client_id=CLIENT) as wire:
        yield wire


@pytest.fixture
def rest(broker: Broker, world: VirtualWorld, greedy: WireClient) -> Rest:
    return Rest(broker, world, greedy)


def produced(wire: WireClient, times: int = 1, acks: int = -1) -> list[int]:
    """The throttle times that the replies tell."""
    request = produce_request(TOPIC, BATCH, acks=acks)
    return [wire.ask(request, 9).throttle_time_ms for _ in range(times)]


def test_producer_over_its_quota_is_told_at_once_and_rests_for_so_long(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    set_quota(admin, "producer_byte_rate", 1_900.0)
    assert produced(greedy, 1) == [0], "a window's worth may come at once"
    response = greedy.ask(produce_request(TOPIC, BATCH), 9)
    assert response.throttle_time_ms > 100
    assert response.responses[0].partition_responses[0].error_code == 0, "what came is written all the same"
    assert produced(admin, 5) == [0] * 5, "others do not rest"
    assert rest.over(API_VERSIONS, 3, response.throttle_time_ms).error_code == 0


def test_front_serves_a_client_up_to_its_quota_and_the_reply_that_passes_it_tells_so(
    admin: WireClient, greedy: WireClient
) -> None:
    set_quota(admin, "producer_byte_rate", 10_200.0)
    assert produced(greedy, 9) == [0] * 9
    assert produced(greedy, 1)[0] or produced(greedy, 1)[0]


def test_requests_that_are_there_already_wait_till_their_client_has_rested(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    set_quota(admin, "producer_byte_rate", 1_900.0)
    produced(greedy)
    greedy.send(produce_request(TOPIC, BATCH), 9)
    greedy.send(fetch_request(TOPIC, 0), 12)
    rest_ms = greedy.receive().throttle_time_ms
    assert rest_ms > 500
    assert rest.is_kept(rest_ms).error_code == 0


def test_producer_without_acknowledgements_rests_too(admin: WireClient, greedy: WireClient, rest: Rest) -> None:
    set_quota(admin, "producer_byte_rate", 1_850.0)
    greedy.post(*[produce_request(TOPIC, BATCH, acks=0)] * 2, version=9)
    wait_until(rest.has_begun, "its rest")
    greedy.send(API_VERSIONS, 3)
    rest.passes(A_SAMPLE_MS - 200)
    assert rest.has_begun()
    rest.passes(10 * A_SAMPLE_MS)
    assert greedy.receive().error_code == 0


def test_fetch_over_the_quota_is_empty_and_what_it_left_out_comes_later(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    produced(admin, 4)
    set_quota(admin, "consumer_byte_rate", 1_900.0)
    request = fetch_request(TOPIC, 0, partition_max_bytes=15_000)
    first = greedy.ask(request, 12)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) > 10_000
    over = greedy.ask(request, 12)
    assert over.throttle_time_ms > 100
    assert over.responses == []
    last = rest.over(request, 12, over.throttle_time_ms)
    assert len(last.responses[0].partitions[0].records) > 10_000


def test_fetch_that_could_never_be_within_its_quota_is_cut_to_what_can(admin: WireClient, greedy: WireClient) -> None:
    produced(admin, 8)
    set_quota(admin, "consumer_byte_rate", 2_500.0)
    reply = greedy.ask(fetch_request(TOPIC, 0), 12)
    assert reply.throttle_time_ms == 0
    assert 10_000 < len(reply.responses[0].partitions[0].records) < 25_000


def test_session_that_begins_while_its_client_is_over_its_quota_is_none(admin: WireClient, greedy: WireClient) -> None:
    produced(admin, 2)
    set_quota(admin, "consumer_byte_rate", 1_100.0)
    greedy.ask(fetch_request(TOPIC, 0, partition_max_bytes=1), 12)
    over = greedy.ask(fetch_request(TOPIC, 0, partition_max_bytes=1, session_epoch=0), 12)
    assert over.throttle_time_ms > 0
    assert (over.session_id, over.responses) == (0, [])


def test_session_is_told_later_what_a_throttled_fetch_of_it_left_out(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    produced(admin, 2)
    set_quota(admin, "consumer_byte_rate", 3_000.0)
    first = greedy.ask(fetch_request(TOPIC, 0, partition_max_bytes=1, session_epoch=0), 12)
    assert len(first.responses[0].partitions[0].records) > 10_000
    more = {"session_id": first.session_id, "partition_max_bytes": 1}
    replies = []
    for epoch in (1, 2, 3):
        replies.append(greedy.ask(fetch_request(TOPIC, 1, session_epoch=epoch, **more), 12))
        rest.passes(replies[-1].throttle_time_ms)
    assert replies[0].throttle_time_ms == 0
    assert replies[1].throttle_time_ms > 0
    assert [reply.session_id for reply in replies] == [first.session_id] * 3
    assert len(replies[2].responses[0].partitions[0].records) > 10_000


def test_time_of_requests_counts_for_every_kind_of_them(admin: WireClient, greedy: WireClient, rest: Rest) -> None:
    set_quota(admin, "request_percentage", 0.0001)
    reply = greedy.ask(MetadataRequest(topics=None, include_cluster_authorized_operations=False), 9)
    assert 0 < reply.throttle_time_ms <= A_SAMPLE_MS, "never for longer than a sample"
    assert rest.over(API_VERSIONS, 3, reply.throttle_time_ms).throttle_time_ms > 0
    assert [topic.name for topic in admin.ask(MetadataRequest(topics=None), 9).topics] == [TOPIC]


def test_time_of_produces_without_acknowledgements_counts(admin: WireClient, greedy: WireClient, rest: Rest) -> None:
    set_quota(admin, "request_percentage", 0.0001)
    greedy.post(*[produce_request(TOPIC, BATCH, acks=0)] * 2, version=9)
    greedy.send(API_VERSIONS, 3)
    wait_until(rest.has_begun, "its rest after the first")
    rest.passes(A_SAMPLE_MS)
    wait_until(rest.has_begun, "its rest after the second")
    assert rest.is_kept(A_SAMPLE_MS).error_code == 0


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (WriteTxnMarkersRequest(markers=[]), 1),
        (DescribeQuorumRequest(topics=[]), 1),
    ],
    ids=["SaslHandshake", "WriteTxnMarkers", "DescribeQuorum"],
)
def test_time_of_requests_counts_where_the_reply_has_no_field_for_a_rest(
    admin: WireClient, greedy: WireClient, rest: Rest, request_: Any, version: int
) -> None:
    set_quota(admin, "request_percentage", 0.0001)
    assert not hasattr(greedy.ask(request_, version), "throttle_time_ms"), "the reply leaves at once"
    assert rest.over(request_, version, A_SAMPLE_MS) is not None


def test_metadata_in_a_version_without_throttle_times_is_whole(admin: WireClient, greedy: WireClient) -> None:
    set_quota(admin, "request_percentage", 0.0001)
    reply = greedy.ask(MetadataRequest(topics=None), 1)
    assert [topic.name for topic in reply.topics] == [TOPIC]


def create(wire: WireClient, name: str, partitions: int, version: int = 7, *, validate_only: bool = False) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9_000, validate_only=validate_only), version)


def test_partitions_that_are_made_and_deleted_empty_a_bucket_which_then_refuses(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    set_quota(admin, "controller_mutation_rate", 1.0)
    assert create(greedy, "a", 12).topics[0].error_code == 0, "the last of the bucket may be more than there is"
    refused = create(greedy, "b", 1)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < refused.throttle_time_ms <= 1_000
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=13, assignments=None)], timeout_ms=9_000, validate_only=False
    )
    grown = rest.over(growth, 3, refused.throttle_time_ms)
    assert grown.results[0].error_code == 0
    rest.passes(grown.throttle_time_ms)
    deleted = greedy.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=9_000), 6
    )
    (refusal,) = deleted.responses
    assert (refusal.error_code, refusal.error_message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None), "as Kafka's"
    assert create(admin, "c", 20).topics[0].error_code == 0


def test_topics_that_metadata_creates_empty_the_bucket_too(admin: WireClient, greedy: WireClient) -> None:
    set_quota(admin, "controller_mutation_rate", 1.0)
    names = [MetadataRequestTopic(name=f"at-need-{number}") for number in range(1_000)]
    told = greedy.ask(MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)
    assert {topic.error_code for topic in told.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert told.throttle_time_ms == 0, "as in Kafka, where the broker's own request is told so"
    assert create(greedy, "a", 1).topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert create(admin, "b", 1).topics[0].error_code == 0


def test_older_versions_change_what_they_like_and_rest_for_it(
    admin: WireClient, greedy: WireClient, rest: Rest
) -> None:
    set_quota(admin, "controller_mutation_rate", 20.0)
    told_ms = create(greedy, "a", 230, version=5).throttle_time_ms
    assert told_ms > 0
    rest.passes(told_ms)
    again = create(greedy, "b", 5, version=5)
    assert again.topics[0].error_code == 0
    assert again.throttle_time_ms > 0


def test_clients_of_one_user_share_its_quota(admin: WireClient, greedy: WireClient) -> None:
    set_quota(admin, "producer_byte_rate", 2_050.0, user="ANONYMOUS")
    assert produced(greedy, 1) == [0]
    assert produced(admin, 1)[0] == 0
    assert produced(greedy, 1)[0] > 0


def test_connection_that_rests_goes_on_when_the_last_quota_is_removed(admin: WireClient, greedy: WireClient) -> None:
    set_quota(admin, "producer_byte_rate", 1.0)
    rest_ms = produced(greedy, 1)[0]
    assert rest_ms > 60_000
    greedy.send(API_VERSIONS, 3)
    set_quota(admin, "producer_byte_rate", None)
    assert greedy.receive().error_code == 0
    assert produced(greedy, 30) == [0] * 30
