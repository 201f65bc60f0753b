"""Records of __consumer_offsets: committed offsets, and classic groups."""

from pybroker_protocol.schema import Bytes, DataRecord, Int32, Int64, NullableString, String, Struct, Uuid, field, since


class LegacyOffsetCommitKey(DataRecord, key=0, kind="key", versions="0"):
    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(DataRecord, key=0, kind="value", versions="0"):
    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(DataRecord, key=1, kind="key", versions="0"):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(DataRecord, key=1, kind="value", versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(versions="1", default=-1, ignorable=True)
    topic_id: Uuid = since(4, tag=0, ignorable=True)


class GroupMetadataKey(DataRecord, key=2, kind="key", versions="0"):
    group: String


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: NullableString = since(3, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(DataRecord, key=2, kind="value", versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: NullableString = field(default="")
    leader: NullableString = field(default="")
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: list[MemberMetadata]
