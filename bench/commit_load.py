"""A raw pipelined committer of offsets: members of groups of their own, over plain sockets.

``python -m bench.commit_load``; takes a job of ``bench.raw_load`` as JSON on stdin and prints its outcome as JSON.

Every connection is the only member of a group of its own, committed to the broker's coordinator, and commits the
offset of one partition, one more each time, ``in_flight`` at once.  In the end the broker is asked what it has.
"""

from __future__ import annotations

import gc
import json
import struct
import sys
import uuid
from contextlib import ExitStack
from dataclasses import asdict

from bench.raw_load import Connection, Job, Outcome, drive
from bench.wire import (
    JOIN_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    Client,
    decode_reply,
    exchange,
    frame,
)
from pybroker_protocol.messages.join_group import JoinGroupRequestProtocol
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pybroker_protocol.messages.sync_group import SyncGroupRequestAssignment

MEMBER_ID_REQUIRED = 79
SESSION_TIMEOUT_MS = 300_000
_OFFSET = struct.Struct(">q")
# A number that no request holds by chance, to find out where its offset stands.
_MARK = 0x51A7E5C0FFEE1234


class Committer(Connection):
    """One member; each commit is of the next offset."""

    def __init__(self, bootstrap: str, frame_of_mark: bytes, in_flight: int) -> None:
        super().__init__(bootstrap, frame_of_mark, in_flight)
        self.prepare(frame_of_mark)

    def prepare(self, frame_of_mark: bytes) -> None:
        """Find the place of the offset."""
        self.offset = -1
        self._frame = bytearray(frame_of_mark)
        self._at = frame_of_mark.index(_OFFSET.pack(_MARK))

    def next_frame(self) -> bytes:
        self.offset += 1
        _OFFSET.pack_into(self._frame, self._at, self.offset)
        return bytes(self._frame)

    def send(self, count: int, now: float) -> bool:
        self.bursts[count] = b"".join([self.next_frame() for _ in range(count)])
        return super().send(count, now)


def join(client: Client, group_id: str, topic: str) -> tuple[str, int]:
    """Become the only member of a group: (member id, generation)."""
    joined = None
    while joined is None or joined.error_code == MEMBER_ID_REQUIRED:
        joined = client.call(
            JOIN_GROUP,
            group_id=group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=joined.member_id if joined else "",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic))],
            reason=None,
        )
    if joined.error_code:
        raise RuntimeError(f"join {group_id}: error {joined.error_code}")
    synced = client.call(
        SYNC_GROUP,
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    if synced.error_code:
        raise RuntimeError(f"sync {group_id}: error {synced.error_code}")
    return joined.member_id, joined.generation_id


def subscription(topic: str) -> bytes:
    """A consumer's metadata of the oldest version: version, topics, user data."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def commit_frame(group_id: str, member: tuple[str, int], topic: str, partition: int) -> bytes:
    """The commit of one partition by a member, with the mark for an offset."""
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=_MARK, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
    )
    return frame(OFFSET_COMMIT, request)


def check_reply(reply: bytes | bytearray) -> None:
    """Raise ``RuntimeError`` unless the commit was taken."""
    response: OffsetCommitResponse = decode_reply(OFFSET_COMMIT, reply)
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise RuntimeError(f"commit: error {partition.error_code}")


def run(job: Job) -> Outcome:
    """Do the job in this process."""
    groups = [f"bench-{uuid.uuid4().hex[:8]}" for _ in range(job.connections)]
    with Client(job.bootstrap) as client, ExitStack() as stack:
        committers = []
        for partition, group_id in enumerate(groups):
            client.await_coordinator(group_id)
            commit = commit_frame(group_id, join(client, group_id, job.topic), job.topic, partition)
            committers.append(Committer(job.bootstrap, commit, job.in_flight))
            stack.enter_context(committers[-1].socket)
        for committer in committers:
            check_reply(exchange(committer.socket, committer.next_frame()))
        outcome = drive(job, committers, len(committers[0].frame))
        for partition, (group_id, committer) in enumerate(zip(groups, committers, strict=True)):
            committed = client.committed_offsets(group_id)
            if committed != {(job.topic, partition): committer.offset}:
                raise RuntimeError(f"{group_id} committed offset {committer.offset}, the broker has {committed}")
    return outcome


if __name__ == "__main__":
    # A collection in the generator would show as a latency of the broker.
    gc.disable()
    json.dump(asdict(run(Job(**json.load(sys.stdin)))), sys.stdout)
