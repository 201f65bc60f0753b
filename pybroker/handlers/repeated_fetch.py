"""A consumer's Fetch of one partition that it repeats with other offsets, without decoding it anew.

Owns: ``RepeatedFetch``, one such request and how it is answered, and ``repeated_fetch``, which says whether a request
is of that kind. Does not own the bytes that are recognized (``net.fetch_fast_path``), nor a rule: the functions that
serve any fetch (``fetch_request``, ``fetch_response``) serve it.

Invariants:
- It is made only from a request of a consumer that is served.
- Permissions, the session and the partition are looked at anew for each request.
- What it does not take, ``fetch.handle`` answers, and nothing has changed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.handlers.fetch_request import (
    BY_ID,
    FETCH_WAIT_MAX_MS,
    READ_COMMITTED,
    REPLICA_EPOCH,
    SESSIONS,
    asked_partitions,
    limit_of,
    may_read_followers,
    permitted_partitions,
    rack_of,
    reply_bytes_max,
)
from pybroker.handlers.fetch_response import empty_response, news, tell
from pybroker.limits import PARTITIONS_AT_ONCE
from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pybroker.handlers.context import RequestContext
    from pybroker.replication.fetch_session import FetchPartition, FetchSession
    from pybroker_protocol.messages.fetch import FetchRequest, FetchResponse


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
        self.reads_committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = reply_bytes_max(ctx, request)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._rack = rack_of(ctx, request)
        self._session = session
        self._key = named.key(session is not None and session.by_id)
        (wanted,) = request.topics[0].partitions
        self._wanted = (
            limit_of(wanted.partition_max_bytes),
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
            if session.partitions.get(self._key) is not named or len(session.partitions) > PARTITIONS_AT_ONCE:
                return None
            if replicas.sessions.resume(session.session_id, epoch, session.by_id) is not session:
                return None
            answered = session.all()
        if offset is not None:
            named.ask(offset, *self._wanted)
        self.answered = answered
        permitted = answered if services.authorizer is None else permitted_partitions(ctx, answered)
        return ConsumerFetch(
            replicas, permitted, self._min_bytes, self._max_bytes, done, self.reads_committed, self._rack
        )

    def changed(self) -> Sequence[FetchPartition]:
        """What the answer tells of, once everything is read."""
        session = self._session
        return self.answered if session is None else news(session, self.answered, session.epoch)

    def response(self, ctx: RequestContext, changed: Sequence[FetchPartition]) -> FetchResponse:
        """The answer that tells of these."""
        response = empty_response(self._session)
        tell(ctx, response, changed, ctx.api_version >= BY_ID)
        return response


def repeated_fetch(ctx: RequestContext, request: FetchRequest) -> RepeatedFetch | None:
    """What repeats a consumer's request for one partition, which is served; None where it is not of the simple kind."""
    by_id = ctx.api_version >= BY_ID
    replica_id = request.replica_state.replica_id if ctx.api_version >= REPLICA_EPOCH else request.replica_id
    epoch = request.session_epoch if ctx.api_version >= SESSIONS else FINAL_EPOCH
    if replica_id >= 0 or epoch == INITIAL_EPOCH or request.forgotten_topics_data:
        return None
    replicas = ctx.services.replicas
    (named,) = asked_partitions(ctx, request.topics, by_id, may_read_followers(ctx.api_version, replica_id))
    if epoch == FINAL_EPOCH:
        if request.session_id != INVALID_SESSION_ID or named.topic is None or replicas.resolve(named) is None:
            return None
        return RepeatedFetch(ctx, request, named, None)
    session = replicas.sessions.get(request.session_id)
    known = None if session is None else session.partitions.get(named.key(by_id))
    return None if session is None or known is None else RepeatedFetch(ctx, request, known, session)
