"""CreateDelegationToken (key 38): make a delegation token."""

from pybroker_protocol.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
)


class CreatableRenewers(Struct):
    principal_type: String
    principal_name: String


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: NullableString = since(3, default="")
    owner_principal_name: NullableString = since(3, default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since(3)
    token_requester_principal_name: String = since(3)
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
