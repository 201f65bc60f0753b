"""Keys and values of control records: transaction markers, and those of the KRaft log and its snapshots.

With them the entry of a transaction index, which Kafka defines in the same way.
"""

from pybroker_protocol.schema import DataRecord, Int16, Int32, Int64, String, Struct, Uint16, Uuid, field, since


class ControlRecordTypeSchema(DataRecord, versions="0"):
    type: Int16


class EndTxnMarker(DataRecord, versions="0"):
    coordinator_epoch: Int32


class AbortedTxn(DataRecord, versions="0"):
    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


class KRaftVersionRecord(DataRecord, versions="0", flexible="0+"):
    version: Int16
    kraft_version: Int16


class LeaderChangeMessageVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = since(1)


class LeaderChangeMessage(DataRecord, versions="0-1", flexible="0+"):
    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


class SnapshotFooterRecord(DataRecord, versions="0", flexible="0+"):
    version: Int16


class SnapshotHeaderRecord(DataRecord, versions="0", flexible="0+"):
    version: Int16
    last_contained_log_timestamp: Int64


class Endpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class VotersRecordVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


class VotersRecord(DataRecord, versions="0", flexible="0+"):
    version: Int16
    voters: list[VotersRecordVoter]
