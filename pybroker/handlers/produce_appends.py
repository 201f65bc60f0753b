"""The appends of one Produce request: the reply as far as it is known, and when it may be sent.

Owns: counting the appends that are not acknowledged yet, holding the request's bytes or copies of them until then, and
what becomes of a request with acks=0.  Which batches may be appended is ``produce``'s and ``transactional_produce``'s.

A request is held only for batches of more than ``storage_limits.INLINE_WRITE_BYTES_MAX``; smaller ones are written, or
copied, before the handler returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker import storage_limits
from pybroker.handlers.context import NO_REPLY, CloseConnection, HeldRequest, Parked, RequestContext
from pybroker.handlers.leader_hints import name_leader
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import produce as messages
from pybroker_protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from pybroker.replication.partition import Partition
    from pybroker.storage.results import AppendResult


_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_LEADER_HINTS = PartitionProduceResponse.since("current_leader")
_BY_ID = messages.TopicProduceData.since("topic_id")


class ProduceAppends:
    """One request under way: the reply as far as it is known, and how many appends are still at the disk."""

    __slots__ = (
        "api_version",
        "copied_bytes",
        "has_other_leader",
        "held",
        "needs_request",
        "on_complete",
        "pending",
        "required_acks",
        "response",
        "timeout_ms",
    )

    def __init__(self, api_version: int, required_acks: int, timeout_ms: int) -> None:
        self.api_version = api_version
        self.required_acks = required_acks
        self.timeout_ms = timeout_ms
        self.response = ProduceResponse(responses=[], throttle_time_ms=0)
        self.pending = 0
        self.on_complete: Callable[[ProduceResponse], None] | None = None
        self.held: HeldRequest | None = None
        self.copied_bytes = 0  # of batches that a log has copied and not written yet
        self.has_other_leader = False  # some reply says so, and is to say who leads
        self.needs_request = False  # a log reads a batch from the request's bytes till it is done with it

    def append(self, partition: Partition, records: memoryview, reply: PartitionProduceResponse) -> None:
        """Append a batch; its reply is filled in now or later."""

        def written(result: AppendResult) -> None:
            self._fill(reply, result)
            self.pending -= 1
            self.complete_if_done()

        result = partition.append(records, self.required_acks, self.timeout_ms, self.api_version, written)
        if result is None:
            self.pending += 1
            if len(records) > storage_limits.INLINE_WRITE_BYTES_MAX:
                self.needs_request = True
            else:
                self.copied_bytes += len(records)
        else:
            self._fill(reply, result)

    def _fill(self, reply: PartitionProduceResponse, result: AppendResult) -> None:
        fill(reply, result)
        if result.error_code == _NOT_LEADER:
            self.has_other_leader = True

    def complete_if_done(self) -> None:
        """Hand over the response, if it is waited for and nothing is missing."""
        if self.pending:
            return
        if self.held is not None:
            self.held.release()
            self.held = None
        if self.on_complete is not None:
            self.on_complete(self.response)

    def answer(self, ctx: RequestContext) -> ProduceResponse | Parked | None:
        """The handler's answer, once every batch has been handed to its log."""
        if not self.pending:
            if self.has_other_leader:
                name_leaders(ctx, self.response)
            if self.required_acks:
                return self.response
            if (reason := reason_to_close(self.response)) is not None:
                raise CloseConnection(reason)
            return None
        if self.held is None:
            # Also before a connection is closed: a writer thread reads the records from the request.
            connection = ctx.connection
            self.held = connection.hold_request() if self.needs_request else connection.hold_copy(self.copied_bytes)
        return self.wait(ctx)

    def wait(self, ctx: RequestContext) -> Parked:
        """The handler's answer while something is missing; code that needs the request's bytes till then holds them.

        Also with acks=0: a request that waits without a place among the others would be bounded by nothing.
        """
        parked = Parked()
        if self.required_acks:

            def complete(response: ProduceResponse) -> None:
                if self.has_other_leader:
                    name_leaders(ctx, response)
                parked.complete(response)

            self.on_complete = complete
            return parked
        connection = ctx.connection

        def close_on_error(response: ProduceResponse) -> None:
            if (reason := reason_to_close(response)) is not None:
                connection.refuse(reason)
            else:
                parked.complete(NO_REPLY)

        self.on_complete = close_on_error
        return parked


def reason_to_close(response: ProduceResponse) -> str | None:
    """acks=0: the client learns of an error by the end of its connection, as in Kafka; None where there is none."""
    for topic in response.responses:
        for reply in topic.partition_responses:
            if reply.error_code:
                return f"produce with acks=0 to {topic.name}-{reply.index}: error {reply.error_code}"
    return None


def fill(reply: PartitionProduceResponse, result: AppendResult) -> None:
    """Write the fate of an append into its partition's reply."""
    reply.error_code = result.error_code
    reply.base_offset = result.base_offset
    reply.log_append_time_ms = result.log_append_time_ms
    reply.log_start_offset = result.log_start_offset
    if result.error_code:
        reply.error_message = result.error_message
        reply.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]


def name_leaders(ctx: RequestContext, response: ProduceResponse) -> None:
    """Say beside NOT_LEADER_OR_FOLLOWER who leads the partition and where that is (KIP-951)."""
    if ctx.api_version < _LEADER_HINTS:
        return
    for topic in response.responses:
        for reply in topic.partition_responses:
            if reply.error_code == _NOT_LEADER:
                key = topic.topic_id if ctx.api_version >= _BY_ID else topic.name
                name_leader(ctx, messages, response, key, reply.index, reply)
