"""RemoveRaftVoter (key 81): remove a voter from the KRaft quorum."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, Uuid, field


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    cluster_id: NullableString = field(default="")
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
