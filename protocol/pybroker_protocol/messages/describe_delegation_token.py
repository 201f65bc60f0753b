"""DescribeDelegationToken (key 41): the delegation tokens of owners."""

from pybroker_protocol.schema import Bytes, Int16, Int32, Int64, Request, Response, String, Struct, field, since


class DescribeDelegationTokenOwner(Struct):
    principal_type: String
    principal_name: String


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field(default=[])


class DescribedDelegationTokenRenewer(Struct):
    principal_type: String
    principal_name: String


class DescribedDelegationToken(Struct):
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3)
    token_requester_principal_name: String = since(3)
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32
