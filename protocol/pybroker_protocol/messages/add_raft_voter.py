"""AddRaftVoter (key 80): add a voter to the KRaft quorum."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    since,
)


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    cluster_id: NullableString = field(default="")
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = since(1, default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
