"""What a simulated member of a KIP-848 group says of itself, where a coordinator has to hear it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.model import Model


class ScriptedCoordinator:
    """Answers heartbeats with these error codes, one after another, and keeps what was asked."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.asked: list[ConsumerGroupHeartbeatRequest] = []

    async def ask(self, request: ConsumerGroupHeartbeatRequest, *_: Any) -> ConsumerGroupHeartbeatResponse:
        self.asked.append(request)
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=self._codes.pop(0),
            error_message=None,
            member_id=request.member_id,
            member_epoch=1,
            heartbeat_interval_ms=1_000,
            assignment=Assignment(topic_partitions=[]) if len(self.asked) == 1 else None,
        )

    async def sleep(self, _delay_ms: float) -> None: ...


def test_member_says_all_of_itself_after_a_refusal_whose_records_may_be_committed_yet() -> None:
    coordinator = ScriptedCoordinator(0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, 0)
    run: Any = SimpleNamespace(
        model=Model(),
        topic_ids={"events": bytes(16)},
        read_committed={},
        client=lambda _name: coordinator,
        new_random=lambda: Random(1),
        trace=lambda *_: None,
        knows_members=lambda *_: False,
    )
    member = ConsumerMember(run, "consumer", "group", [("events", 0)], read_committed=False)
    member._new_member()

    async def beat() -> None:
        for _ in range(5):
            await member._beat()

    asyncio.run(beat())
    told = [request.subscribed_topic_names is not None for request in coordinator.asked]
    assert told == [True, False, False, True, False]
    assert coordinator.asked[3].topic_partitions is not None
