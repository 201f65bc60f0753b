"""10,000 groups that have each committed 10 partitions: memory, and the time until they are loaded after kill -9."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from itertools import islice

from harness.sockets import receive_frame

from bench.contestants import Contestant, make
from bench.context import Context
from bench.parts.memory import at_rest
from bench.wire import OFFSET_COMMIT, Client, check_commit_reply, connect, frame
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUPS, PARTITIONS = 10_000, 10
TOPIC = "committed"
IN_FLIGHT = 50
START_TIMEOUT_S = 120.0


def run(context: Context) -> None:
    """Each broker alone on the machine."""
    for name in context.brokers:
        directory = context.root / uuid.uuid4().hex[:8]
        broker = make(name, directory)
        try:
            broker.start()
            measure(context, name, broker)
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)


def measure(context: Context, name: str, broker: Contestant) -> None:
    """Fill, look at the memory, kill, start, look again."""
    idle = at_rest(broker)
    with Client(broker.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)
        client.await_coordinator(next(groups()))
    started = time.perf_counter()
    commit_all(broker)
    context.add("10,000 groups commit", "s", name, time.perf_counter() - started)
    context.add("10,000 groups add", "MB", name, at_rest(broker).anon_mb - idle.anon_mb)
    broker.kill()
    started = time.perf_counter()
    broker.start(START_TIMEOUT_S)
    context.add("ready after kill -9", "s", name, time.perf_counter() - started)
    with Client(broker.bootstrap) as client:
        slowest_s = await_all(client)
        context.add("loaded after kill -9", "s", name, time.perf_counter() - started)
        context.add("slowest request while loading", "ms", name, slowest_s * 1000)
        for number, group_id in enumerate(groups()):
            if client.committed_offsets(group_id) != {(TOPIC, index): number + index for index in range(PARTITIONS)}:
                raise RuntimeError(f"the offsets of {group_id} are not what it committed")
    context.add("10,000 groups add after the start", "MB", name, at_rest(broker).anon_mb - idle.anon_mb)


def groups() -> Iterator[str]:
    """Their ids."""
    return (f"group-{number:05}" for number in range(GROUPS))


def commit_all(broker: Contestant) -> None:
    """One request of all partitions for each group, some at a time."""
    frames = [commit_frame(number, group_id) for number, group_id in enumerate(groups())]
    with connect(broker.bootstrap, START_TIMEOUT_S) as connection:
        for first in range(0, GROUPS, IN_FLIGHT):
            connection.sendall(b"".join(frames[first : first + IN_FLIGHT]))
            for _ in frames[first : first + IN_FLIGHT]:
                check_commit_reply(receive_frame(connection))


def commit_frame(number: int, group_id: str) -> bytes:
    """The commit of an offset of its own for every partition."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=number + index, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )
    return frame(OFFSET_COMMIT, request)


def await_all(client: Client) -> float:
    """Wait until every partition of the coordinator serves; returns the seconds of the slowest request meanwhile."""
    slowest_s = 0.0
    # Far more groups than partitions of the internal topic: every partition is asked.
    for group_id in islice(groups(), GROUPS // 10):
        while True:
            started = time.perf_counter()
            serves = client.coordinator_serves(group_id)
            slowest_s = max(slowest_s, time.perf_counter() - started)
            if serves:
                break
            time.sleep(0.005)
    return slowest_s
