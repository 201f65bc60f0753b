"""BrokerHeartbeat (key 63): a broker tells the controller that it is alive and what state it wants.

``full_log_dirs`` is none of Kafka's fields: the log dirs that have no room, all of them; None says nothing of room.
"""

from pybroker_protocol.schema import Bool, Int16, Int32, Int64, Request, Response, Uuid, field, since


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: list[Uuid] = since(1, tag=0)
    cordoned_log_dirs: list[Uuid] | None = since(2, tag=1)
    full_log_dirs: list[Uuid] | None = since(1, tag=100)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool
