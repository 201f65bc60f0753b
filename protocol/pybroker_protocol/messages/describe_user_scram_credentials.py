"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class UserName(Struct):
    name: String


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field(default=[])


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: NullableString = field(default="")
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
    results: list[DescribeUserScramCredentialsResult]
