"""The fast path for the Fetch that a consumer repeats: one partition, and nothing new but the offset.

Owns: ``FetchFastPath``, which recognizes such requests by all of their bytes but the offset and the epoch of the
session; they were decoded once. It fills the records of one partition into a template of the reply. In a session it
also recognizes the request that names nothing new. Owns no rule: ``handlers.repeated_fetch.RepeatedFetch`` asks those
of the handler, and the operation reads, waits and answers as it does for any fetch. A reply that is more than one
partition's plain answer is built and encoded the ordinary way. What ``RepeatedFetch`` does not take (a partition that
has gone, another session, quotas), and what has other bytes, goes the ordinary way through ``handlers.fetch.handle``.

Deleting this module and its use in ``fast_paths`` changes no behaviour; ``tests/net/test_fetch_fast_path.py`` holds
both ways to the same bytes, ``tests/net/test_one_serving_path.py`` to the same rules.  ``bench/request_price.py``
measures it.

Invariants:
- A fast path is made only from a request of a consumer that is served.
- A fast path holds for one connection, API version, client id and session.
- One of its requests waits at a time, because a connection starts nothing behind a fetch.
"""

from __future__ import annotations

from copy import copy
from struct import Struct
from typing import TYPE_CHECKING, Any

from pybroker.handlers.context import Parked
from pybroker.handlers.repeated_fetch import RepeatedFetch, repeated_fetch
from pybroker.net.framing import LENGTH_BYTES, PREFIX_AT
from pybroker.net.outbox import EncodedReplies
from pybroker.replication.fetch_session import FetchPartition
from pybroker_protocol import codec
from pybroker_protocol.messages.fetch import PartitionData
from pybroker_protocol.primitives import uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.handlers.context import RequestContext
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.outbox import Outbox
    from pybroker.net.reply_order import Replier
    from pybroker_protocol.messages.fetch import FetchRequest

# The longest request that a connection remembers: with one partition it is some hundred bytes.
FETCH_FAST_PATH_BYTES = 1 << 10
# Older replies tell fewer offsets, and no client of today asks for them.
_VERSION_MIN = PartitionData.since("log_start_offset")
# Numbers that no request, and no reply, holds by chance, to find out where offsets and epochs stand.
_MARK_OFFSET, _MARK_EPOCH = 0x51A7E5C0FFEE1234, 0x51A7E5C0
_MARKS = (_MARK_OFFSET, 0x51A7E5C0FFEE5678, 0x51A7E5C0FFEE9ABC)
_NO_EPOCH = -1
_KEY_SHIFT, _LENGTH_SHIFT = 16, 32
_INT32 = Struct(">i").pack
_LENGTH_OF_RECORDS = 4  # its bytes where the version has no compact lengths


class _Frame:
    """The bytes of one shape of request: ``unpack`` gives ``start``, the correlation id, pieces and what changes."""

    __slots__ = ("pieces", "size", "start", "unpack")

    def __init__(self, api: ServedApi, pieces: tuple[bytes, ...], holes: str) -> None:
        body = "".join(f"{len(piece)}s{hole}" for piece, hole in zip(pieces, [*holes, ""], strict=True))
        frame = Struct(">Qi" + body)
        self.unpack = frame.unpack_from
        self.size = frame.size
        # Length, key and version as one number.
        self.start = (frame.size - LENGTH_BYTES) << _LENGTH_SHIFT | api.api_key << _KEY_SHIFT | api.api_version
        self.pieces = pieces


class _Reply:
    """The reply that tells of one partition and nothing else: offsets, records, and bytes that are always the same."""

    __slots__ = ("_bytes_around", "_flexible", "_head", "_middle", "_pack", "_tail")

    def __init__(self, api: ServedApi, fetch: RepeatedFetch, ctx: RequestContext) -> None:
        probe = FetchPartition(fetch.named.topic, fetch.named.topic_id, fetch.named.index)
        probe.high_watermark, probe.last_stable_offset, probe.log_start_offset = _MARKS
        probe.aborted_transactions = [] if fetch.reads_committed else None
        probe.records = b"r"
        parts: list[Any] = []
        api.encode(fetch.response(ctx, [probe]), parts)
        prefix, _, *tail = parts
        head, middle = bytes(prefix).split(b"".join(mark.to_bytes(8, "big") for mark in _MARKS))
        self._flexible = api.flexible_reply
        self._head = (b"\0" if api.flexible_reply else b"") + head
        self._middle = middle[: -1 if api.flexible_reply else -_LENGTH_OF_RECORDS]
        self._tail = b"".join(tail)
        reply = Struct(f">ii{len(self._head)}sqqq{len(self._middle)}s")
        self._pack = reply.pack
        self._bytes_around = reply.size - LENGTH_BYTES + len(self._tail)

    def parts(self, correlation_id: int, fetched: FetchPartition) -> tuple[list[Any], int]:
        """The reply in pieces, and their bytes; the records belong to it from then on."""
        records, fetched.records = fetched.records, b""
        count = len(records)
        if not self._flexible:
            length = _INT32(count)
        elif 0x7F <= count < 0x3FFF:  # two bytes, as of most: ``uvarint`` without the call
            length = bytes((count + 1 & 0x7F | 0x80, count + 1 >> 7))
        else:
            length = uvarint(count + 1)
        size = self._bytes_around + len(length) + count
        prefix = self._pack(
            size,
            correlation_id,
            self._head,
            fetched.high_watermark,
            fetched.last_stable_offset,
            fetched.log_start_offset,
            self._middle,
        )
        return [prefix, length, records, self._tail], size + LENGTH_BYTES


class FetchFastPath:
    waits = False  # a fetch is not served behind replies that wait

    __slots__ = (
        "_api",
        "_correlation_id",
        "_ctx",
        "_fetch",
        "_frames",
        "_is_read",
        "_is_session",
        "_parked",
        "_replier",
        "_reply",
    )

    def __init__(
        self, replier: Replier, ctx: RequestContext, api: ServedApi, fetch: RepeatedFetch, frames: tuple[_Frame, ...]
    ) -> None:
        self._replier = replier
        self._ctx = ctx
        self._api = api
        self._fetch = fetch
        self._frames = frames
        self._is_session = len(frames) > 1
        self._reply = _Reply(api, fetch, ctx)
        self._correlation_id = 0
        self._is_read = False
        self._parked: Parked | None = None

    def serve(self, view: memoryview, pos: int, end: int, outbox: Outbox) -> tuple[int, int]:
        """Serve the first frame of ``view[pos:end]``, if it is like the one that this was made from.

        Gives back the position behind it and 1, or ``pos`` and 0; its reply is in the ``outbox`` then, or comes later
        through the connection.
        """
        frame = self._frames[0]
        stop = pos + frame.size
        offset: int | None = None
        if not self._is_session:
            if stop > end:
                return pos, 0
            epoch = _NO_EPOCH
            start, correlation_id, before, offset, behind = frame.unpack(view, pos)
            if start != frame.start or (before, behind) != frame.pieces:
                return pos, 0
        else:
            start = correlation_id = epoch = 0
            if stop <= end:
                start, correlation_id, before, epoch, between, offset, behind = frame.unpack(view, pos)
            if start != frame.start or (before, between, behind) != frame.pieces:
                frame, offset = self._frames[1], None
                stop = pos + frame.size
                if stop > end:
                    return pos, 0
                start, correlation_id, before, epoch, behind = frame.unpack(view, pos)
                if start != frame.start or (before, behind) != frame.pieces:
                    return pos, 0
        self._ctx.correlation_id = self._correlation_id = correlation_id
        self._is_read = False
        fetch = self._fetch
        operation = fetch.begin(self._ctx, epoch, offset, self._on_read)
        if operation is None:
            return pos, 0
        operation.start(fetch.max_wait_ms)
        if self._is_read:
            self._answer(outbox)
        else:
            parked = self._parked = Parked()
            parked.on_abandon = operation.abandon
            self._replier.park(self._api, correlation_id, parked, frame.size)
        return stop, 1

    def _on_read(self, _: list[FetchPartition]) -> None:
        """What was asked is read, in the call that began it or later."""
        parked, self._parked = self._parked, None
        if parked is None:
            self._is_read = True
            return
        changed = self._fetch.changed()
        if self._is_plain(changed):
            parked.complete(EncodedReplies(self._reply.parts(self._correlation_id, changed[0])[0]))
        else:
            parked.complete(self._fetch.response(self._ctx, changed))

    def _answer(self, outbox: Outbox) -> None:
        changed = self._fetch.changed()
        if self._is_plain(changed):
            outbox.add_encoded(*self._reply.parts(self._correlation_id, changed[0]))
        else:
            self._replier.reply(self._api, self._correlation_id, self._fetch.response(self._ctx, changed))

    def _is_plain(self, changed: Sequence[FetchPartition]) -> bool:
        """Whether the reply is the partition's own, with records or without, and says nothing else."""
        named = self._fetch.named
        return (
            len(changed) == 1
            and changed[0] is named
            and not named.error_code
            and not named.aborted_transactions
            and named.diverging_epoch is None
            and named.preferred_read_replica < 0
        )


def fast_path_of_fetch(
    replier: Replier, ctx: RequestContext, api: ServedApi, request: FetchRequest, frame: memoryview
) -> FetchFastPath | None:
    """The fast path for requests like this one, which is served, or waits; None when it is not of the simple kind.

    ``frame`` is the request without its length.  It keeps ``ctx``.
    """
    if api.api_version < _VERSION_MIN or len(frame) > FETCH_FAST_PATH_BYTES:
        return None
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    fetch = repeated_fetch(ctx, request)
    if fetch is None:
        return None
    body = codec.encode(request, api.api_version)
    head_bytes = len(frame) - len(body)
    if frame[head_bytes:] != body:
        return None  # unknown tagged fields, bytes behind the last field
    head = bytes(frame[PREFIX_AT:head_bytes])
    marked = _marked(request, fetch.is_session)
    shapes = [(marked, "iq" if fetch.is_session else "q")]
    if fetch.is_session:
        marked = copy(marked)
        marked.topics = []
        shapes.append((marked, "i"))
    frames = []
    for shape, holes in shapes:
        first, *others = _pieces(shape, api.api_version, fetch.is_session)
        if len(others) != len(holes):
            return None
        frames.append(_Frame(api, (head + first, *others), holes))
    return FetchFastPath(replier, ctx, api, fetch, tuple(frames))


def _marked(request: FetchRequest, is_session: bool) -> FetchRequest:
    """A copy with marks in place of what changes."""
    marked, topic = copy(request), copy(request.topics[0])
    partition = copy(topic.partitions[0])
    partition.fetch_offset = _MARK_OFFSET
    topic.partitions, marked.topics = [partition], [topic]
    if is_session:
        marked.session_epoch = _MARK_EPOCH
    return marked


def _pieces(marked: FetchRequest, api_version: int, is_session: bool) -> list[bytes]:
    """The encoded request, cut at its marks, each of which stands in it once."""
    encoded = codec.encode(marked, api_version)
    pieces = encoded.split(_MARK_OFFSET.to_bytes(8, "big"))
    if is_session:
        first, *others = pieces
        pieces = [*first.split(_MARK_EPOCH.to_bytes(4, "big")), *others]
    return pieces
