"""WriteTxnMarkers (key 27): the transaction coordinator writes commit or abort markers into partitions."""

from pybroker_protocol.schema import Bool, Int8, Int16, Int32, Int64, Request, Response, String, Struct, since


class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, ignorable=True)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult]
