"""Quotas of clients: which one holds, and that who is over it is told so at once and then rests (KIP-219)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from harness.batches import batch
from harness.waiting import wait_until
from harness.wire import Client

from conformance.wire.asking import Wire, fresh_name
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH = batch(b"x" * 10_000)
QUOTA = "producer_byte_rate"
TIGHT, WIDE = 1_900.0, 1e9  # of the first the second batch within a window is over, by half a second and more
REST_MS_MIN = 300

SetQuota = Callable[..., None]


@pytest.fixture
def set_quota(wire: Wire) -> Iterator[SetQuota]:
    """``set_quota(value, user, client_id)``: None is the default, "" nobody's; it is gone after the test."""
    set_for: list[list[dict[str, str | None]]] = []

    def alter(entity: list[dict[str, str | None]], value: float, *, remove: bool) -> None:
        entry = {"entity": entity, "ops": [{"key": QUOTA, "value": value, "remove": remove}]}
        reply = wire.ask("AlterClientQuotas", 1, entries=[entry], validate_only=False)
        assert reply["entries"][0]["error_code"] == 0, reply

    def set_it(value: float, user: str | None = "", client_id: str | None = "") -> None:
        named = (("user", user), ("client-id", client_id))
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in named if name != ""]
        set_for.append(entity)
        alter(entity, value, remove=False)

        def is_described() -> bool:
            described = wire.ask("DescribeClientQuotas", 1, components=[], strict=False)["entries"]
            return any(each["entity"] == entity or each["entity"] == entity[::-1] for each in described)

        wait_until(is_described, "the quota is known")

    yield set_it
    for entity in set_for:
        alter(entity, 0.0, remove=True)


@pytest.fixture
def client_id() -> str:
    return fresh_name("client")


@pytest.fixture
def greedy(wire: Wire, client_id: str) -> Iterator[Client]:
    with Client(wire.address, client_id=client_id) as connection:
        yield connection


def rests_ms(greedy: Client, topic: str, batches: int = 2) -> int:
    """Produce so many batches; the throttle time that the last reply tells."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=BATCH)])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[data])
    told = 0
    for _ in range(batches):
        reply = greedy.ask(request, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        told = reply.throttle_time_ms
    return told


def test_who_is_over_a_quota_is_told_at_once_and_served_again_after_that_time(
    wire: Wire, topic: str, greedy: Client, client_id: str, set_quota: SetQuota
) -> None:
    set_quota(TIGHT, client_id=client_id)
    begun, told_ms = 0.0, 0

    def is_told_before_its_rest_would_be_over() -> bool:
        """A machine that stands still between two replies may take longer than a rest, but not each time."""
        nonlocal begun, told_ms
        begun = time.monotonic()
        told_ms = rests_ms(greedy, topic)
        return told_ms > REST_MS_MIN and time.monotonic() - begun < told_ms / 1000

    wait_until(is_told_before_its_rest_would_be_over, "a reply that does not wait")
    greedy.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert time.monotonic() - begun > told_ms / 1000 - 0.05


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ANONYMOUS", "id"), ("ANONYMOUS", None)),
        (("ANONYMOUS", None), ("ANONYMOUS", "")),
        (("ANONYMOUS", ""), (None, "id")),
        ((None, "id"), (None, None)),
        ((None, None), (None, "")),
        ((None, ""), ("", "id")),
        (("", "id"), ("", None)),
    ],
)
def test_more_specific_quota_holds(
    topic: str,
    greedy: Client,
    client_id: str,
    set_quota: SetQuota,
    first: tuple[str | None, str | None],
    second: tuple[str | None, str | None],
) -> None:
    """Of each two neighbours in the order of precedence."""
    for value, (user, named) in ((WIDE, first), (TIGHT, second)):
        set_quota(value, user, client_id if named == "id" else named)
    assert rests_ms(greedy, topic, 3) == 0
