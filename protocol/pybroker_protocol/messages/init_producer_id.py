"""InitProducerId (key 22): a producer gets its id and epoch."""

from pybroker_protocol.schema import Bool, Int16, Int32, Int64, NullableString, Request, Response, field, since


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: NullableString = field(default="")
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6)
    keep_prepared_txn: Bool = since(6)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
