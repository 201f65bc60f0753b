"""A Fetch's response: what it tells of the partitions that were looked at.

Owns: a partition's answer as the message has it, topics whose partitions come in portions, the hints of who leads, and
which partitions a session's reply tells of. Does not own what was read of them (``replication``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.handlers.leader_hints import name_leader
from pybroker.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, NO_FOLLOWER
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import fetch as messages
from pybroker_protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.handlers.context import RequestContext
    from pybroker.replication.fetch_session import FetchPartition, FetchSession

_LEADER_HINTS = FetchResponse.since("node_endpoints")
_WRONG_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


def empty_response(session: FetchSession | None) -> FetchResponse:
    """A response that tells of no partition yet."""
    session_id = INVALID_SESSION_ID if session is None else session.session_id
    return FetchResponse(throttle_time_ms=0, session_id=session_id, responses=[])


def news(session: FetchSession, partitions: Sequence[FetchPartition], epoch: int) -> Sequence[FetchPartition]:
    """The partitions that a session's reply tells of: all in a full one, those with news in an incremental one."""
    # A full reply tells everything, and what it tells is remembered all the same.
    changed = [fetched for fetched in partitions if fetched.has_news()]
    if session.follower == NO_FOLLOWER:  # a follower's are looked at in another order
        session.rotate([fetched for fetched in changed if len(fetched.records)])
    return changed if epoch != INITIAL_EPOCH else partitions


def tell(
    ctx: RequestContext, response: FetchResponse, partitions: Sequence[FetchPartition], by_id: bool, hints: bool = True
) -> None:
    """Add the answers of the partitions; their records belong to the response from then on, and a topic goes on.

    ``hints``: a client that asked the wrong broker learns who leads, so that it need not ask (KIP-951).
    """
    hints = hints and ctx.api_version >= _LEADER_HINTS
    topics = response.responses
    topic = topics[-1] if topics else None
    for fetched in partitions:
        if topic is None or (topic.topic_id != fetched.topic_id if by_id else topic.topic != fetched.topic):
            topic = FetchableTopicResponse(topic=fetched.topic or "", topic_id=fetched.topic_id, partitions=[])
            topics.append(topic)
        data = _partition_data(fetched)
        topic.partitions.append(data)
        if hints and data.error_code in _WRONG_LEADER:
            name_leader(ctx, messages, response, topic.topic_id, data.partition_index, data)


def _partition_data(fetched: FetchPartition) -> PartitionData:
    aborted = fetched.aborted_transactions
    data = PartitionData(
        partition_index=fetched.index,
        error_code=fetched.error_code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in aborted],
        records=fetched.records,
    )
    fetched.records = b""  # the reply owns the view now: a session must not pin a segment
    if fetched.preferred_read_replica >= 0:
        data.preferred_read_replica, fetched.preferred_read_replica = fetched.preferred_read_replica, -1
    if fetched.diverging_epoch is not None:
        epoch, end_offset = fetched.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        fetched.diverging_epoch = None
    return data
