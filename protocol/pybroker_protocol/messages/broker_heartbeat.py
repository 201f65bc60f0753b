"""BrokerHeartbeat (key 63): a broker tells the controller that it is alive and what state it wants.

Two fields are none of Kafka's. ``full_log_dirs`` are all log dirs that have no space; None says nothing of space.
``mirror_reports`` is what the broker has found in partitions that it mirrors from another cluster.
"""

from pybroker_protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    since,
)


class MirrorReportData(Struct):
    topic_id: Uuid
    partition_index: Int32
    leader_epoch: Int32
    kind: Int8
    reason: String


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: list[Uuid] = since(1, tag=0)
    cordoned_log_dirs: list[Uuid] | None = since(2, tag=1)
    full_log_dirs: list[Uuid] | None = since(1, tag=100)
    mirror_reports: list[MirrorReportData] = since(1, tag=101)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool
