"""SaslHandshake (key 17): a client picks the SASL mechanism."""

from pybroker_protocol.schema import Int16, Request, Response, String


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: String


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: Int16
    mechanisms: list[String]
