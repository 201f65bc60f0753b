"""The headers of requests and responses."""

from pybroker_protocol.schema import Header, Int16, Int32, NullableString, since


class RequestHeader(Header, versions="0-2", flexible="2+"):
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: NullableString = since(1, default="", flexible="none")


class ResponseHeader(Header, versions="0-1", flexible="1+"):
    correlation_id: Int32
