"""A cluster in memory: logs of record batches behind the port that SQL wants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

from pybroker.sql.relations.cluster_port import Bounds, Fetched, Written
from pybroker_protocol.record_codec import NewRecord, build_batch
from pybroker_protocol.records import batches, read_batch_header, set_log_append_time

NOON_MS = 1_769_860_800_000


class FakeCluster:
    """Topics with partitions; what is produced may come while a query waits for it."""

    def __init__(self) -> None:
        self.logs: dict[str, list[list[bytes]]] = {}
        self.fetched_bytes = 0
        self.fetches = 0
        self.broker_times: set[str] = set()
        self.waits = Event()

    def produce(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        partition: int = 0,
        keys: Sequence[str | None] | None = None,
        times: Sequence[int] | None = None,
        per_batch: int = 100,
    ) -> None:
        """Append records; a value that is neither bytes nor None is written as JSON."""
        log = self._log(topic, partition)
        records = [
            NewRecord(
                None if keys is None or keys[at] is None else str(keys[at]).encode(),
                value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
                timestamp_ms=NOON_MS + at if times is None else times[at],
            )
            for at, value in enumerate(values)
        ]
        for at in range(0, len(records), per_batch):
            batch = build_batch(records[at : at + per_batch], timestamp_ms=NOON_MS, base_offset=self._end(log))
            log.append(self._with_brokers_time(batch) if topic in self.broker_times else batch)

    @staticmethod
    def _with_brokers_time(batch: bytes) -> bytes:
        """All of its records have the time of the last one."""
        found = bytearray(batch)
        set_log_append_time(found, read_batch_header(batch).max_timestamp)
        return bytes(found)

    def _log(self, topic: str, partition: int) -> list[bytes]:
        logs = self.logs.setdefault(topic, [])
        while len(logs) <= partition:
            logs.append([])
        return logs[partition]

    @staticmethod
    def _end(log: list[bytes]) -> int:
        return read_batch_header(log[-1]).next_offset if log else 0

    # --- the port ----------------------------------------------------------------------------------------------------

    @contextmanager
    def connect(self) -> Iterator[FakeCluster]:
        """Itself."""
        yield self

    def topics(self) -> list[str]:
        return sorted(self.logs)

    def partitions(self, topic: str) -> list[int] | None:
        return list(range(len(self.logs[topic]))) if topic in self.logs else None

    def bounds(self, topic: str, partitions: Sequence[int]) -> dict[int, Bounds]:
        logs = self.logs[topic]
        begins = {each: read_batch_header(logs[each][0]).base_offset if logs[each] else 0 for each in partitions}
        return {each: Bounds(begins[each], self._end(logs[each])) for each in partitions}

    def offsets_from(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for each in partitions:
            later = (read_batch_header(batch) for batch in self.logs[topic][each])
            found[each] = next((header.base_offset for header in later if header.max_timestamp >= timestamp_ms), None)
        return found

    def has_broker_times(self, topic: str) -> bool:
        return topic in self.broker_times

    def fetch(self, topic: str, positions: Mapping[int, int], bytes_max: int, wait_ms: int) -> list[Fetched]:
        self.fetches += 1
        found = []
        for partition, position in positions.items():
            records = b""
            for batch in self.logs[topic][partition]:
                (_, header) = next(batches(batch))
                if header.last_offset < position:
                    continue
                if records and len(records) + len(batch) > bytes_max:
                    break
                records += batch
            if records:
                found.append(Fetched(partition, records, ()))
            self.fetched_bytes += len(records)
        if not found:
            self.waits.set()
        return found


class FakeChanges:
    """What statements change in a cluster in memory."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.settings: dict[str, Mapping[str, str]] = {}
        self.written: list[tuple[str, list[Written]]] = []

    def cluster_id(self) -> str:
        return "memory"

    def create_topic(self, name: str, partitions: int, replicas: int | None, settings: Mapping[str, str]) -> None:
        self._cluster.logs[name] = [[] for _ in range(partitions)]
        self.settings[name] = settings

    def difference(self, name: str, replicas: int | None, settings: Mapping[str, str]) -> str | None:
        its = self.settings.get(name, {})
        return next((f"{key}={its.get(key)}" for key, value in settings.items() if its.get(key) != value), None)

    def delete_topic(self, name: str) -> None:
        del self._cluster.logs[name]

    def write(self, topic: str, records: Sequence[Written]) -> None:
        self.written.append((topic, list(records)))
        for key, value, time in records:
            times = None if time is None else [time]
            self._cluster.produce(topic, [value], keys=[None if key is None else key.decode()], times=times)
