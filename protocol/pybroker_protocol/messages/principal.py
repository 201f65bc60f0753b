"""The principal inside of an Envelope request."""

from pybroker_protocol.schema import Bool, DataRecord, String


class DefaultPrincipalData(DataRecord, versions="0", flexible="0+"):
    type: String
    name: String
    token_authenticated: Bool
