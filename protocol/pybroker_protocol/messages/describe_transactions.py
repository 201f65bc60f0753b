"""DescribeTransactions (key 65): state and partitions of transactional ids."""

from pybroker_protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct, field


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: list[String]


class TopicData(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class TransactionState(Struct):
    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    transaction_states: list[TransactionState]
