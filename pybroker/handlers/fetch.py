"""Fetch (key 1), versions 4 to 18.

Behaviour: incremental sessions from 7 (KIP-227), topic ids from 13 (KIP-516), long poll by ``min_bytes`` and
``max_wait_ms``, whole batches from the one that holds the offset, at least one batch (KIP-74); a negative limit is
none. ``read_committed`` stops at the last stable offset. A client that says what it fetched last hears where its log
diverges (``diverging_epoch``), one that asks the wrong broker who leads (KIP-951). From 11 a consumer may read a
follower, up to its high watermark, and is sent to one in its rack if ``replica.selector.class`` says so (KIP-392).
Followers ask by the listener between brokers, with the broker epoch that they are registered with. A replica id that
comes otherwise, or is no broker's, is refused with CLUSTER_AUTHORIZATION_FAILED, one with another epoch with
NOT_LEADER_OR_FOLLOWER. Neither moves anything. Before 15 the request has no epoch, so no follower is served.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.fetch_response import empty_response, tell
from pybroker.handlers.portions import at_once, portions, portions_of_topics
from pybroker.replication.consumer_fetch import ConsumerFetch
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
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from pybroker.quotas.client_quotas import ClientShare
    from pybroker.replication.fetch_operation import FetchOperation
    from pybroker.replication.fetch_session import FetchSessionCache
    from pybroker.replication.follower_fetch import FollowerFetch

_BY_ID = FetchTopic.since("topic_id")
_RACKS = FetchRequest.since("rack_id")
_REPLICA_EPOCH = FetchRequest.since("replica_state")
_SESSIONS = FetchRequest.since("session_id")
_READ_COMMITTED = 1
_READ, _TOPIC = AclOperation.READ, Resource.TOPIC  # a look into an enum is a third of what a question costs

# max_wait_ms of a fetch beyond this is cut (a client that asks for days would pin its entry for days).
FETCH_WAIT_MAX_MS = 600_000

# A session of more partitions is served portion by portion, however short the request is that goes on with it.
_AT_ONCE = limits.PARTITIONS_AT_ONCE


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Parked | Steps:
    """Answer at once or when enough is there."""
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else request.replica_id
    by_id = ctx.api_version >= _BY_ID
    if replica_id >= 0:
        refusal = refusal_of_follower(ctx, replica_id, request.replica_state.replica_epoch)
        if refusal:
            return _refuse(ctx, request, by_id, refusal)
    answer: FetchResponse | Parked | Steps = at_once(_fetch(ctx, request, replica_id, by_id))
    return answer


def _fetch(ctx: RequestContext, request: FetchRequest, replica_id: int, by_id: bool) -> Steps:
    """Find what is fetched, read it, and answer; pauses between portions alone."""
    reads_followers = _reads_followers(ctx.api_version, replica_id)
    asked: list[FetchPartition] = []
    for topics in portions_of_topics(request.topics, "partitions"):
        asked += _asked(ctx, topics, by_id, reads_followers)
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
                permitted += _permitted(ctx, some)
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
            tell(ctx, response, some if session is None else _news(session, some, epoch), by_id)
            if some is not answered:
                yield
    except GeneratorExit:  # the client is gone, but its session is not
        _drop_records(answered)
        raise
    return response


class RepeatedFetch:
    """A consumer's request for one partition, which it repeats with other offsets.

    ``net.fetch_fast_path`` recognizes it, and the functions that serve any fetch serve it.  ``named`` is the partition
    that it names, of the session if it has one; ``answered`` are the partitions that the last one of them was for.
    """

    __slots__ = (
        "_alone",
        "_key",
        "_max_bytes",
        "_min_bytes",
        "_rack",
        "_session",
        "_wanted",
        "answered",
        "max_wait_ms",
        "named",
        "reads_committed",
    )

    def __init__(
        self, ctx: RequestContext, request: FetchRequest, named: FetchPartition, session: FetchSession | None
    ) -> None:
        self.named = named
        self.answered = self._alone = [named]
        self.max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        self.reads_committed = request.isolation_level == _READ_COMMITTED
        self._max_bytes = _max_bytes(ctx, request)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._rack = _rack(ctx, request)
        self._session = session
        self._key = named.key(session is not None and session.by_id)
        (wanted,) = request.topics[0].partitions
        self._wanted = (
            _limit(wanted.partition_max_bytes),
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )

    @property
    def is_session(self) -> bool:
        """Whether it goes on with a session."""
        return self._session is not None

    def begin(
        self, ctx: RequestContext, epoch: int, offset: int | None, done: Callable[[list[FetchPartition]], None]
    ) -> ConsumerFetch | None:
        """The operation of one more request, to be started; None if ``handle`` is to answer: nothing has changed then.

        ``offset``: where ``named`` is read from now on; None where the request names nothing.  ``epoch``: a session's.
        """
        services, named, session = ctx.services, self.named, self._session
        replicas = services.replicas
        partition = named.partition
        if partition is None or partition.gone or services.quotas is not None:
            return None
        answered = self._alone
        if session is not None:
            if session.partitions.get(self._key) is not named or len(session.partitions) > _AT_ONCE:
                return None
            if replicas.sessions.resume(session.session_id, epoch, session.by_id) is not session:
                return None
            answered = session.all()
        if offset is not None:
            named.ask(offset, *self._wanted)
        self.answered = answered
        permitted = answered if services.authorizer is None else _permitted(ctx, answered)
        return ConsumerFetch(
            replicas, permitted, self._min_bytes, self._max_bytes, done, self.reads_committed, self._rack
        )

    def changed(self) -> Sequence[FetchPartition]:
        """What the answer tells of, once everything is read."""
        session = self._session
        return self.answered if session is None else _news(session, self.answered, session.epoch)

    def response(self, ctx: RequestContext, changed: Sequence[FetchPartition]) -> FetchResponse:
        """The answer that tells of these."""
        response = empty_response(self._session)
        tell(ctx, response, changed, ctx.api_version >= _BY_ID)
        return response


def repeated_fetch(ctx: RequestContext, request: FetchRequest) -> RepeatedFetch | None:
    """What repeats a consumer's request for one partition, which is served; None where it is not of the simple kind."""
    by_id = ctx.api_version >= _BY_ID
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_EPOCH else request.replica_id
    epoch = request.session_epoch if ctx.api_version >= _SESSIONS else FINAL_EPOCH
    if replica_id >= 0 or epoch == INITIAL_EPOCH or request.forgotten_topics_data:
        return None
    replicas = ctx.services.replicas
    (named,) = _asked(ctx, request.topics, by_id, _reads_followers(ctx.api_version, replica_id))
    if epoch == FINAL_EPOCH:
        if request.session_id != INVALID_SESSION_ID or named.topic is None or replicas.resolve(named) is None:
            return None
        return RepeatedFetch(ctx, request, named, None)
    session = replicas.sessions.get(request.session_id)
    known = None if session is None else session.partitions.get(named.key(by_id))
    return None if session is None or known is None else RepeatedFetch(ctx, request, known, session)


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
        or ctx.api_version < _REPLICA_EPOCH
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
    max_bytes = _max_bytes(ctx, request)
    if share is not None:
        max_bytes = min(max_bytes, share.fetch_bytes_max)
    return ConsumerFetch(
        services.replicas,
        partitions,
        min(request.min_bytes, max_bytes),
        max_bytes,
        done,
        request.isolation_level == _READ_COMMITTED,
        _rack(ctx, request),
    )


def _max_bytes(ctx: RequestContext, request: FetchRequest) -> int:
    """The bytes of one reply to a client without quotas; ``fetch.max.bytes`` does not change while a broker runs."""
    max_bytes: int = min(ctx.services.config["fetch.max.bytes"], limits.FETCH_REPLY_BYTES)
    return request.max_bytes if 0 <= request.max_bytes < max_bytes else max_bytes


def _rack(ctx: RequestContext, request: FetchRequest) -> str:
    """The client's, where consumers are sent to a replica in theirs."""
    return request.rack_id if ctx.services.replicas.selects_by_rack else ""


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


def _limit(max_bytes: int) -> int:
    """A negative limit is none."""
    return max_bytes if max_bytes >= 0 else limits.FETCH_REPLY_BYTES


def _reads_followers(api_version: int, replica_id: int) -> bool:
    """A client that is older than KIP-392 does not know that another than the leader may answer."""
    return replica_id == DEBUGGING_CONSUMER or (replica_id < 0 and api_version >= _RACKS)


def _asked(
    ctx: RequestContext, topics: Sequence[FetchTopic], by_id: bool, reads_followers: bool
) -> list[FetchPartition]:
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
                    _limit(wanted.partition_max_bytes),
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


def _news(session: FetchSession, partitions: Sequence[FetchPartition], epoch: int) -> Sequence[FetchPartition]:
    """Everything in a full reply, only the news in an incremental one."""
    # A full reply tells everything, and what it tells is remembered all the same.
    changed = [fetched for fetched in partitions if fetched.has_news()]
    if session.follower == NO_FOLLOWER:  # a follower's are looked at in another order
        session.rotate([fetched for fetched in changed if len(fetched.records)])
    return changed if epoch != INITIAL_EPOCH else partitions


def _refuse(ctx: RequestContext, request: FetchRequest, by_id: bool, error: int) -> Steps:
    of_all = error if ctx.api_version >= _SESSIONS and error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else 0
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
