"""Replies of a link's source that take long to decode: some of it in each turn, answered in order, and once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.image.cluster_image import Endpoint
from pybroker.cluster.links.source_port import NEEDED_VERSIONS
from pybroker.cluster.membership.peers import PeerError, PeerFailure
from pybroker.net import source_client
from pybroker.net.buffers import BufferPool
from pybroker.net.framing import Framing
from pybroker.net.long_replies import LONG_REPLY_BYTES
from pybroker.net.peer_link import LinkContext, PeerLink
from pybroker.net.peer_requests import PeerEncoder
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol import codec
from pybroker_protocol.messages import response_header_version
from pybroker_protocol.messages.headers import ResponseHeader
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

KEY, VERSION = 3, 12
REQUEST = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


class TickingClock:
    """A clock on which each look takes a millisecond: what looks at it is at work."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        self.ms += 1
        return self.ms


class Channel:
    """A link's channel to a broker of its source, on a connection of the test's."""

    def __init__(self) -> None:
        self.world = VirtualWorld()
        self.sent: list[bytes] = []
        self.aborted: list[str] = []
        self.outcomes: list[tuple[str, Any | None, PeerError | None]] = []
        self._encoder = PeerEncoder("link-west-1")
        self._connection = cast(
            Any, SimpleNamespace(may_write=True, send=self.sent.append, abort=self.aborted.append, framing=None)
        )
        env: Any = SimpleNamespace(timers=self.world.timers, clock=TickingClock(), random=Random(1))
        log = RateLimitedLog(logging.getLogger(__name__), self.world.timers)
        loop = cast(asyncio.AbstractEventLoop, None)  # no connection is made
        context = LinkContext(env, loop, Framing(), Framing(), BufferPool(), log, {}, long_replies={KEY})
        self.link = PeerLink("source", Endpoint("source", 9092), context)
        self.link._connection = self._connection

    def ask(self, name: str) -> None:
        def done(response: Any | None, error: PeerError | None) -> None:
            self.outcomes.append((name, response, error))

        self.link.ask(self._encoder.encode(REQUEST, VERSION, 10_000, done))

    def receive(self, correlation_id: int, response: MetadataResponse, spoil: Callable[[bytes], bytes] = bytes) -> None:
        header = codec.encode(ResponseHeader(correlation_id=correlation_id), response_header_version(KEY, VERSION))
        frame = bytearray(spoil(header + codec.encode(response, VERSION)))
        self.link.on_frame(self._connection, memoryview(frame))
        frame[:] = b"\xff" * len(frame)  # the buffer is the next reply's

    def lose(self) -> None:
        self.link.on_lost(self._connection, "it closed the connection")

    @property
    def answered(self) -> list[str]:
        return [name for name, _, _ in self.outcomes]


def metadata(topics: int) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="source",
        brokers=[MetadataResponseBroker(node_id=1, host="source", port=9092, rack=None)],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{number}",
                topic_id=number.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=4,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                ],
            )
            for number in range(topics)
        ],
    )


LONG = metadata(1_000)
SHORT = metadata(1)


def test_the_replies_of_this_test_are_a_long_one_and_a_short_one() -> None:
    assert len(codec.encode(SHORT, VERSION)) < LONG_REPLY_BYTES < len(codec.encode(LONG, VERSION))


def test_a_long_reply_is_decoded_in_several_turns_and_is_the_same() -> None:
    channel = Channel()
    channel.ask("long")
    channel.receive(0, LONG)
    turns = 0
    while not channel.outcomes:
        channel.world.timers.take_next().run()
        turns += 1
    assert turns > 2
    ((_, response, error),) = channel.outcomes
    assert error is None
    assert isinstance(response, MetadataResponse)
    assert codec.encode(response, VERSION) == codec.encode(LONG, VERSION)


def test_a_short_reply_is_answered_at_once() -> None:
    channel = Channel()
    channel.ask("short")
    channel.receive(0, SHORT)
    assert channel.answered == ["short"]


def test_a_reply_that_comes_meanwhile_is_answered_behind_the_long_one() -> None:
    channel = Channel()
    channel.ask("long")
    channel.ask("short")
    channel.receive(0, LONG)
    assert channel.answered == []
    channel.receive(1, SHORT)
    assert channel.answered == ["long", "short"]
    channel.world.advance(1_000)
    assert channel.answered == ["long", "short"]


def test_a_connection_that_breaks_meanwhile_takes_the_long_reply_along() -> None:
    channel = Channel()
    channel.ask("long")
    channel.receive(0, LONG)
    channel.lose()
    channel.world.advance(1_000)
    ((_, response, error),) = channel.outcomes
    assert response is None
    assert error is not None
    assert error.reason is PeerFailure.DISCONNECTED


@pytest.mark.parametrize(
    "spoil", [lambda frame: frame[:-20], lambda frame: frame + b"more", lambda frame: b"\0\0\0\7" + frame[4:]]
)
def test_a_long_reply_that_is_none_breaks_the_connection(spoil: Callable[[bytes], bytes]) -> None:
    channel = Channel()
    channel.ask("long")
    channel.receive(0, LONG, spoil)
    channel.world.advance(1_000)
    ((_, _, error),) = channel.outcomes
    assert error is not None
    assert error.reason is PeerFailure.BAD_REPLY
    assert len(channel.aborted) == 1


def test_whatever_a_link_asks_but_records_may_have_a_long_reply() -> None:
    fetch = 1  # its records are taken as they are
    assert NEEDED_VERSIONS.keys() - source_client._LONG_REPLIES == {fetch}
