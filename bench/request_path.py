"""What one request of each hot API costs in the broker, without sockets: Python, and the page cache where it is asked.

Run it with ``.venv/bin/python -m bench.request_path [NAME …]``, with ``--profile`` for cProfile's view.  Frames reach
a connection as a transport would hand them over.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import struct
import time
from collections.abc import Awaitable, Mapping
from typing import Any

import uvloop

from bench.wire import (
    API_VERSIONS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    SYNC_GROUP,
    decode_reply,
    fetch_frame,
    frame,
    produce_frame,
    record_batch,
)
from bench.without_sockets import TOPIC, CountingTransport, connected_over, receive, with_server
from pybroker.cluster.decisions.operations import NewTopic
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer
from pybroker_protocol.messages import request_class
from pybroker_protocol.messages.join_group import JoinGroupRequestProtocol
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from pybroker_protocol.messages.metadata import MetadataRequestTopic
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequestGroup

ROUNDS = 9
REQUESTS = 2_000
GROUP, WIDE_TOPIC, WIDE = "g", "wide", 100
MEMBER_ID_REQUIRED = 79
BATCHES = 20
FETCHED = 20


class Replies(CountingTransport):
    """Keeps the last reply's bytes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.last = b""

    def write(self, data: bytes) -> None:
        super().write(data)
        self.last = bytes(data)

    def writelines(self, parts: list[Any]) -> None:
        self.write(b"".join(parts))


class Caller:
    """One connection, and calls over it."""

    def __init__(self, server: BrokerServer) -> None:
        self.connection, self.transport = connected_over(Replies, server)

    def send(self, request: bytes) -> None:
        """Hand it to the broker."""
        receive(self.connection, request)

    async def exchange(self, request: bytes) -> bytes:
        """The reply without its length."""
        self.transport.bytes_sent = 0
        self.send(request)
        while not self.transport.bytes_sent:
            await asyncio.sleep(0.001)
        return self.transport.last[4:]

    async def call(self, api_key: int, **fields: Any) -> Any:
        return decode_reply(api_key, await self.exchange(frame(api_key, request_class(api_key)(**fields))))


def request(api_key: int, **fields: Any) -> bytes:
    return frame(api_key, request_class(api_key)(**fields))


async def join(caller: Caller) -> tuple[str, int]:
    """Become the only member of a group: (member id, generation)."""
    while (await caller.call(FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP])).coordinators[0].error_code:
        await asyncio.sleep(0.01)
    member_id = ""
    while True:
        joined = await caller.call(
            JOIN_GROUP,
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=45_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        if not joined.error_code:
            break
        member_id = joined.member_id
        await asyncio.sleep(0.01)
    synced = await caller.call(
        SYNC_GROUP,
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    assert not synced.error_code, synced
    return joined.member_id, joined.generation_id


async def requests(caller: Caller) -> Mapping[str, bytes]:
    """The frames to measure, by name; each is answered at once."""
    for _ in range(BATCHES):
        await caller.exchange(produce_frame(TOPIC, {0: record_batch(10, 100)}))
    member_id, generation = await join(caller)
    latest = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return {
        "api_versions": request(API_VERSIONS, client_software_name="bench", client_software_version="1"),
        "metadata_one": request(METADATA, topics=[MetadataRequestTopic(name=TOPIC)]),
        "metadata_wide": request(METADATA, topics=[MetadataRequestTopic(name=WIDE_TOPIC)]),
        "list_offsets": request(
            LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=latest)]
        ),
        "fetch": fetch_frame(TOPIC, {0: 0}, bytes_max=4_000),
        "fetch_nothing": fetch_frame(TOPIC, {0: BATCHES * 10}, bytes_max=4_000, wait_ms=0),
        "fetch_wide": fetch_frame(WIDE_TOPIC, dict.fromkeys(range(FETCHED), 0), bytes_max=4_000, wait_ms=0),
        "heartbeat": request(HEARTBEAT, group_id=GROUP, generation_id=generation, member_id=member_id),
        "offset_fetch": request(
            OFFSET_FETCH, groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=False
        ),
        "find_coordinator": request(FIND_COORDINATOR, key_type=0, coordinator_keys=[GROUP]),
        "produce": produce_frame(TOPIC, {0: record_batch(1, 100)}),
    }


def best_us(caller: Caller, frame_bytes: bytes) -> float:
    """Microseconds of CPU per request, best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(REQUESTS):
            caller.send(frame_bytes)
        best = min(best, time.thread_time() - started)
    return best / REQUESTS * 1e6


def profile(caller: Caller, frame_bytes: bytes) -> None:
    profiler = cProfile.Profile(time.thread_time)
    with profiler:
        for _ in range(REQUESTS):
            caller.send(frame_bytes)
    profiler.print_stats("tottime")


async def measure(server: BrokerServer, names: list[str], with_profile: bool) -> None:
    created = asyncio.Event()
    server.services.controller.create_topics([NewTopic(WIDE_TOPIC, WIDE)], lambda _: created.set())
    await created.wait()
    caller = Caller(server)
    for name, frame_bytes in (await requests(caller)).items():
        if names and name not in names:
            continue
        caller.transport.bytes_sent = 0
        caller.send(frame_bytes)
        (length,) = struct.unpack_from(">i", caller.transport.last)
        assert length + 4 == len(caller.transport.last), f"{name} is not answered at once"
        if with_profile:
            profile(caller, frame_bytes)
        print(f"{name:17} {best_us(caller, frame_bytes):7.2f} µs   {length} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()

    def chosen(server: BrokerServer) -> Awaitable[None]:
        return measure(server, arguments.names, arguments.profile)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_server(chosen))


if __name__ == "__main__":
    main()
