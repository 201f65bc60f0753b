"""Fetch (key 1), versions 4 to 18.

Behaviour: incremental sessions from 7 (KIP-227), topic ids from 13 (KIP-516), and long poll by ``min_bytes`` and
``max_wait_ms``. Whole batches are sent from the one that holds the offset, at least one batch (KIP-74). A negative
limit is none. ``read_committed`` stops at the last stable offset. A client that says what it fetched last hears where
its log diverges (``diverging_epoch``), one that asks the wrong broker who leads (KIP-951). From 11 a consumer may read
a follower, up to its high watermark, and is sent to one in its rack if ``replica.selector.class`` says so (KIP-392).
Followers ask by the listener between brokers, with the broker epoch that they are registered with. A replica id that
comes otherwise, or is no broker's, is refused with CLUSTER_AUTHORIZATION_FAILED, one with another epoch with
NOT_LEADER_OR_FOLLOWER. Neither moves anything. Before 15 the request has no epoch, so no follower is served.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.fetch_request import (
    BY_ID,
    FETCH_WAIT_MAX_MS,
    READ_COMMITTED,
    REPLICA_EPOCH,
    SESSIONS,
    asked_partitions,
    may_read_followers,
    permitted_partitions,
    rack_of,
    reply_bytes_max,
)
from pybroker.handlers.fetch_response import empty_response, news, tell
from pybroker.handlers.portions import at_once, portions, portions_of_topics
from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    NO_FOLLOWER,
    FetchPartition,
    FetchSession,
    PartitionKey,
)
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchRequest, FetchResponse, ForgottenTopic

if TYPE_CHECKING:
    from pybroker.quotas.client_quotas import ClientShare
    from pybroker.replication.fetch_operation import FetchOperation
    from pybroker.replication.fetch_session import FetchSessionCache
    from pybroker.replication.follower_fetch import FollowerFetch

# A session of more partitions is served portion by portion, however short the request is that goes on with it.
_AT_ONCE = limits.PARTITIONS_AT_ONCE


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Parked | Steps:
    """Answer at once or when enough is there."""
    replica_id = request.replica_state.replica_id if ctx.api_version >= REPLICA_EPOCH else request.replica_id
    by_id = ctx.api_version >= BY_ID
    if replica_id >= 0:
        refusal = refusal_of_follower(ctx, replica_id, request.replica_state.replica_epoch)
        if refusal:
            return _refuse(ctx, request, by_id, refusal)
    answer: FetchResponse | Parked | Steps = at_once(_fetch(ctx, request, replica_id, by_id))
    return answer


def _fetch(ctx: RequestContext, request: FetchRequest, replica_id: int, by_id: bool) -> Steps:
    """Find what is fetched, read it, and answer; pauses between portions alone."""
    reads_followers = may_read_followers(ctx.api_version, replica_id)
    asked: list[FetchPartition] = []
    for topics in portions_of_topics(request.topics, "partitions"):
        asked += asked_partitions(ctx, topics, by_id, reads_followers)
        if topics is not request.topics:
            yield
    sessions, epoch = ctx.services.replicas.sessions, request.session_epoch
    session, error = _session(ctx, request, by_id, sessions, len(asked))
    if error:
        return FetchResponse(throttle_time_ms=0, error_code=error, responses=[])
    if session is not None:
        named, asked = asked, []
        for some in portions(named, _AT_ONCE):
            asked += sessions.change(session, some)
            if some is not named:
                yield
        for forgotten in portions_of_topics(request.forgotten_topics_data, "partitions"):
            sessions.change(session, (), _forgotten(request, forgotten, by_id))
            if forgotten is not request.forgotten_topics_data:
                yield
        if not session.partitions:
            sessions.remove(session.session_id)
            session, asked = None, []
    operation: FetchOperation
    is_read, share = Parked(), None
    if replica_id >= 0:
        if session is None and not asked:  # it has more to ask for than the fetch of its that waits
            ctx.services.replicas.follower_watches.end_waiting(replica_id)
            return empty_response(None)
        operation = _follower_fetch(ctx, request, session, asked, is_read.complete)
    else:
        answered = permitted = asked if session is None else session.all()
        if ctx.services.authorizer is not None:
            permitted = []
            for some in portions(answered, _AT_ONCE):
                permitted += permitted_partitions(ctx, some)
                if some is not answered:
                    yield
        if len(answered) > _AT_ONCE:
            yield  # so that its answer is made portion by portion also where it waits
        share = None if ctx.services.quotas is None else _share(ctx)
        operation = _consumer_fetch(ctx, request, permitted, share, is_read.complete)
    is_read.on_abandon = operation.abandon
    operation.start(min(request.max_wait_ms, FETCH_WAIT_MAX_MS))
    looked_at = is_read.response if is_read.completed else (yield is_read)
    if replica_id >= 0:
        answered = looked_at
    try:
        if share is not None and (throttle_ms := share.fetched((yield from _size(answered)))):
            for some in portions(answered, _AT_ONCE):
                _drop_records(some)
                if some is not answered:
                    yield
            return _throttled(ctx, session, epoch, throttle_ms)
        response = empty_response(session)
        for some in portions(answered, _AT_ONCE):
            tell(ctx, response, some if session is None else news(session, some, epoch), by_id)
            if some is not answered:
                yield
    except GeneratorExit:  # the client is gone, but its session is not
        _drop_records(answered)
        raise
    return response


def _share(ctx: RequestContext) -> ClientShare | None:
    """What holds of quotas for the client; other brokers are held to none."""
    quotas = ctx.services.quotas
    return None if quotas is None or ctx.connection.is_broker else quotas.share(ctx.principal, ctx.client_id)


def _size(partitions: Sequence[FetchPartition]) -> Generator[None, None, int]:
    """Count the bytes of records that a reply would bring; what else is in it hardly counts."""
    size = 0
    for some in portions(partitions, _AT_ONCE):
        size += sum(len(fetched.records) for fetched in some)
        if some is not partitions:
            yield
    return size


def _drop_records(partitions: Sequence[FetchPartition]) -> None:
    """They are not sent, and a session must pin no segment."""
    for fetched in partitions:
        fetched.records = b""


def _throttled(ctx: RequestContext, session: FetchSession | None, epoch: int, throttle_ms: int) -> FetchResponse:
    """Nothing of what was read, and nothing counts as sent; a client whose session just began begins anew (KIP-219)."""
    if session is not None and epoch == INITIAL_EPOCH:
        ctx.services.replicas.sessions.remove(session.session_id)
        session = None
    response = empty_response(session)
    response.throttle_time_ms = throttle_ms
    return response


def refusal_of_follower(ctx: RequestContext, broker_id: int, broker_epoch: int) -> int:
    """Why a request that names itself a broker's is not believed, 0 if it is."""
    services = ctx.services
    broker = services.metadata.image.brokers.get(broker_id)
    if (
        broker is None
        or ctx.api_version < REPLICA_EPOCH
        or not ctx.connection.is_broker
        or not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if broker.epoch != broker_epoch or broker_id == services.broker_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return 0


def _consumer_fetch(
    ctx: RequestContext,
    request: FetchRequest,
    partitions: list[FetchPartition],
    share: ClientShare | None,
    done: Callable[[list[FetchPartition]], None],
) -> ConsumerFetch:
    services = ctx.services
    max_bytes = reply_bytes_max(ctx, request)
    if share is not None:
        max_bytes = min(max_bytes, share.fetch_bytes_max)
    return ConsumerFetch(
        services.replicas,
        partitions,
        min(request.min_bytes, max_bytes),
        max_bytes,
        done,
        request.isolation_level == READ_COMMITTED,
        rack_of(ctx, request),
    )


def _follower_fetch(
    ctx: RequestContext,
    request: FetchRequest,
    session: FetchSession | None,
    named: list[FetchPartition],
    done: Callable[[list[FetchPartition]], None],
) -> FollowerFetch:
    from pybroker.replication.follower_fetch import FollowerFetch

    replicas = ctx.services.replicas
    max_bytes = min(request.max_bytes, limits.FETCH_REPLY_BYTES)
    return FollowerFetch(
        replicas,
        replicas.follower_watches.of(request.replica_state.replica_id, session, named),
        broker_epoch=request.replica_state.replica_epoch,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        done=done,
    )


def _session(
    ctx: RequestContext, request: FetchRequest, by_id: bool, sessions: FetchSessionCache, size: int
) -> tuple[FetchSession | None, int]:
    """The session that the request, which names ``size`` partitions, starts, continues or does without; or an error.

    It is yet to be changed as the request says.
    """
    epoch = request.session_epoch if ctx.api_version >= SESSIONS else FINAL_EPOCH
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != INVALID_SESSION_ID:
            sessions.remove(request.session_id)
        if epoch == FINAL_EPOCH or not size:
            return None, 0
        follower = request.replica_state.replica_id if ctx.api_version >= REPLICA_EPOCH else NO_FOLLOWER
        return sessions.begin(size, by_id, max(follower, NO_FOLLOWER)), 0
    resumed = sessions.resume(request.session_id, epoch, by_id)
    return (resumed, 0) if isinstance(resumed, FetchSession) else (None, resumed)


def _forgotten(request: FetchRequest, topics: Sequence[ForgottenTopic], by_id: bool) -> list[PartitionKey]:
    """The keys of the partitions; a session that begins has nothing to forget."""
    if request.session_epoch == INITIAL_EPOCH:
        return []
    return [(topic.topic_id if by_id else topic.topic, index) for topic in topics for index in topic.partitions]


def _refuse(ctx: RequestContext, request: FetchRequest, by_id: bool, error: int) -> Steps:
    of_all = error if ctx.api_version >= SESSIONS and error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else 0
    response = FetchResponse(throttle_time_ms=0, error_code=of_all, responses=[])
    for topics in portions_of_topics(request.topics, "partitions"):
        refused = [
            FetchPartition(topic.topic, topic.topic_id, each.partition) for topic in topics for each in topic.partitions
        ]
        for fetched in refused:
            fetched.answer(error)
        tell(ctx, response, refused, by_id, hints=False)
        yield
    return response
