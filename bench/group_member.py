"""Becoming the only member of a classic group, as a load of commits needs it."""

from __future__ import annotations

import struct

from bench.wire import JOIN_GROUP, SYNC_GROUP, Client
from pybroker_protocol.messages.join_group import JoinGroupRequestProtocol
from pybroker_protocol.messages.sync_group import SyncGroupRequestAssignment

MEMBER_ID_REQUIRED = 79
SESSION_TIMEOUT_MS = 300_000


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
