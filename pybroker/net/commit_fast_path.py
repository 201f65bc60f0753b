"""The fast path for the OffsetCommit that a consumer repeats, with nothing changed but the offsets.

Owns: ``CommitFastPath``, which recognizes such requests by all of their bytes but the offsets and leader epochs; they
were decoded once. It hands over those that have arrived behind one another as one operation, and answers from a
template. Owns no rule: ``handlers.offset_commit.commit_run`` asks those of the handler, and the group coordinator
(``offset_operations``) decides as it does for any commit. What ``commit_run`` does not take, and what differs in more
(other partitions, metadata, generation), goes the ordinary way through ``handlers.offset_commit.handle``.

Deleting this module and its use in ``fast_paths`` changes no behaviour; ``tests/net/test_commit_fast_path.py`` holds
both ways to the same bytes, ``tests/net/test_one_serving_path.py`` to the same rules.  ``bench/commit_path.py``
measures it.

Invariants:
- A fast path is made only from a request of which every partition was committed.
- A fast path holds for one connection, API version and client id, and ends when the metadata changes, since topics may
  have gone.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pybroker.coordinators.group.offsets.offset_operations import BROKER_RETENTION, offset_commit_error
from pybroker.coordinators.group.offsets.repeated_commit import RepeatedCommit
from pybroker.handlers.context import Parked
from pybroker.handlers.offset_commit import commit_run
from pybroker.net.framing import LENGTH_BYTES, PREFIX_AT
from pybroker_protocol import codec
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions
    from pybroker.handlers.context import RequestContext
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.outbox import Outbox
    from pybroker.net.reply_order import Replier

# OffsetCommit requests of one connection that become one batch: about eighty small ones, far below ``TIME_SLICE_NS``.
# And the longest that a connection remembers, of about forty partitions: that takes some twenty times as much memory.
COMMIT_RUN_BYTES = 8 << 10
COMMIT_FAST_PATH_BYTES = 1 << 10

_LEADER_EPOCH_SINCE = OffsetCommitRequestPartition.since("committed_leader_epoch")
_NO_LEADER_EPOCH = -1
# Numbers that no request holds by chance, to find out where its offsets and leader epochs stand.
_MARK_OFFSET, _MARK_EPOCH = 0x51A7E5C0FFEE1234, 0x51A7E5C0
_EPOCH_BYTES, _OFFSET_BYTES = 4, 8
_PIECES_AROUND_ONE = 2  # of a frame with the position of a single partition, as most are


class CommitFastPath:
    waits = False  # a commit is not served behind replies that wait

    __slots__ = (
        "_api",
        "_commit",
        "_ctx",
        "_frame",
        "_frame_bytes",
        "_has_epochs",
        "_image_epoch",
        "_key_and_version",
        "_replier",
        "_reply",
        "_reply_body",
        "_reply_bytes",
        "_unchanged",
    )

    def __init__(
        self,
        replier: Replier,
        ctx: RequestContext,
        api: ServedApi,
        commit: RepeatedCommit,
        unchanged: tuple[bytes, ...],
        response: OffsetCommitResponse,
    ) -> None:
        """``unchanged``: the bytes of a frame behind its correlation id, without the offsets and epochs."""
        self._ctx = ctx
        self._replier = replier
        self._api = api
        # Not the image itself: an idle connection would keep it.
        self._image_epoch = ctx.services.metadata.image.epoch
        self._commit = commit
        self._unchanged = unchanged
        self._key_and_version = api.api_key << 16 | api.api_version
        self._has_epochs = api.api_version >= _LEADER_EPOCH_SINCE
        hole = "qi" if self._has_epochs else "q"
        frame = Struct(">iIi" + hole.join(f"{len(part)}s" for part in unchanged))
        self._frame = frame.unpack_from
        self._frame_bytes = frame.size
        parts: list[Any] = [b"\0"] if api.flexible_reply else []
        api.encode(response, parts)
        self._reply_body = b"".join(parts)
        reply = Struct(f">ii{len(self._reply_body)}s")
        self._reply = reply.pack
        self._reply_bytes = reply.size - LENGTH_BYTES

    def serve(self, view: memoryview, pos: int, end: int, outbox: Outbox) -> tuple[int, int]:
        """Serve the frames of ``view[pos:end]`` from the first on as far as they are like the one this was made from.

        Gives back the position behind them and their number; their replies are in the ``outbox`` then, but for those
        that come later, or are errors: these go through the connection.
        """
        requests, correlation_ids, stop = self._cut(view, pos, end)
        if not requests:
            return pos, 0
        answer = _Answer(self, correlation_ids)
        self._ctx.correlation_id = correlation_ids[0]
        if not commit_run(self._ctx, self._commit, self._image_epoch, requests, answer.done):
            return pos, 0
        if answer.error_code is None or answer.error_code:  # not there yet, or refused
            answer.come_later(self._replier, self._api, self._frame_bytes)
            return stop, len(requests)
        reply, reply_bytes, body = self._reply, self._reply_bytes, self._reply_body
        replies: list[bytes] = []
        for correlation_id in correlation_ids:
            replies.append(reply(reply_bytes, correlation_id, body))
        outbox.add_encoded(replies, len(requests) * reply_bytes)
        return stop, len(requests)

    def _cut(self, view: memoryview, pos: int, end: int) -> tuple[list[CommittedPositions], list[int], int]:
        """(positions, correlation ids, end) of the frames that differ from the first in their positions alone."""
        requests: list[CommittedPositions] = []
        correlation_ids: list[int] = []
        frame, frame_bytes = self._frame, self._frame_bytes
        size, key_and_version, unchanged = frame_bytes - LENGTH_BYTES, self._key_and_version, self._unchanged
        has_epochs, is_of_one = self._has_epochs, len(unchanged) == _PIECES_AROUND_ONE
        last_start = min(end, pos + COMMIT_RUN_BYTES) - frame_bytes
        while pos <= last_start:
            fields = frame(view, pos)
            if fields[0] != size or fields[1] != key_and_version:
                break
            if has_epochs:
                if fields[3::3] != unchanged:
                    break
                requests.append([fields[4:6]] if is_of_one else list(zip(fields[4::3], fields[5::3], strict=True)))
            elif fields[3::2] != unchanged:
                break
            else:
                requests.append([(offset, _NO_LEADER_EPOCH) for offset in fields[4::2]])
            correlation_ids.append(fields[2])
            pos += frame_bytes
        return requests, correlation_ids, pos

    def response(self, error_code: int) -> OffsetCommitResponse:
        """The message for everything but an immediate success."""
        return offset_commit_error(self._commit.request, error_code)


class _Answer:
    """The coordinator's answer to several requests, which may come inside the call or later."""

    __slots__ = ("_fast_path", "_parked", "correlation_ids", "error_code")

    def __init__(self, fast_path: CommitFastPath, correlation_ids: list[int]) -> None:
        self._fast_path = fast_path
        self._parked: list[Parked] = []
        self.correlation_ids = correlation_ids
        self.error_code: int | None = None

    def done(self, error_code: int) -> None:
        self.error_code = error_code
        for parked in self._parked:
            parked.complete(self._fast_path.response(error_code))

    def come_later(self, connection: Replier, api: ServedApi, frame_bytes: int) -> None:
        """Give every request its place in the order of replies."""
        for correlation_id in self.correlation_ids:
            if self.error_code is not None:
                connection.reply(api, correlation_id, self._fast_path.response(self.error_code))
                continue
            parked = Parked()
            self._parked.append(parked)
            connection.park(api, correlation_id, parked, frame_bytes)


def fast_path_of_commit(
    replier: Replier,
    ctx: RequestContext,
    api: ServedApi,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    frame: memoryview,
) -> CommitFastPath | None:
    """The fast path for requests like this one, which has just been answered; None when it is not of the simple kind.

    ``request`` is as its handler leaves it; ``frame`` is it without its length.  A fast path keeps ``ctx``.
    """
    if (
        request.retention_time_ms != BROKER_RETENTION
        or len(frame) > COMMIT_FAST_PATH_BYTES
        or any(partition.error_code for topic in response.topics for partition in topic.partitions)
    ):
        return None
    body = codec.encode(request, api.api_version)
    head_bytes = len(frame) - len(body)
    if frame[head_bytes:] != body:
        return None  # unknown tagged fields, bytes behind the last field
    first, *others = _without_positions(request, api.api_version)
    if not others:
        return None
    unchanged = (bytes(frame[PREFIX_AT:head_bytes]) + first, *others)
    commit = RepeatedCommit(request, api.api_version)
    return CommitFastPath(replier, ctx, api, commit, unchanged, response)


def _without_positions(request: OffsetCommitRequest, api_version: int) -> list[bytes]:
    """The encoded request, cut at its offsets and leader epochs; a single piece when they cannot be found."""
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    kept = [(partition.committed_offset, partition.committed_leader_epoch) for partition in partitions]
    for partition in partitions:
        partition.committed_offset, partition.committed_leader_epoch = _MARK_OFFSET, _MARK_EPOCH
    mark = _MARK_OFFSET.to_bytes(_OFFSET_BYTES, "big")
    if api_version >= _LEADER_EPOCH_SINCE:
        mark += _MARK_EPOCH.to_bytes(_EPOCH_BYTES, "big")
    pieces = codec.encode(request, api_version).split(mark)
    for partition, (offset, leader_epoch) in zip(partitions, kept, strict=True):
        partition.committed_offset, partition.committed_leader_epoch = offset, leader_epoch
    return pieces if len(pieces) == len(partitions) + 1 else pieces[:1]
