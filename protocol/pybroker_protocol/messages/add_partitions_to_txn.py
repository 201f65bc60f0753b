"""AddPartitionsToTxn (key 24): partitions become part of a transaction."""

from pybroker_protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, field, since, until


class AddPartitionsToTxnTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field(map_key=True)
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: String = until(3)
    v3_and_below_producer_id: Int64 = until(3)
    v3_and_below_producer_epoch: Int16 = until(3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = until(3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field(map_key=True)
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    name: String = field(map_key=True)
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field(map_key=True)
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16 = since(4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = until(3)
