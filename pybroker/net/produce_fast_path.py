"""The fast path for the request that a producer sends over and over: one batch for one partition.

Owns: ``ProduceFastPath``, which recognizes Produce requests by their bytes before the batch, which were decoded once,
and are the same every time. It hands the batches of requests that have arrived behind one another over together, and
fills the replies into a template. Owns no rule: ``handlers.produce.append_run`` asks those of the handler,
``Partition.append_run`` those of the partition, and the log those of records, all of them where the ordinary way asks
them. What any of them does not take goes the ordinary way through ``handlers.produce.handle``, which says what is the
matter. That is a client without permission, a rejected batch, a full segment or a busy log; also what has another
prefix or a large batch.

Deleting this module and its use in ``fast_paths`` changes no behaviour; ``tests/net/test_produce_fast_path.py`` holds
both ways to the same bytes, ``tests/net/test_one_serving_path.py`` to the same rules.  ``bench/produce_path.py``
measures it.

Where acknowledgements wait for other replicas, the requests of a run wait together: they have one place in the order of
replies, and one fate.

Invariants:
- A fast path is made only from a request that succeeded, or that waits for other replicas.
- A fast path holds for one connection, API version, client id, acks, topic and partition object, and ends with that
  object.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pybroker import storage_limits
from pybroker.handlers.context import Parked
from pybroker.handlers.produce import append_run, response_of
from pybroker.handlers.produce_appends import fill, name_leaders
from pybroker.net.framing import LENGTH_BYTES, PREFIX_AT
from pybroker.net.outbox import EncodedReplies, whole_reply
from pybroker.replication.partition import ACKS_ALL
from pybroker_protocol.messages.produce import PartitionProduceResponse, ProduceRequest, TopicProduceData
from pybroker_protocol.records import HEADER_BYTES

if TYPE_CHECKING:
    from pybroker.handlers.context import RequestContext
    from pybroker.net.dispatch import ServedApi
    from pybroker.net.outbox import Outbox
    from pybroker.net.reply_order import Replier
    from pybroker.replication.partition import Partition
    from pybroker.storage.results import AppendResult

# Small Produce requests of one connection that go into the log with one write.
PRODUCE_RUN_REQUESTS = 16

_LOG_START_OFFSET_SINCE = PartitionProduceResponse.since("log_start_offset")
_TOPIC_ID_SINCE = TopicProduceData.since("topic_id")
_UVARINT_BYTES_MAX = 5
_INT32 = Struct(">i").unpack_from
_TAGS_BYTES = 3  # empty tagged fields: of the partition, of the topic and of the request
# Numbers that no encoding of a reply holds by chance, to find out where its offsets stand.
_MARKS = (0x51A7E5C0FFEE1234, 0x51A7E5C0FFEE5678, 0x51A7E5C0FFEE9ABC)


class ProduceFastPath:
    __slots__ = (
        "_api",
        "_ctx",
        "_flexible",
        "_frame_start",
        "_frame_start_bytes",
        "_offsets",
        "_prefix",
        "_replier",
        "_reply",
        "_reply_bytes",
        "_reply_head",
        "_reply_tail",
        "_required_acks",
        "_timeout_ms",
        "_topic",
        "_version",
        "partition",
    )

    def __init__(
        self,
        replier: Replier,
        ctx: RequestContext,
        api: ServedApi,
        partition: Partition,
        request: ProduceRequest,
        prefix: bytes,
    ) -> None:
        self._replier = replier
        self._ctx = ctx
        self._api = api
        self._timeout_ms = request.timeout_ms
        self.partition = partition
        self._version = api.api_version
        self._required_acks = request.acks
        self._flexible = api.flexible_request
        self._prefix = prefix
        # Length, key and version (the key of Produce is 0, so that both are the version), correlation id, prefix.
        frame_start = Struct(f">iIi{len(prefix)}s")
        self._frame_start = frame_start.unpack_from
        self._frame_start_bytes = frame_start.size
        self._offsets = 3 if api.api_version >= _LOG_START_OFFSET_SINCE else 2
        topic = request.topic_data[0]
        self._topic = topic.name, topic.topic_id
        parts: list[Any] = []
        api.encode(response_of(topic.name, topic.topic_id, partition.index, *_MARKS), parts)
        body = b"".join(parts)
        marks = b"".join(mark.to_bytes(8, "big") for mark in _MARKS[: self._offsets])
        head, _, tail = body.partition(marks)
        self._reply_head = (b"\0" if api.flexible_reply else b"") + head
        self._reply_tail = tail
        reply = Struct(f">ii{len(self._reply_head)}s{'q' * self._offsets}{len(tail)}s")
        self._reply = reply.pack
        self._reply_bytes = reply.size - LENGTH_BYTES

    @property
    def waits(self) -> bool:
        """Whether its replies wait for other replicas, so that those like it may be served behind replies that wait."""
        return self._required_acks == ACKS_ALL and self.partition.followers is not None

    def serve(self, view: memoryview, pos: int, end: int, outbox: Outbox) -> tuple[int, int]:
        """Serve the frames of ``view[pos:end]`` from the first on as far as they are like the one this was made from.

        Gives back the position behind them and their number; their replies are in the ``outbox`` then, or have a place
        in the order of replies.
        """
        batches, correlation_ids, ends = self._cut(view, pos, end)
        if not batches:
            return pos, 0
        ctx, partition = self._ctx, self.partition
        ctx.correlation_id = correlation_ids[0]
        base_offsets = append_run(ctx, partition, batches, self._required_acks)
        if not base_offsets:
            return pos, 0
        requests = len(base_offsets)
        if self.waits:
            self._answer_later(correlation_ids[:requests], base_offsets, ends[requests - 1] - pos)
        else:
            replies = self._replies(correlation_ids, base_offsets, partition.log.log_start_offset)
            outbox.add_encoded(replies, requests * self._reply_bytes)
        return ends[requests - 1], requests

    def _answer_later(self, correlation_ids: list[int], base_offsets: list[int], frame_bytes: int) -> None:
        """Keep the requests' place among the replies, until the last of them is acknowledged."""
        parked = Parked()
        self._replier.park(self._api, correlation_ids[0], parked, frame_bytes)
        held = self._ctx.connection.hold_copy(frame_bytes)

        def acknowledged(result: AppendResult) -> None:
            held.release()
            if result.error_code:
                replies = [self._failure(*each, result) for each in zip(correlation_ids, base_offsets, strict=True)]
            else:
                replies = self._replies(correlation_ids, base_offsets, result.log_start_offset)
            parked.complete(EncodedReplies(replies))

        self.partition.await_run(base_offsets[0], self._timeout_ms, acknowledged)

    def _failure(self, correlation_id: int, base_offset: int, result: AppendResult) -> bytes:
        """The reply to a request that is appended and not acknowledged; it has its offset, as in Kafka."""
        response = response_of(*self._topic, self.partition.index, base_offset, -1, result.log_start_offset)
        reply = response.responses[0].partition_responses[0]
        fill(reply, result)
        reply.base_offset = base_offset
        name_leaders(self._ctx, response)
        return whole_reply(self._api, correlation_id, response)

    def _replies(self, correlation_ids: list[int], base_offsets: list[int], log_start_offset: int) -> list[bytes]:
        reply, reply_bytes, head, tail = self._reply, self._reply_bytes, self._reply_head, self._reply_tail
        replies: list[bytes] = []
        if self._offsets == len(_MARKS):
            for index, base_offset in enumerate(base_offsets):
                replies.append(
                    reply(reply_bytes, correlation_ids[index], head, base_offset, -1, log_start_offset, tail)
                )
        else:
            for index, base_offset in enumerate(base_offsets):
                replies.append(reply(reply_bytes, correlation_ids[index], head, base_offset, -1, tail))
        return replies

    def _cut(self, view: memoryview, pos: int, end: int) -> tuple[list[memoryview], list[int], list[int]]:
        """(batches, correlation ids, ends) of the frames that begin with the prefix and hold one small batch."""
        batches: list[memoryview] = []
        correlation_ids: list[int] = []
        ends: list[int] = []
        frame_start, frame_start_bytes = self._frame_start, self._frame_start_bytes
        version, prefix = self._version, self._prefix
        flexible = self._flexible
        batch_bytes_max = storage_limits.INLINE_WRITE_BYTES_MAX
        last_start = end - frame_start_bytes - HEADER_BYTES
        for _ in range(PRODUCE_RUN_REQUESTS):
            if pos > last_start:
                break
            size, key_and_version, correlation_id, its_prefix = frame_start(view, pos)
            stop = pos + LENGTH_BYTES + size
            if stop > end or key_and_version != version or its_prefix != prefix:
                break
            start = pos + frame_start_bytes
            if (
                flexible and view[start] >= 0x80 > view[start + 1]
            ):  # two bytes, as of most: ``_batch_size`` without a call
                batch_bytes = (view[start + 1] << 7 | view[start] & 0x7F) - 1
                start += 2
            else:
                batch_bytes, start = _batch_size(view, start, flexible)
            batch_end = start + batch_bytes
            if not HEADER_BYTES <= batch_bytes <= batch_bytes_max:
                break
            if flexible:
                if batch_end + _TAGS_BYTES != stop or view[batch_end] or view[batch_end + 1] or view[batch_end + 2]:
                    break
            elif batch_end != stop:
                break
            batches.append(view[start:batch_end])
            correlation_ids.append(correlation_id)
            ends.append(stop)
            pos = stop
        return batches, correlation_ids, ends


def fast_path_of_produce(
    replier: Replier, ctx: RequestContext, api: ServedApi, request: ProduceRequest, frame: memoryview
) -> ProduceFastPath | None:
    """The fast path for requests like this one, which has just been appended; None when it is not of the simple kind.

    The request has one batch for one partition; ``frame`` is it without its length.  A fast path keeps ``ctx``.
    """
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    key = topic.topic_id if api.api_version >= _TOPIC_ID_SINCE else topic.name
    partition = ctx.services.replicas.partition(key, data.index)
    if partition is None or not request.acks or not data.records or request.transactional_id is not None:
        return None
    flexible = api.flexible_request
    batch_bytes = len(data.records)
    start = len(frame) - batch_bytes - (_TAGS_BYTES if flexible else 0)
    if flexible and any(frame[start + batch_bytes :]):
        return None
    for length_bytes in range(1, _UVARINT_BYTES_MAX + 1) if flexible else (4,):
        prefix_end = start - length_bytes
        if prefix_end > PREFIX_AT and _batch_size(frame, prefix_end, flexible) == (batch_bytes, start):
            return ProduceFastPath(replier, ctx, api, partition, request, bytes(frame[PREFIX_AT:prefix_end]))
    return None


def _batch_size(view: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    """(size of the batch whose length stands at ``pos``, where the batch begins); size -1 when there is none.

    At least five bytes follow ``pos``.
    """
    if not flexible:
        return _INT32(view, pos)[0], pos + 4
    low = view[pos]
    if low < 0x80:
        return low - 1, pos + 1
    high = view[pos + 1]
    if high < 0x80:
        return (high << 7 | low & 0x7F) - 1, pos + 2
    value = low & 0x7F | (high & 0x7F) << 7
    shift = 14
    for byte in view[pos + 2 : pos + _UVARINT_BYTES_MAX]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value - 1, pos + shift // 7
    return -1, pos
