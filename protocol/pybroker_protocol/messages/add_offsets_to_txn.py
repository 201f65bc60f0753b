"""AddOffsetsToTxn (key 25): a group's offsets become part of a transaction."""

from pybroker_protocol.schema import Int16, Int32, Int64, Request, Response, String


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
