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
    DEBUGGING_CONSUMER,
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
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from pybroker.quotas.client_quotas import ClientShare
    from pybroker.replication.fetch_session import FetchSessionCache

_BY_ID = 13
_RACKS = 11
_REPLICA_EPOCH = 15
_SESSIONS = 7
_LEADER_HINTS = 16
_WRONG_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
_READ_COMMITTED = 1
_READ, _TOPIC = AclOperation.READ, Resource.TOPIC  # a look into an enum is a third of what a question costs

# A session of more partitions is served portion by portion, however short the request is that goes on with it.
_AT_ONCE = limits.PARTITIONS_AT_ONCE

# What is told of the partitions that were read.
Done = Callable[[list[FetchPartition]], None]


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Parked | Steps:
    """Answer at once or when enough is there."""
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else request.replica_id
    by_id = ctx.api_version >= _BY_ID
    if replica_id >= 0:
        refusal = refusal_of_follower(ctx, replica_id, request.replica_state.replica_epoch)
        if refusal:
            return _refuse(ctx, request, by_id, refusal)
    # Whoever is older than KIP-392 does not know that another than the leader may answer.
    reads_followers = replica_id == DEBUGGING_CONSUMER or (replica_id < 0 and ctx.api_version >= _RACKS)
    if not is_short(request.topics, "partitions"):
        return _ask_for_many(ctx, request, by_id, reads_followers)
    asked = _asked(ctx, request.topics, by_id, reads_followers)
    sessions = ctx.services.replicas.sessions
    session, error = _session(ctx, request, by_id, sessions, len(asked))
    if error:
        return FetchResponse(throttle_time_ms=0, error_code=error, responses=[])
    if session is not None:
        forgotten = request.forgotten_topics_data
        if forgotten and not is_short(forgotten, "partitions"):
            return _change_much(ctx, request, by_id, session, asked)
        asked = sessions.change(session, asked, _forgotten(request, forgotten, by_id) if forgotten else ())
        if not session.partitions:
            sessions.remove(session.session_id)
            session, asked = None, []
    parked, epoch = Parked(), request.session_epoch
    if replica_id >= 0:
        return _start_follower(
            ctx,
            request,
            session,
            asked,
            parked,
            lambda looked_at: parked.complete(_response(ctx, session, _topics(_news_of_follower(looked_at), by_id))),
        )
    partitions = asked
    if session is not None:
        partitions = session.all()
        if len(partitions) > _AT_ONCE:
            return _read_many(ctx, request, by_id, session, partitions)
    share = None if ctx.services.quotas is None else _share(ctx)

    def done(_: object) -> None:
        if share is not None and (throttle_ms := share.fetched(_size(partitions))):
            _drop_records(partitions)
            parked.complete(_throttled(ctx, session, epoch, throttle_ms))
            return
        parked.complete(_response(ctx, session, _topics(_news(session, partitions, epoch), by_id)))

    permitted = partitions if ctx.services.authorizer is None else _permitted(ctx, partitions)
    return _start(ctx, request, permitted, share, parked, done)


def _ask_for_many(ctx: RequestContext, request: FetchRequest, by_id: bool, reads_followers: bool) -> Steps:
    """The request names many partitions: what ``handle`` does of few, portion by portion, as all that follows."""
    asked: list[FetchPartition] = []
    for topics_asked in portions_of_topics(request.topics, "partitions"):
        asked += _asked(ctx, topics_asked, by_id, reads_followers)
        yield
    session, error = _session(ctx, request, by_id, ctx.services.replicas.sessions, len(asked))
    if error:
        return FetchResponse(throttle_time_ms=0, error_code=error, responses=[])
    return (yield from _change_much(ctx, request, by_id, session, asked))


def _change_much(
    ctx: RequestContext, request: FetchRequest, by_id: bool, session: FetchSession | None, asked: list[FetchPartition]
) -> Steps:
    """The request names, or forgets, many partitions."""
    if session is not None:
        sessions = ctx.services.replicas.sessions
        named: list[FetchPartition] = []
        for some in portions(asked, _AT_ONCE):
            named += sessions.change(session, some)
            yield
        for topics in portions_of_topics(request.forgotten_topics_data, "partitions"):
            sessions.change(session, [], _forgotten(request, topics, by_id))
            yield
        asked = named
        if not session.partitions:
            sessions.remove(session.session_id)
            session, asked = None, []
    if request.replica_state.replica_id >= 0 and ctx.api_version >= _REPLICA_EPOCH:
        is_read = Parked()
        looked_at = yield _start_follower(ctx, request, session, asked, is_read, is_read.complete)
        return (yield from _answer_many(ctx, session, looked_at, _news_of_follower, by_id))
    partitions = asked if session is None else session.all()
    return (yield from _read_many(ctx, request, by_id, session, partitions))


def _read_many(
    ctx: RequestContext,
    request: FetchRequest,
    by_id: bool,
    session: FetchSession | None,
    partitions: list[FetchPartition],
) -> Steps:
    """There are many partitions to read; ``FetchOperation`` shares its work by itself."""
    epoch, permitted = request.session_epoch, partitions
    if ctx.services.authorizer is not None:
        permitted = []
        for some in portions(partitions, _AT_ONCE):
            permitted += _permitted(ctx, some)
            yield
    share = _share(ctx)
    is_read = Parked()
    try:
        yield _start(ctx, request, permitted, share, is_read, is_read.complete)
        if share is not None:
            size = 0
            for some in portions(partitions, _AT_ONCE):
                size += _size(some)
                yield
            if throttle_ms := share.fetched(size):
                for some in portions(partitions, _AT_ONCE):
                    _drop_records(some)
                    yield
                return _throttled(ctx, session, epoch, throttle_ms)
        return (yield from _answer_many(ctx, session, partitions, lambda some: _news(session, some, epoch), by_id))
    except GeneratorExit:  # the client is gone, but its session is not
        _drop_records(partitions)
        raise


def _answer_many(
    ctx: RequestContext,
    session: FetchSession | None,
    looked_at: list[FetchPartition],
    news: Callable[[Sequence[FetchPartition]], Sequence[FetchPartition]],
    by_id: bool,
) -> Steps:
    """The response with the ``news`` of what was looked at."""
    response = _response(ctx, session, [])
    for some in portions(looked_at, _AT_ONCE):
        topics = _topics(news(some), by_id)
        if ctx.api_version >= _LEADER_HINTS:
            _name_leaders(ctx, response, topics)
        _add_topics(response, topics)
        yield
    return response


def _share(ctx: RequestContext) -> ClientShare | None:
    """What holds of quotas for the client; other brokers are held to none."""
    quotas = ctx.services.quotas
    return None if quotas is None or ctx.connection.is_broker else quotas.share(ctx.principal, ctx.client_id)


def _size(partitions: Sequence[FetchPartition]) -> int:
    """What a reply would bring of records; what else is in it hardly counts."""
    return sum(len(fetched.records) for fetched in partitions)


def _drop_records(partitions: Sequence[FetchPartition]) -> None:
    """They are not sent, and a session must pin no segment."""
    for fetched in partitions:
        fetched.records = b""


def _throttled(ctx: RequestContext, session: FetchSession | None, epoch: int, throttle_ms: int) -> FetchResponse:
    """Nothing of what was read, and nothing counts as told; a client whose session just began begins anew (KIP-219)."""
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
    ctx: RequestContext, request: FetchRequest, by_id: bool, sessions: FetchSessionCache, size: int
) -> tuple[FetchSession | None, int]:
    """The session that the request, which names ``size`` partitions, starts, continues or does without; or an error.

    It is yet to be changed as the request says.
    """
    epoch = request.session_epoch if ctx.api_version >= _SESSIONS else FINAL_EPOCH
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != INVALID_SESSION_ID:
            sessions.remove(request.session_id)
        if epoch == FINAL_EPOCH or not size:
            return None, 0
        follower = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else NO_FOLLOWER
        return sessions.begin(size, by_id, max(follower, NO_FOLLOWER)), 0
    resumed = sessions.resume(request.session_id, epoch, by_id)
    return (resumed, 0) if isinstance(resumed, FetchSession) else (None, resumed)


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


def _forgotten(request: FetchRequest, topics: Sequence[ForgottenTopic], by_id: bool) -> list[PartitionKey]:
    """The keys of the partitions; a session that begins has nothing to forget."""
    if request.session_epoch == INITIAL_EPOCH:
        return []
    return [(topic.topic_id if by_id else topic.topic, index) for topic in topics for index in topic.partitions]


def _news(session: FetchSession | None, partitions: Sequence[FetchPartition], epoch: int) -> Sequence[FetchPartition]:
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


def _add_topics(response: FetchResponse, topics: list[FetchableTopicResponse]) -> None:
    """Add what follows; a topic that was cut goes on."""
    before = response.responses
    if before and topics and (before[-1].topic, before[-1].topic_id) == (topics[0].topic, topics[0].topic_id):
        before[-1].partitions.extend(topics.pop(0).partitions)
    before += topics


def _response(ctx: RequestContext, session: FetchSession | None, topics: list[FetchableTopicResponse]) -> FetchResponse:
    response = FetchResponse(
        throttle_time_ms=0, session_id=session.session_id if session else INVALID_SESSION_ID, responses=topics
    )
    if ctx.api_version >= _LEADER_HINTS:
        _name_leaders(ctx, response, topics)
    return response


def _name_leaders(ctx: RequestContext, response: FetchResponse, topics: list[FetchableTopicResponse]) -> None:
    for topic in topics:
        for data in topic.partitions:
            if data.error_code in _WRONG_LEADER:
                _name_leader(ctx, response, topic.topic_id, data)


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


def _refuse(ctx: RequestContext, request: FetchRequest, by_id: bool, error: int) -> Steps:
    of_all = error if ctx.api_version >= _SESSIONS and error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else 0
    response = FetchResponse(throttle_time_ms=0, error_code=of_all, responses=[])
    for topics in portions_of_topics(request.topics, "partitions"):
        refused = [
            FetchPartition(topic.topic, topic.topic_id, each.partition) for topic in topics for each in topic.partitions
        ]
        for fetched in refused:
            fetched.answer(error)
        _add_topics(response, _topics(refused, by_id))
        yield
    return response
