"""Topics read without a consumer: where partitions begin and end, and their committed records as they lie in the log.

Owns the Fetch requests, and the memory of who leads a partition.  No group is joined and nothing is committed.  Records
are ``pybroker.sql``'s to decode, whose port ``Cluster`` this is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import PASSING_ERRORS, Passing, is_passing_with_brokers, retried
from pybroker.cli.requests import config_requests, topic_requests
from pybroker.cli.requests.log_requests import EARLIEST, LATEST, offsets_at
from pybroker.cli.requests.partition_leaders import NO_LEADER, Partition, asked_of_leaders, find_leaders
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed, named_error
from pybroker.sql.relations.cluster_port import Bounds, Fetched
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_COMMITTED: Final = 1
# The last version that names topics: later ones have their ids.
_VERSION_MAX: Final = 12
_PASSING: Final = PASSING_ERRORS | {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class TopicReader:
    """Reads topics for one thread; raises ``CommandFailed``."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._leaders: dict[str, dict[Partition, int]] = {}

    def topics(self) -> list[str]:
        """The names of all topics that the user may see, in order."""
        found = retried(lambda: topic_requests.described(self._client, None))
        return sorted(each["name"] for each in found if not each["error_code"])

    def partitions(self, topic: str) -> list[int] | None:
        """Those of a topic, in order; None where it is not there."""
        (found,) = retried(lambda: topic_requests.described(self._client, [topic]))
        code = found["error_code"]
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return None
        if code and code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise refused(f"topic {topic}", code)
        return sorted(each["partition_index"] for each in found["partitions"])

    def bounds(self, topic: str, partitions: Sequence[int]) -> dict[int, Bounds]:
        """Where each partition begins, and the offset behind its last committed record."""
        begins = self._offsets(topic, partitions, EARLIEST)
        ends = self._offsets(topic, partitions, LATEST)
        return {each: Bounds(begins[each], ends[each]) for each in partitions}

    def offsets_from(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        """The offset of the first record of this time or later; None where there is none."""
        found = self._offsets(topic, partitions, timestamp_ms)
        return {each: None if offset < 0 else offset for each, offset in found.items()}

    def has_broker_times(self, topic: str) -> bool:
        """Whether the broker's clock gives the timestamps, as far as the user may see it."""
        try:
            settings = config_requests.described(self._client, "topic", topic)
        except CommandFailed:  # who may read a topic need not see its settings
            return False
        return any(each["name"] == "message.timestamp.type" and each["value"] == "LogAppendTime" for each in settings)

    def fetch(self, topic: str, positions: Mapping[int, int], bytes_max: int, wait_ms: int) -> list[Fetched]:
        """Committed records from the positions on; without any, ``wait_ms`` at most is waited for some."""
        return retried(lambda: self._fetch(topic, positions, bytes_max, wait_ms), passes=is_passing_with_brokers)

    def _offsets(self, topic: str, partitions: Sequence[int], at: int) -> dict[int, int]:
        wanted = [Partition(topic, each) for each in partitions]
        found = asked_of_leaders(
            self._client, wanted, lambda leaders: offsets_at(self._client, leaders, at, committed=True)
        )
        for partition, (code, _) in found.items():
            if code:
                raise refused(partition, code)
        return {partition.number: offset for partition, (_, offset) in found.items()}

    def _fetch(self, topic: str, positions: Mapping[int, int], bytes_max: int, wait_ms: int) -> list[Fetched]:
        by_leader: dict[int, dict[int, int]] = {}
        for number, position in positions.items():
            by_leader.setdefault(self._leader(Partition(topic, number)), {})[number] = position
        found: list[Fetched] = []
        for leader, of_leader in by_leader.items():
            partitions = [
                FetchPartition(partition=number, fetch_offset=position, partition_max_bytes=bytes_max)
                for number, position in of_leader.items()
            ]
            request = FetchRequest(
                max_wait_ms=wait_ms // len(by_leader),
                min_bytes=1,
                max_bytes=bytes_max,
                isolation_level=_COMMITTED,
                topics=[FetchTopic(topic=topic, partitions=partitions)],
            )
            try:
                answer = self._client.ask(request, leader, max_version=_VERSION_MAX)
            except Exception:
                self._leaders.pop(topic, None)
                raise
            for each in (each for topics in answer.responses for each in topics.partitions):
                self._check(Partition(topic, each.partition_index), of_leader[each.partition_index], each.error_code)
                aborted = [(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()]
                found.append(Fetched(each.partition_index, each.records or b"", aborted))
        return found

    def _check(self, partition: Partition, position: int, code: int) -> None:
        if not code:
            return
        self._leaders.pop(partition.topic, None)
        if code in _PASSING:
            raise Passing(f"{partition}: {named_error(code)}")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise refused(f"{partition} at offset {position}", code, "The records were deleted meanwhile.")
        raise refused(partition, code)

    def _leader(self, partition: Partition) -> int:
        if partition.topic not in self._leaders:
            self._leaders[partition.topic] = find_leaders(self._client, [partition.topic])
        leader = self._leaders[partition.topic].get(partition, NO_LEADER)
        if leader == NO_LEADER:
            self._leaders.pop(partition.topic)
            if self.partitions(partition.topic) is None:
                raise refused(f"topic {partition.topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "It was deleted.")
            raise Passing(f"{partition}: {named_error(ErrorCode.LEADER_NOT_AVAILABLE)}")
        return leader
