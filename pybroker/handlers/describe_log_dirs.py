"""DescribeLogDirs (key 35), versions 1 to 5.

Behaviour: every log dir with the partitions asked for (null means all), their sizes, and from 4 the volume's size and
free space (KIP-827); an offline directory is answered with KAFKA_STORAGE_ERROR.
Not done: cordoned directories (KIP-1066) and moves between directories, so no replica is a future one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from pybroker.storage.log_dir_description import LogDirDescription

Wanted = dict[str, set[int]] | None


def handle(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the directories; what is asked for and not here is left out."""
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {topic.topic: set(topic.partitions) for topic in request.topics}
    return DescribeLogDirsResponse(
        throttle_time_ms=0, results=[_result(directory, wanted) for directory in ctx.services.logs.describe()]
    )


def _result(directory: LogDirDescription, wanted: Wanted) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in directory.partitions:
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            topics.setdefault(partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=partition.size_bytes,
                    offset_lag=partition.offset_lag,
                    is_future_key=False,
                )
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if directory.offline else ErrorCode.NONE,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
