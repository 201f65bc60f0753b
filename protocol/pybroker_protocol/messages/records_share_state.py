"""The records of __share_group_state."""

from pybroker_protocol.schema import DataRecord, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class ShareSnapshotKey(DataRecord, key=0, kind="key", versions="0"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValueStateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareSnapshotValue(DataRecord, key=0, kind="value", versions="0", flexible="0+"):
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotValueStateBatch]


class ShareUpdateKey(DataRecord, key=1, kind="key", versions="0"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValueStateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareUpdateValue(DataRecord, key=1, kind="value", versions="0", flexible="0+"):
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[ShareUpdateValueStateBatch]
