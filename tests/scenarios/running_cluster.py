"""A cluster that a scenario is played on, in this process or as processes, and what a client sees of one partition.

Owns: faults by broker id, and the partition ``t-0`` as brokers tell of it over the wire.  Nothing is read from inside
of a broker, so that a scenario is the same for every kind of cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.batches import batch
from harness.broker_probe import free_port
from harness.process_pause import pause, resume
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker.testing import Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches
from tests.broker.wire_client import WireClient, produce_request

TOPIC = "t"
IDS = (1, 2, 3)
SESSION_TIMEOUT_MS = 1_000
TIMEOUT_MS = 10_000
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)


class RunningCluster(ABC):
    """Three brokers, and which of them run."""

    def __init__(self) -> None:
        self.awake = set(IDS)  # who runs and is not paused

    @abstractmethod
    def address(self, broker_id: int) -> tuple[str, int]:
        """Host and port of a broker, whether or not it runs."""

    def kill(self, broker_id: int) -> None:
        """As ``kill -9``."""
        self.awake.discard(broker_id)
        self._kill(broker_id)

    def stop(self, broker_id: int) -> None:
        """Cleanly."""
        self.awake.discard(broker_id)
        self._stop(broker_id)

    def pause(self, broker_id: int) -> None:
        """As SIGSTOP."""
        self.awake.discard(broker_id)
        self._pause(broker_id)

    def resume(self, broker_id: int) -> None:
        """As SIGCONT."""
        self._resume(broker_id)
        self.awake.add(broker_id)

    def start(self, broker_id: int) -> None:
        """Start one that was killed or stopped; it serves when this returns."""
        self._start(broker_id)
        self.awake.add(broker_id)

    @abstractmethod
    def _kill(self, broker_id: int) -> None: ...

    @abstractmethod
    def _stop(self, broker_id: int) -> None: ...

    @abstractmethod
    def _pause(self, broker_id: int) -> None: ...

    @abstractmethod
    def _resume(self, broker_id: int) -> None: ...

    @abstractmethod
    def _start(self, broker_id: int) -> None: ...


class InProcess(RunningCluster):
    """A ``Cluster`` of ``pybroker.testing``."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def address(self, broker_id: int) -> tuple[str, int]:
        node = self._cluster.brokers[broker_id]
        return node.host, node.port

    def _kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def _stop(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].stop()

    def _pause(self, broker_id: int) -> None:
        self._cluster.pause(broker_id)

    def _resume(self, broker_id: int) -> None:
        self._cluster.resume(broker_id)

    def _start(self, broker_id: int) -> None:
        self._cluster.restart(broker_id)


class Processes(RunningCluster):
    """``pybroker serve`` three times, over the metadata store of a url."""

    def __init__(self, folder: Path, metadata: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._brokers = {}
        for broker_id in IDS:
            properties = {
                "node.id": str(broker_id),
                "pybroker.metadata": metadata,
                "pybroker.metadata.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                **(settings or {}),
            }
            directory = folder / f"broker-{broker_id}"
            self._brokers[broker_id] = PybrokerProcess(directory, properties, ("--dev",), free_port())

    def __enter__(self) -> Processes:
        try:
            for broker in self._brokers.values():
                broker.start()
        except Exception:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for broker in self._brokers.values():
            broker.kill()

    def address(self, broker_id: int) -> tuple[str, int]:
        broker = self._brokers[broker_id]
        return broker.host, broker.port

    def _kill(self, broker_id: int) -> None:
        self._brokers[broker_id].kill()

    def _stop(self, broker_id: int) -> None:
        self._brokers[broker_id].stop()

    def _pause(self, broker_id: int) -> None:
        pause(self._brokers[broker_id].pid)

    def _resume(self, broker_id: int) -> None:
        resume(self._brokers[broker_id].pid)

    def _start(self, broker_id: int) -> None:
        self._brokers[broker_id].start()


class Seen(NamedTuple):
    """A partition as one broker tells of it; ``leader`` is None where there is none."""

    leader: int | None
    isr: frozenset[int]


class Partition:
    """``t-0`` of a running cluster, with a replica on each broker."""

    def __init__(self, cluster: RunningCluster, **configs: Any) -> None:
        self.cluster = cluster
        settings = [
            CreatableTopicConfig(name=name.replace("_", "."), value=str(value)) for name, value in configs.items()
        ]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3, assignments=[], configs=settings)
        with self.at(1) as client:
            (made,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 5).topics
        assert made.error_code == 0, made
        self.wait_for(isr=IDS)

    # --- what brokers tell -------------------------------------------------------------------------------------------

    def at(self, broker_id: int) -> WireClient:
        """A connection to a broker."""
        return WireClient(self.cluster.address(broker_id))

    def seen(self, broker_id: int) -> Seen | None:
        """What a broker tells of the partition; None where it does not know it yet."""
        with self.at(broker_id) as client:
            (topic,) = client.ask(METADATA, 9).topics
        if not topic.partitions:
            return None
        (partition,) = topic.partitions
        return Seen(partition.leader_id if partition.leader_id >= 0 else None, frozenset(partition.isr_nodes))

    @property
    def leader(self) -> int:
        """Who leads, as all say who are awake; waits for one."""
        found: set[int | None] = set()

        def agree() -> bool:
            found.clear()
            found.update(None if seen is None else seen.leader for seen in map(self.seen, self.cluster.awake))
            return len(found) == 1 and None not in found

        wait_until(agree, "a leader")
        (leader,) = found
        assert leader is not None
        return leader

    def followers(self) -> tuple[int, int]:
        """The two that do not lead."""
        leader = self.leader
        first, second = (broker_id for broker_id in IDS if broker_id != leader)
        return first, second

    def wait_for(self, *, leader: int | None = None, isr: Iterable[int] | None = None) -> None:
        """Until all who are awake say so."""
        wanted = None if isr is None else frozenset(isr)

        def holds(seen: Seen | None) -> bool:
            return seen is not None and leader in {None, seen.leader} and wanted in {None, seen.isr}

        wait_until(lambda: all(holds(self.seen(each)) for each in self.cluster.awake), f"leader {leader}, ISR {isr}")

    def wait_for_no_leader(self) -> None:
        """Until all who are awake say that nobody leads."""
        wait_until(
            lambda: all(seen is not None and seen.leader is None for seen in map(self.seen, self.cluster.awake)),
            "no leader",
        )

    # --- records -----------------------------------------------------------------------------------------------------

    def write(self, value: bytes, acks: int, at: int | None = None, timeout_ms: int = TIMEOUT_MS) -> int:
        """Produce one record to the leader, or to a broker that may be none; the error code, 0 with ``acks=0``."""
        with self.at(self.leader if at is None else at) as client:
            begin_to_write(client, value, acks, timeout_ms)
            if acks:
                return error_of(client)
            # Requests of a connection are served in order: with this answer the record is in the log.
            assert client.ask(METADATA, 9) is not None, "the broker closed the connection"
            return 0

    def write_each_way(self, when: str) -> list[bytes]:
        """Produce with ``acks`` 0, 1 and all, none of which may fail; the values."""
        written = []
        for acks in (0, 1, -1):
            written.append(b"%s with acks %d" % (when.encode(), acks))
            assert self.write(written[-1], acks) == 0, written[-1]
        return written

    def values(self, at: int) -> list[bytes]:
        """What consumers of a replica get, leader or not (KIP-392)."""
        values: list[bytes] = []
        with self.at(at) as client:
            while True:
                response = client.fetch(TOPIC, len(values), replica_id=-1)
                fetched = response.responses[0].partitions[0]
                if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return [b"out of range"]
                assert fetched.error_code == 0, fetched
                if not fetched.records:
                    return values
                records = bytes(fetched.records)
                for pos, header in batches(records):
                    values += [
                        bytes(record.value or b"") for record in decode_records(records[pos : pos + header.size_bytes])
                    ]

    def wait_for_values(self, values: list[bytes]) -> None:
        """Until consumers get exactly these from each of all replicas."""
        wait_until(lambda: all(self._gives(each, values) for each in self.cluster.awake), f"{values} everywhere")

    def _gives(self, broker_id: int, values: list[bytes]) -> bool:
        return self.values(broker_id) == values


def begin_to_write(client: WireClient, value: bytes, acks: int, timeout_ms: int = TIMEOUT_MS) -> None:
    """Send one record; the reply, if there will be one, is left to ``client.receive``."""
    request = produce_request(TOPIC, batch(value), acks=acks)
    request.timeout_ms = timeout_ms
    if acks:
        client.send(request, 9)
    else:
        client.post(request, version=9)


def error_of(client: WireClient) -> int:
    """The answer to a record that was sent."""
    response = client.receive()
    assert response is not None, "the broker closed the connection"
    return int(response.responses[0].partition_responses[0].error_code)
