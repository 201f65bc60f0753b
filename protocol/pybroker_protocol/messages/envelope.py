"""Envelope (key 58): a broker forwards a client's request to the controller."""

from pybroker_protocol.schema import Bytes, Int16, NullableBytes, Request, Response, field


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: Bytes
    request_principal: NullableBytes = field(default=b"")
    client_host_address: Bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: NullableBytes
    error_code: Int16
