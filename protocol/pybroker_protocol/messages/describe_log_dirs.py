"""DescribeLogDirs (key 35): log dirs of a broker, and the size of the replicas in them."""

from pybroker_protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, field, since


class DescribableLogDirTopic(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(default=[])


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, ignorable=True)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = since(3, ignorable=True)
    results: list[DescribeLogDirsResult]
