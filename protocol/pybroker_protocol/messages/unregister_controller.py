"""UnregisterController (key 94): remove a controller's registration."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, field


class UnregisterControllerRequest(Request, key=94, versions="0", flexible="0+"):
    controller_id: Int32


class UnregisterControllerResponse(Response, key=94, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
