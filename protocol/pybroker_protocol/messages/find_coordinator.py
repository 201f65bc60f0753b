"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or a share partition."""

from pybroker_protocol.schema import (
    Int8,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    field,
    since,
    until,
)


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: String = until(3)
    key_type: Int8 = since(1)
    coordinator_keys: list[String] = since(4)


class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString = field(default="")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = until(3)
    error_message: NullableString = field(versions="1-3", default="", ignorable=True)
    node_id: Int32 = until(3)
    host: String = until(3)
    port: Int32 = until(3)
    coordinators: list[Coordinator] = since(4)
