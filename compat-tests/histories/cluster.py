"""The cluster under test: brokers as processes that share SQLite or ZooKeeper, each where ``hosts`` puts it.

Owns: what they are started with, how faults reach their clocks and disks, and whom an admin client finds as leader or
controller.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harness.pybroker_process import PybrokerProcess
from harness.wire import Client

from histories.altered_broker import NO_MISTAKE
from histories.hosts import Hosts
from histories.librdkafka_clients import COMMON
from histories.stores import Store
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest

PORT = 9092
SESSION_MS = 3_000
START_S = 60.0
ADMIN_S = 2.0
DISK_BYTES = 48 << 20
_FORGOTTEN = {ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED}


def properties_of_a_cluster(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of a broker, with which nothing that was acknowledged may be lost."""
    return {
        **properties,
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": "5000",
        # So that leaders are elected while nobody is in trouble, too.
        "leader.imbalance.check.interval.seconds": "10",
        "pybroker.metadata.session.timeout.ms": str(SESSION_MS),
    }


class ClusterBroker(PybrokerProcess):
    """One of them; ``mistake`` is one that is planted in its code (``mistakes``)."""

    def __init__(
        self,
        directory: Path,
        number: int,
        hosts: Hosts,
        store: Store,
        properties: Mapping[str, str],
        mistake: str | None,
    ) -> None:
        self.number = number
        self.host_name = f"broker{number}"
        self._hosts = hosts
        self._mistake = mistake
        self._clock_path = directory / "clock"
        arguments = ["--set", f"node.id={number}", "--metadata", store.url]
        super().__init__(directory, properties, arguments, hosts.port(PORT))
        self.host = hosts.address(self.host_name)

    def start(self, timeout_s: float = START_S) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._clock_path.exists():
            self.set_clock(0)
        return super().start(timeout_s)

    def _command(self) -> list[str]:
        altered = [sys.executable, "-m", "histories.altered_broker", str(self._clock_path), self._mistake or NO_MISTAKE]
        return [*self._hosts.command(self.host_name), *altered, *super()._command()[1:]]

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def signal(self, number: signal.Signals) -> None:
        """Does nothing when it is dead."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def set_clock(self, seconds: int) -> None:
        """Its wall clock is so much ahead of the machine's, within a moment."""
        partial = self._clock_path.with_suffix(".new")
        partial.write_text(f"{seconds}\n")
        partial.replace(self._clock_path)

    def mount_disk(self) -> None:
        """A small disk of its own, in this process's mount namespace; ``Cluster.end_disks`` takes it away."""
        self.data_directory.mkdir(parents=True, exist_ok=True)
        options = f"size={DISK_BYTES}"
        command = ["mount", "-t", "tmpfs", "-o", options, "histories", str(self.data_directory)]
        subprocess.run(command, check=True, capture_output=True)

    def fill_disk(self) -> None:
        with suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 20)):
                pass
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while ballast.write(bytes(512)):
                pass

    def free_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.data_directory / "ballast"


class Cluster:
    """Brokers 1 to ``number`` and their store."""

    def __init__(
        self,
        directory: Path,
        number: int,
        hosts: Hosts,
        store: Store,
        properties: Mapping[str, str],
        own_disks: bool = False,
        mistake: str | None = None,
    ) -> None:
        self.hosts = hosts
        self.store = store
        self.has_own_disks = own_disks
        self.brokers = {
            each: ClusterBroker(directory / f"broker{each}", each, hosts, store, properties, mistake)
            for each in range(1, number + 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> Self:
        self.store.start()
        for broker in self.brokers.values():
            if self.has_own_disks:
                broker.mount_disk()
            broker.start()
        return self

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.signal(signal.SIGCONT)
            broker.kill()
        self.store.kill()

    def stop(self) -> None:
        """Shut all down cleanly."""
        for broker in self.brokers.values():
            broker.stop()
        self.store.kill()

    def end_disks(self) -> None:
        """Copy what lies on the disks, and take them away: the run's directory could not be removed with them."""
        if self.has_own_disks:
            for broker in self.brokers.values():
                shutil.copytree(broker.data_directory, broker.directory / "data-kept", dirs_exist_ok=True)
                subprocess.run(["umount", "--lazy", str(broker.data_directory)], check=True, capture_output=True)

    def controller(self) -> int | None:
        """Whom brokers take for the controller; None where nobody says."""
        try:
            return int(self._admin().list_topics(timeout=ADMIN_S).controller_id)
        except KafkaException:
            return None

    def unregister(self, number: int) -> bool:
        """Whether the others have forgotten a broker, which is asked of them."""
        for broker in self.brokers.values():
            if broker.number != number and broker.is_alive:
                with suppress(OSError), Client((broker.host, broker.port), ADMIN_S) as client:
                    answer = client.ask(UnregisterBrokerRequest(broker_id=number), 0)
                    if answer is not None and answer.error_code in _FORGOTTEN:
                        return True
        return False

    def leaders(self) -> list[int]:
        """Who leads some partition; nobody where no broker tells."""
        try:
            topics = self._admin().list_topics(timeout=ADMIN_S).topics.values()
        except KafkaException:
            return []
        return sorted({found.leader for topic in topics for found in topic.partitions.values() if found.leader > 0})

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **COMMON})
