"""BrokerRegistration (key 62): a broker registers with the controller."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    since,
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


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+"):
    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: NullableString = field(default="")
    is_migrating_zk_broker: Bool = since(1)
    log_dirs: list[Uuid] = since(2, ignorable=True)
    previous_broker_epoch: Int64 = since(3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)
