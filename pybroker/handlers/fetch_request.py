"""A Fetch's request: what it asks for, and what of it the client may have.

Owns: the partitions that a request names, which of them the client may read, the limits in bytes, and the versions from
which the message has a field. Does not own sessions (``replication.fetch_session``), nor what is done with a request
(``fetch``, ``repeated_fetch``).

Invariant: a topic is asked for by its name only, so a partition without a name is never read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker import limits
from pybroker.handlers.context import RequestContext
from pybroker.replication.fetch_session import DEBUGGING_CONSUMER, FetchPartition
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchRequest, FetchTopic

BY_ID = FetchTopic.since("topic_id")
REPLICA_EPOCH = FetchRequest.since("replica_state")
SESSIONS = FetchRequest.since("session_id")
READ_COMMITTED = 1

_RACKS = FetchRequest.since("rack_id")
_READ, _TOPIC = AclOperation.READ, Resource.TOPIC  # a look into an enum is a third of what a question costs

# max_wait_ms of a fetch beyond this is cut (a client that asks for days would pin its entry for days).
FETCH_WAIT_MAX_MS = 600_000


def reply_bytes_max(ctx: RequestContext, request: FetchRequest) -> int:
    """The bytes of one reply to a client without quotas; ``fetch.max.bytes`` does not change while a broker runs."""
    max_bytes: int = min(ctx.services.config["fetch.max.bytes"], limits.FETCH_REPLY_BYTES)
    return request.max_bytes if 0 <= request.max_bytes < max_bytes else max_bytes


def rack_of(ctx: RequestContext, request: FetchRequest) -> str:
    """The client's, where consumers are sent to a replica in theirs."""
    return request.rack_id if ctx.services.replicas.selects_by_rack else ""


def limit_of(max_bytes: int) -> int:
    """A negative limit is none."""
    return max_bytes if max_bytes >= 0 else limits.FETCH_REPLY_BYTES


def may_read_followers(api_version: int, replica_id: int) -> bool:
    """A client that is older than KIP-392 does not know that another than the leader may answer."""
    return replica_id == DEBUGGING_CONSUMER or (replica_id < 0 and api_version >= _RACKS)


def asked_partitions(
    ctx: RequestContext, topics: Sequence[FetchTopic], by_id: bool, reads_followers: bool
) -> list[FetchPartition]:
    """What the topics of a request name, in its order; ``by_id``: the request's version names them by their ids."""
    topics_by_id = ctx.services.metadata.image.topics_by_id
    asked = []
    for topic in topics:
        name: str | None = topic.topic
        if by_id:
            image = topics_by_id.get(topic.topic_id)
            name = image.name if image is not None else None
        for wanted in topic.partitions:
            asked.append(
                FetchPartition(
                    name,
                    topic.topic_id,
                    wanted.partition,
                    wanted.fetch_offset,
                    limit_of(wanted.partition_max_bytes),
                    wanted.current_leader_epoch,
                    wanted.last_fetched_epoch,
                    wanted.log_start_offset,
                    reads_followers,
                )
            )
    return asked


def permitted_partitions(ctx: RequestContext, partitions: Sequence[FetchPartition]) -> list[FetchPartition]:
    """Those that the client may read, asked anew at each fetch of a session; the others are answered for.

    A topic is looked up before: what has no name cannot be asked for, and would be read if it had one by then.
    """
    permitted = []
    for fetched in partitions:
        if fetched.topic is None:
            topic = ctx.services.metadata.image.topics_by_id.get(fetched.topic_id)
            if topic is None:
                fetched.answer(ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            fetched.topic = topic.name
        if ctx.authorize(_READ, _TOPIC, fetched.topic):
            permitted.append(fetched)
        else:
            fetched.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return permitted
