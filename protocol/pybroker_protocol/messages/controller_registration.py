"""ControllerRegistration (key 70): a controller registers with the active one."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
)


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16
    security_protocol: Int16


class Feature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
