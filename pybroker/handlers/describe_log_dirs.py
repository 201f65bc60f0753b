"""DescribeLogDirs (key 35), versions 1 to 5.

Behaviour: every log dir with the partitions asked for (null means all) and their sizes, also of those that nothing was
written to. From 4 the volume's size and free space come with it (KIP-827). A directory that is offline, or cannot be
read, is answered with KAFKA_STORAGE_ERROR. A replica that is being moved stands twice, in its target as a future one. 5
says which are cordoned (KIP-1066).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from pybroker.storage.manager.log_dir_description import LogDirDescription


def handle(ctx: RequestContext, request: DescribeLogDirsRequest) -> Steps:
    """Describe the directories; what is asked for and not here is left out."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
    wanted: dict[tuple[str, int], None] | None = None
    if request.topics is not None:
        # Once each, in the order of the request.
        wanted = {}
        for topic in request.topics:
            wanted.update(dict.fromkeys((topic.topic, index) for index in topic.partitions))
            yield
    assigned: dict[tuple[str, int], bytes | None] = {}
    for found in ctx.services.replicas.assigned(wanted):
        if found is not None:
            partition, directory_id = found
            assigned[partition] = directory_id
        yield
    described = Parked()
    description = ctx.services.logs.describe(wanted, assigned, described.complete)
    if not described.completed:
        described.on_abandon = description.abandon
    results = []
    for directory in (yield described):
        results.append((yield from _result(directory)))
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def _result(directory: LogDirDescription) -> Steps:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in directory.partitions:
        topics.setdefault(partition.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.size_bytes,
                offset_lag=partition.offset_lag,
                is_future_key=partition.is_future,
            )
        )
        yield
    return DescribeLogDirsResult(
        error_code=directory.error_code,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=directory.is_cordoned,
    )
