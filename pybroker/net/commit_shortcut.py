"""The short way for the OffsetCommit that a consumer sends over and over, with nothing changed but the offsets.

Owns: ``CommitShortcut``, which recognizes such requests by all of their bytes but the offsets and leader epochs (they
were decoded once), hands those that have arrived behind one another to the coordinator as one operation, and answers
from a template.
Owns no rule: ``GroupCoordinator`` decides as it does for any commit, and what differs in more (other partitions,
metadata, generation) goes the ordinary way through ``handlers.offset_commit``.

Deleting this module and its use in ``connection`` changes no behaviour; ``tests/net/test_commit_shortcut.py`` holds
both ways to the same bytes.  ``bench/commit_path.py`` measures it.  When ACLs or quotas are served, whoever changes
them for a connection drops its shortcut.

Invariants: a shortcut is made only from a request of which every partition was committed; it holds for one connection,
API version and client id, and is dead once the metadata is another, since topics may have gone.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker.coordinators.group.offset_operations import BROKER_RETENTION, offset_commit_error
from pybroker.coordinators.group.repeated_commit import RepeatedCommit
from pybroker.handlers.context import Parked
from pybroker_protocol import codec
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from pybroker.coordinators.group.repeated_commit import CommittedPositions
    from pybroker.handlers.services import Services
    from pybroker.net.connection import Connection
    from pybroker.net.dispatch import ServedApi

# The bytes that all requests of a connection differ in: the correlation id stands in front of the client id.
PREFIX_AT = 8
_FRAME_LENGTH_BYTES = 4
_LEADER_EPOCH_SINCE = 6
_NO_LEADER_EPOCH = -1
# Numbers that no request holds by chance, to find out where its offsets and leader epochs stand.
_MARK_OFFSET, _MARK_EPOCH = 0x51A7E5C0FFEE1234, 0x51A7E5C0
_EPOCH_BYTES, _OFFSET_BYTES = 4, 8


class CommitShortcut:
    """See the module's docstring."""

    __slots__ = (
        "_api",
        "_commit",
        "_connection",
        "_frame",
        "_frame_bytes",
        "_has_epochs",
        "_key_and_version",
        "_metadata_epoch",
        "_reply",
        "_reply_body",
        "_reply_bytes",
        "_services",
        "_unchanged",
    )

    def __init__(
        self,
        connection: Connection,
        api: ServedApi,
        services: Services,
        commit: RepeatedCommit,
        unchanged: tuple[bytes, ...],
        response: OffsetCommitResponse,
    ) -> None:
        """``unchanged``: the bytes of a frame behind its correlation id, without the offsets and epochs."""
        self._connection = connection
        self._api = api
        self._services = services
        # Not the image itself: an idle connection would keep it.
        self._metadata_epoch = services.metadata.image.epoch
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
        self._reply_bytes = reply.size - _FRAME_LENGTH_BYTES

    def serve(self, view: memoryview, pos: int, end: int, replies: list[Any]) -> tuple[int, int, int]:
        """Serve the frames of ``view[pos:end]`` from the first on as far as they are like the one this was made from.

        Gives back the position behind them, their number and the bytes of their replies, which it adds, header and
        all, to ``replies``.  Those that come later, or are errors, go through the connection, which counts them.
        """
        if self._services.metadata.image.epoch != self._metadata_epoch:
            return pos, 0, 0
        requests, correlation_ids, pos = self._cut(view, pos, end)
        if not requests:
            return pos, 0, 0
        answer = _Answer(self, correlation_ids)
        self._services.groups.commit_offsets_again(self._commit, requests, answer.done)
        if answer.error_code != 0:
            answer.come_later(self._connection, self._api, self._frame_bytes)
            return pos, len(requests), 0
        reply, reply_bytes, body = self._reply, self._reply_bytes, self._reply_body
        for correlation_id in correlation_ids:
            replies.append(reply(reply_bytes, correlation_id, body))
        return pos, len(requests), len(requests) * reply_bytes

    def _cut(self, view: memoryview, pos: int, end: int) -> tuple[list[CommittedPositions], list[int], int]:
        """(positions, correlation ids, end) of the frames that differ from the first in their positions alone."""
        requests: list[CommittedPositions] = []
        correlation_ids: list[int] = []
        frame, frame_bytes = self._frame, self._frame_bytes
        size, key_and_version, unchanged = frame_bytes - _FRAME_LENGTH_BYTES, self._key_and_version, self._unchanged
        has_epochs = self._has_epochs
        last_start = min(end, pos + limits.COMMIT_RUN_BYTES) - frame_bytes
        while pos <= last_start:
            fields = frame(view, pos)
            if fields[0] != size or fields[1] != key_and_version:
                break
            if has_epochs:
                if fields[3::3] != unchanged:
                    break
                requests.append(list(zip(fields[4::3], fields[5::3], strict=True)))
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

    __slots__ = ("_parked", "_shortcut", "correlation_ids", "error_code")

    def __init__(self, shortcut: CommitShortcut, correlation_ids: list[int]) -> None:
        self._shortcut = shortcut
        self._parked: list[Parked] = []
        self.correlation_ids = correlation_ids
        self.error_code: int | None = None

    def done(self, error_code: int) -> None:
        self.error_code = error_code
        for parked in self._parked:
            parked.complete(self._shortcut.response(error_code))

    def come_later(self, connection: Connection, api: ServedApi, frame_bytes: int) -> None:
        """Give every request its place in the order of replies."""
        for correlation_id in self.correlation_ids:
            if self.error_code is not None:
                connection.reply(api, correlation_id, self._shortcut.response(self.error_code))
                continue
            parked = Parked()
            self._parked.append(parked)
            connection.park(api, correlation_id, parked, frame_bytes)


def shortcut_of_commit(
    connection: Connection,
    api: ServedApi,
    services: Services,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    frame: memoryview,
) -> CommitShortcut | None:
    """The shortcut for requests like this one, which has just been answered; None when it is not of the simple kind.

    ``request`` is as its handler leaves it; ``frame`` is it without its length.
    """
    if (
        request.retention_time_ms != BROKER_RETENTION
        or len(frame) > limits.COMMIT_SHORTCUT_BYTES
        or any(partition.error_code for topic in response.topics for partition in topic.partitions)
    ):
        return None
    body = codec.encode(request, api.api_version)
    head_bytes = len(frame) - len(body)
    if frame[head_bytes:] != body:
        return None  # tagged fields that nobody knows, bytes behind the last field
    first, *others = _without_positions(request, api.api_version)
    if not others:
        return None
    unchanged = (bytes(frame[PREFIX_AT:head_bytes]) + first, *others)
    commit = RepeatedCommit(request, api.api_version)
    return CommitShortcut(connection, api, services, commit, unchanged, response)


def _without_positions(request: OffsetCommitRequest, api_version: int) -> list[bytes]:
    """The encoded request, cut at its offsets and leader epochs; a single piece when they cannot be told."""
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
