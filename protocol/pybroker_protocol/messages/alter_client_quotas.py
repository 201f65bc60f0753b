"""AlterClientQuotas (key 49): set or remove quotas of clients."""

from pybroker_protocol.schema import (
    Bool,
    Float64,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    field,
)


class AlterClientQuotasRequestEntityData(Struct):
    entity_type: String
    entity_name: NullableString = field(default="")


class OpData(Struct):
    key: String
    value: Float64
    remove: Bool


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[AlterClientQuotasRequestEntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: Bool


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: String
    entity_name: NullableString = field(default="")


class AlterClientQuotasResponseEntryData(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")
    entity: list[AlterClientQuotasResponseEntityData]


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    entries: list[AlterClientQuotasResponseEntryData]
