"""SaslAuthenticate (key 36): one step of a SASL exchange."""

from pybroker_protocol.schema import Bytes, Int16, Int64, NullableString, Request, Response, field, since


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: NullableString = field(default="")
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = since(1, ignorable=True)
