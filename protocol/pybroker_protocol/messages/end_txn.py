"""EndTxn (key 26): commit or abort a transaction."""

from pybroker_protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, since


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
