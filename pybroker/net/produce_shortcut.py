"""The short way for the request that a producer sends over and over: one batch for one partition.

Owns: ``ProduceShortcut``, which recognizes a Produce request by its bytes in front of the batch (they were decoded
once, and are the same every time), appends without decoding anything again, and fills the reply into a template.
Owns no rule: whatever is not a plain success (another prefix, a large batch, a partition that is gone, an error) goes
the ordinary way through ``handlers.produce``.

Deleting this module and its use in ``connection`` changes no behaviour; ``tests/net/test_produce_shortcut.py`` holds
both ways to the same bytes.  Measured by ``bench/produce_path.py`` it halves the broker's CPU for a small batch, the
write included (16.6 to 8.6 µs on a busy machine).  When ACLs or quotas are served, whoever changes them for a
connection drops its shortcut.

Invariants: a shortcut is made only from a request that succeeded; it holds for one connection, API version, client id,
acks, topic and partition object, and is dead once that object is gone.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker.handlers.context import Parked
from pybroker.handlers.produce import fill, response_of
from pybroker_protocol.messages.produce import ProduceRequest
from pybroker_protocol.records import ATTRIBUTES_AT, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from pybroker.handlers.context import HeldRequest
    from pybroker.net.connection import Connection
    from pybroker.net.dispatch import Endpoint
    from pybroker.replication.partition import Partition
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.storage.results import AppendResult

# The bytes that all requests of a connection differ in: the correlation id stands in front of the client id.
PREFIX_AT = 8
_LOG_START_OFFSET_SINCE = 5
_BY_ID_SINCE = 13
_UVARINT_BYTES_MAX = 5
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_INT32 = Struct(">i").unpack_from
_EMPTY_TAGS = bytes(3)  # of the partition, of the topic and of the request
# Numbers that no encoding of a reply holds by chance, to find out where its offsets stand.
_MARKS = (0x51A7E5C0FFEE1234, 0x51A7E5C0FFEE5678, 0x51A7E5C0FFEE9ABC)


class LateAppend:
    """An append that was not done at once: the reply is shaped in the ordinary way when it is."""

    __slots__ = ("held", "parked", "shortcut")

    def __init__(self, shortcut: ProduceShortcut) -> None:
        self.shortcut = shortcut
        self.parked: Parked | None = None
        self.held: HeldRequest | None = None

    def __call__(self, result: AppendResult) -> None:
        assert self.parked is not None
        assert self.held is not None
        self.held.release()
        self.parked.complete(self.shortcut.response(result))


class ProduceShortcut:
    """See the module's docstring."""

    __slots__ = (
        "_flexible",
        "_head",
        "_name",
        "_offsets",
        "_reply",
        "_reply_bytes",
        "_tail",
        "_topic_id",
        "endpoint",
        "partition",
        "prefix",
        "prefix_end",
    )

    def __init__(self, endpoint: Endpoint, partition: Partition, request: ProduceRequest, prefix: bytes) -> None:
        self.endpoint = endpoint
        self.partition = partition
        self.prefix = prefix
        self.prefix_end = PREFIX_AT + len(prefix)
        self._name = request.topic_data[0].name
        self._topic_id = request.topic_data[0].topic_id
        self._flexible = endpoint.flexible_request
        self._offsets = 3 if endpoint.api_version >= _LOG_START_OFFSET_SINCE else 2
        parts: list[Any] = []
        endpoint.encode(response_of(self._name, self._topic_id, partition.index, *_MARKS), parts)
        body = b"".join(parts)
        marks = b"".join(mark.to_bytes(8, "big") for mark in _MARKS[: self._offsets])
        head, _, tail = body.partition(marks)
        self._head = (b"\0" if endpoint.flexible_reply else b"") + head
        self._tail = tail
        self._reply_bytes = 4 + len(self._head) + len(marks) + len(tail)
        self._reply = Struct(f">ii{len(self._head)}s{'q' * self._offsets}{len(tail)}s")

    def serve(self, connection: Connection, frame: memoryview, key_and_version: int, correlation_id: int) -> bool:
        """Serve a request that is like the one this was made from; False when it is not."""
        endpoint = self.endpoint
        if (
            key_and_version != endpoint.api_version  # the key of Produce is 0, so that the number is the version
            or frame[PREFIX_AT : self.prefix_end] != self.prefix
            or (records := self.records_of(frame)) is None
        ):
            return False
        late = LateAppend(self)
        result = self.partition.append_as_leader(records, endpoint.api_version, late)
        if result is None:
            late.held = connection.hold_request()
            late.parked = Parked()
            connection.park(endpoint, correlation_id, late.parked, len(frame))
        elif result.error_code or connection.replies_wait:
            connection.reply(endpoint, correlation_id, self.response(result))
        else:
            connection.send_bytes(self.reply(correlation_id, result))
        return True

    def records_of(self, frame: memoryview) -> memoryview | None:
        """The batch in a frame that begins with the prefix; None when the frame goes the ordinary way."""
        size, start = _records_size(frame, self.prefix_end, self._flexible)
        if not _ATTRIBUTES_LOW_BYTE < size <= limits.INLINE_WRITE_BYTES_MAX or self.partition.gone:
            return None
        end = start + size
        tags = _EMPTY_TAGS if self._flexible else b""
        if len(frame) - end != len(tags) or frame[end:] != tags:
            return None
        if frame[start + _ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG:
            return None  # the handler refuses it: nothing would ever end its transaction
        return frame[start:end]

    def reply(self, correlation_id: int, result: AppendResult) -> bytes:
        """The whole reply to an append that succeeded."""
        offsets = (result.base_offset, result.log_append_time_ms, result.log_start_offset)[: self._offsets]
        return self._reply.pack(self._reply_bytes, correlation_id, self._head, *offsets, self._tail)

    def response(self, result: AppendResult) -> Any:
        """The reply's message, for everything but an immediate success."""
        response = response_of(self._name, self._topic_id, self.partition.index, -1, -1, -1)
        fill(response.responses[0].partition_responses[0], result)
        return response


def shortcut_of(
    endpoint: Endpoint, replicas: ReplicaManager, request: ProduceRequest, frame: memoryview
) -> ProduceShortcut | None:
    """The shortcut for requests like this one, which has just succeeded; None when it is not of the simple kind.

    The request has one batch for one partition.
    """
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    if endpoint.api_version >= _BY_ID_SINCE:
        partition = replicas.partition_by_id(topic.topic_id, data.index)
    else:
        partition = replicas.partition(topic.name, data.index)
    if partition is None or not request.acks or not data.records:
        return None
    flexible = endpoint.flexible_request
    start = len(frame) - len(data.records) - (len(_EMPTY_TAGS) if flexible else 0)
    for length_bytes in range(1, _UVARINT_BYTES_MAX + 1) if flexible else (4,):
        prefix_end = start - length_bytes
        if prefix_end > PREFIX_AT and _records_size(frame, prefix_end, flexible) == (len(data.records), start):
            shortcut = ProduceShortcut(endpoint, partition, request, bytes(frame[PREFIX_AT:prefix_end]))
            return shortcut if shortcut.records_of(frame) is not None else None
    return None


def _records_size(frame: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    """(size of the batch whose length stands at ``pos``, where the batch begins); size -1 when there is none."""
    if not flexible:
        return _INT32(frame, pos)[0] if len(frame) >= pos + 4 else -1, pos + 4
    value = shift = 0
    for byte in frame[pos : pos + _UVARINT_BYTES_MAX]:
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, pos
        shift += 7
    return -1, pos
