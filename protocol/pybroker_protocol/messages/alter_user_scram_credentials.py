"""AlterUserScramCredentials (key 51): add, change or delete SCRAM credentials of users."""

from pybroker_protocol.schema import Bytes, Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class ScramCredentialDeletion(Struct):
    name: String
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: NullableString = field(default="")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]
