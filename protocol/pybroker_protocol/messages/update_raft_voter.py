"""UpdateRaftVoter (key 82): a voter of the KRaft quorum announces other endpoints or versions."""

from pybroker_protocol.schema import (
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
)


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+"):
    cluster_id: NullableString = field(default="")
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature


class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: String
    port: Int32


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader = field(tag=0)
