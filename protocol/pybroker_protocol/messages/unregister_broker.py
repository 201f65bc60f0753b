"""UnregisterBroker (key 64): remove a broker's registration."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, field


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
