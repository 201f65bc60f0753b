"""Fetch (key 1), versions 4 to 18.

Behaviour: incremental sessions from 7 (KIP-227), topic ids from 13 (KIP-516), long poll by ``min_bytes`` and
``max_wait_ms``, whole batches from the one that holds the offset, at least one batch (KIP-74); a negative limit is
none.  ``read_committed`` stops at the last stable offset.  A client that says what it fetched last is told where its
log diverges (``diverging_epoch``), one that asks the wrong broker who leads (KIP-951).  From 11 a consumer may read a
follower, up to its high watermark, and is sent to one in its rack if ``replica.selector.class`` says so (KIP-392).
Followers ask by the listener between brokers, with the broker epoch that they are registered with: a replica id that
comes otherwise, or is nobody's, is refused with CLUSTER_AUTHORIZATION_FAILED, one with another epoch with
NOT_LEADER_OR_FOLLOWER, and neither moves anything.  Before 15 no epoch is told, so no follower is served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.leader_hints import leader_hint
from pybroker.handlers.portions import is_short, portions, portions_of_topics
from pybroker.replication.fetch import FetchOperation
from pybroker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    NO_FOLLOWER,
    FetchPartition,
    FetchSession,
    PartitionKey,
)
from pybroker.security.acls import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from pybroker.quotas.client_quotas import ClientShare

_BY_ID = 13
_RACKS = 11
_REPLICA_EPOCH = 15
_SESSIONS = 7
_LEADER_HINTS = 16
_WRONG_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
_READ_COMMITTED = 1
_READ, _TOPIC = AclOperation.READ, Resource.TOPIC  # a look into an enum is a third of what a question costs

# What is told of the partitions that were read.
Done = Callable[[list[FetchPartition]], None]


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Parked | Steps:
    """Answer at once or when enough is there."""
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else request.replica_id
    if replica_id >= 0:
        refusal = refusal_of_follower(ctx, replica_id, request.replica_state.replica_epoch)
        if refusal:
            return _refuse(ctx, request, refusal)
    by_id = ctx.api_version >= _BY_ID
    if not is_short(request.topics, "partitions"):
        return _fetch_many(ctx, request, by_id)
    # Whoever is older than KIP-392 does not know that another than the leader may answer.
    reads_followers = replica_id < 0 and ctx.api_version >= _RACKS
    session, named, error = _session(ctx, request, by_id, _asked(ctx, request.topics, by_id, reads_followers))
    if error:
        return FetchResponse(throttle_time_ms=0, error_code=error, responses=[])
    parked, epoch = Parked(), request.session_epoch
    if replica_id >= 0:
        return _start_follower(
            ctx,
            request,
            session,
            named,
            parked,
            lambda looked_at: parked.complete(_response(ctx, session, _topics(_news_of_follower(looked_at), by_id))),
        )
    partitions = named if session is None else session.all()
    share = None if ctx.services.quotas is None else _share(ctx)

    def done(_: object) -> None:
        if share is not None and (throttle_ms := share.fetched(_size(partitions))):
            parked.complete(_throttled(ctx, session, partitions, epoch, throttle_ms))
            return
        parked.complete(_response(ctx, session, _topics(_news(session, partitions, epoch), by_id)))

    permitted = partitions if ctx.services.authorizer is None else _permitted(ctx, partitions)
    return _start(ctx, request, permitted, share, parked, done)


def _fetch_many(ctx: RequestContext, request: FetchRequest, by_id: bool) -> Steps:
    """The same, portion by portion; ``FetchOperation`` shares its work by itself."""
    is_follower = ctx.api_version >= _REPLICA_EPOCH and request.replica_state.replica_id >= 0
    asked: list[FetchPartition] = []
    for topics_asked in portions_of_topics(request.topics, "partitions"):
        asked += _asked(ctx, topics_asked, by_id, ctx.api_version >= _RACKS and not is_follower)
        yield
    session, named, error = _session(ctx, request, by_id, asked)
    if error:
        return FetchResponse(throttle_time_ms=0, error_code=error, responses=[])
    is_read = Parked()
    if is_follower:
        news = _news_of_follower((yield _start_follower(ctx, request, session, named, is_read, is_read.complete)))
    else:
        partitions = permitted = named if session is None else session.all()
        if ctx.services.authorizer is not None:
            permitted = []
            for some in portions(partitions, limits.PARTITIONS_AT_ONCE):
                permitted += _permitted(ctx, some)
                yield
        share = _share(ctx)
        yield _start(ctx, request, permitted, share, is_read, is_read.complete)
        if share is not None and (throttle_ms := share.fetched(_size(partitions))):
            return _throttled(ctx, session, partitions, request.session_epoch, throttle_ms)
        news = _news(session, partitions, request.session_epoch)
    topics: list[FetchableTopicResponse] = []
    for some in portions(news, limits.PARTITIONS_AT_ONCE):
        following = _topics(some, by_id)
        if topics and (topics[-1].topic, topics[-1].topic_id) == (following[0].topic, following[0].topic_id):
            topics[-1].partitions.extend(following.pop(0).partitions)
        topics += following
        yield
    return _response(ctx, session, topics)


def _share(ctx: RequestContext) -> ClientShare | None:
    """What holds of quotas for the client; other brokers are held to none."""
    quotas = ctx.services.quotas
    return None if quotas is None or ctx.connection.is_broker else quotas.share(ctx.principal, ctx.client_id)


def _size(partitions: list[FetchPartition]) -> int:
    """What a reply would bring of records; what else is in it hardly counts."""
    return sum(len(fetched.records) for fetched in partitions)


def _throttled(
    ctx: RequestContext, session: FetchSession | None, partitions: list[FetchPartition], epoch: int, throttle_ms: int
) -> FetchResponse:
    """Nothing of what was read, and nothing counts as told; a client whose session just began begins anew (KIP-219)."""
    for fetched in partitions:
        fetched.records = b""
    if session is not None and epoch == INITIAL_EPOCH:
        ctx.services.replicas.sessions.remove(session.session_id)
        session = None
    session_id = INVALID_SESSION_ID if session is None else session.session_id
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id, responses=[])


def refusal_of_follower(ctx: RequestContext, broker_id: int, broker_epoch: int) -> int:
    """Why a request that names itself a broker's is not believed, 0 if it is."""
    services = ctx.services
    broker = services.metadata.image.brokers.get(broker_id)
    if (
        broker is None
        or ctx.api_version < _REPLICA_EPOCH
        or not ctx.connection.is_broker
        or not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if broker.epoch != broker_epoch or broker_id == services.broker_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return 0


def _start(
    ctx: RequestContext,
    request: FetchRequest,
    partitions: list[FetchPartition],
    share: ClientShare | None,
    parked: Parked,
    done: Done,
) -> Parked:
    """Read; ``done`` completes ``parked`` once enough is there."""
    services = ctx.services
    replicas = services.replicas
    max_bytes = min(services.config["fetch.max.bytes"], limits.FETCH_REPLY_BYTES)
    if 0 <= request.max_bytes < max_bytes:
        max_bytes = request.max_bytes
    if share is not None:
        max_bytes = min(max_bytes, share.fetch_bytes_max)
    operation = FetchOperation(
        replicas,
        partitions,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        read_committed=request.isolation_level == _READ_COMMITTED,
        done=done,
        rack=request.rack_id if replicas.selects_by_rack else "",
    )
    parked.on_abandon = operation.abandon
    operation.start(min(request.max_wait_ms, limits.FETCH_WAIT_MAX_MS))
    return parked


def _start_follower(
    ctx: RequestContext,
    request: FetchRequest,
    session: FetchSession | None,
    named: list[FetchPartition],
    parked: Parked,
    done: Done,
) -> Parked:
    """Read what is due for the follower; one that asks for nothing has its fetch answered that waits."""
    from pybroker.replication.follower_fetch import FollowerFetchOperation

    broker_id, watches = request.replica_state.replica_id, ctx.services.replicas.follower_watches
    if session is None and not named:
        watches.end_waiting(broker_id)
        done([])
        return parked
    max_bytes = min(request.max_bytes, limits.FETCH_REPLY_BYTES)
    operation = FollowerFetchOperation(
        ctx.services.replicas,
        watches.of(broker_id, session, named),
        broker_epoch=request.replica_state.replica_epoch,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        done=done,
    )
    parked.on_abandon = operation.abandon
    operation.start(min(request.max_wait_ms, limits.FETCH_WAIT_MAX_MS))
    return parked


def _session(
    ctx: RequestContext, request: FetchRequest, by_id: bool, asked: list[FetchPartition]
) -> tuple[FetchSession | None, list[FetchPartition], int]:
    """The session that the request starts, continues or does without, and the partitions that it names."""
    sessions = ctx.services.replicas.sessions
    epoch = request.session_epoch if ctx.api_version >= _SESSIONS else FINAL_EPOCH
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != INVALID_SESSION_ID:
            sessions.remove(request.session_id)
        if epoch == FINAL_EPOCH or not asked:
            return None, asked, 0
        follower = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else NO_FOLLOWER
        return sessions.create(asked, by_id, max(follower, NO_FOLLOWER)), asked, 0
    resumed = sessions.resume(request.session_id, epoch, by_id)
    if not isinstance(resumed, FetchSession):
        return None, [], resumed
    named = sessions.change(resumed, asked, _forgotten(request, by_id))
    if not resumed.partitions:
        sessions.remove(resumed.session_id)
        return None, [], 0
    return resumed, named, 0


def _asked(ctx: RequestContext, topics: list[FetchTopic], by_id: bool, reads_followers: bool) -> list[FetchPartition]:
    topics_by_id = ctx.services.metadata.image.topics_by_id
    asked = []
    for topic in topics:
        name: str | None = topic.topic
        if by_id:
            image = topics_by_id.get(topic.topic_id)
            name = image.name if image is not None else None
        for wanted in topic.partitions:
            limit = wanted.partition_max_bytes
            asked.append(
                FetchPartition(
                    name,
                    topic.topic_id,
                    wanted.partition,
                    wanted.fetch_offset,
                    limit if limit >= 0 else limits.FETCH_REPLY_BYTES,
                    wanted.current_leader_epoch,
                    wanted.last_fetched_epoch,
                    wanted.log_start_offset,
                    reads_followers,
                )
            )
    return asked


def _permitted(ctx: RequestContext, partitions: Sequence[FetchPartition]) -> list[FetchPartition]:
    """Those that the client may read, asked anew at each fetch of a session; the others are answered for."""
    permitted = []
    for fetched in partitions:
        if fetched.topic is None or ctx.authorize(_READ, _TOPIC, fetched.topic):
            permitted.append(fetched)
        else:
            fetched.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return permitted


def _forgotten(request: FetchRequest, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _news(session: FetchSession | None, partitions: list[FetchPartition], epoch: int) -> list[FetchPartition]:
    """Everything in a full reply, only the news in an incremental one."""
    if session is None:
        return partitions
    # A full reply tells everything, and what it tells is remembered all the same.
    told = [fetched for fetched in partitions if fetched.has_news()]
    session.rotate([fetched for fetched in told if len(fetched.records)])
    return told if epoch != INITIAL_EPOCH else partitions


def _news_of_follower(looked_at: Sequence[FetchPartition]) -> list[FetchPartition]:
    """The news of what was looked at; of a new session that is everything."""
    return [fetched for fetched in looked_at if fetched.has_news()]


def _topics(news: Sequence[FetchPartition], by_id: bool) -> list[FetchableTopicResponse]:
    topics: list[FetchableTopicResponse] = []
    topic: FetchableTopicResponse | None = None
    for fetched in news:
        if topic is None or (topic.topic_id != fetched.topic_id if by_id else topic.topic != fetched.topic):
            topic = FetchableTopicResponse(topic=fetched.topic or "", topic_id=fetched.topic_id, partitions=[])
            topics.append(topic)
        topic.partitions.append(_partition_data(fetched))
    return topics


def _response(ctx: RequestContext, session: FetchSession | None, topics: list[FetchableTopicResponse]) -> FetchResponse:
    response = FetchResponse(
        throttle_time_ms=0, session_id=session.session_id if session else INVALID_SESSION_ID, responses=topics
    )
    if ctx.api_version >= _LEADER_HINTS:
        for topic in topics:
            for data in topic.partitions:
                if data.error_code in _WRONG_LEADER:
                    _name_leader(ctx, response, topic.topic_id, data)
    return response


def _name_leader(ctx: RequestContext, response: FetchResponse, topic_id: bytes, data: PartitionData) -> None:
    """Tell the client who leads the partition and where that is, so that it need not ask (KIP-951)."""
    hint = leader_hint(ctx, topic_id, data.partition_index)
    if hint is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader, leader_epoch=hint.leader_epoch)
        if hint.node is not None and all(node.node_id != hint.leader for node in response.node_endpoints):
            node = hint.node
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            )


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


def _refuse(ctx: RequestContext, request: FetchRequest, error: int) -> FetchResponse:
    topics = []
    for asked in request.topics:
        partitions = []
        for wanted in asked.partitions:
            refused = FetchPartition(asked.topic, asked.topic_id, wanted.partition)
            refused.answer(error)
            partitions.append(_partition_data(refused))
        topics.append(FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions))
    of_all = error if ctx.api_version >= _SESSIONS and error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else 0
    return FetchResponse(throttle_time_ms=0, error_code=of_all, responses=topics)
