"""Several brokers inside of the caller's process that are one cluster, for tests.

Owns: the directory, the ports, starting and stopping the nodes together, and what is asked of the cluster as a whole.
Each node (``cluster_node``) is a whole broker on a thread and a loop of its own; all share a SQLite metadata store in
the directory.

Invariants: as ``in_process_broker``'s: nothing of the host is touched, and after ``stop`` no thread, file or port is
left.  A node keeps its port while it does not run: a socket that never listens holds it, so that connections are
refused meanwhile.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pybroker.testing.cluster_node import ClusterNode
from pybroker.testing.in_process_broker import LoopFactory, Setting, checked, texts
from pybroker.testing.off_loop import start_on_worker, stop_on_worker

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import NewTopic, TopicCreation, TopicDeletion
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.testing.security import Security

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 30
_PAUSE_S = 0.01
_METADATA_FILE = "metadata.db"
# A paused broker is replaced after this time.
_SESSION_TIMEOUT_MS = 1_000


class Cluster:
    """Brokers of one cluster: ``with Cluster(3) as cluster: KafkaProducer(bootstrap_servers=cluster.bootstrap)``.

    ``settings`` are Kafka's broker settings for each of them, on top of those of ``pybroker serve --dev``. The brokers'
    ids are 1 and up, and ``cluster.brokers[1]`` is the first one, a ``Broker``. A broker that dies is replaced at once,
    one that is paused after ``pybroker.metadata.session.timeout.ms``, here a second. Topics of coordinators have three
    replicas if there are as many brokers. Without ``data_dir`` the data lives in a temporary directory that ``stop``
    removes. ``async with`` works too, and blocks no loop.

    ``security`` is as of ``Broker``. Clients of every broker speak TLS, log in, or both, and so do the brokers among
    each other, who know each other by the cluster's secret. ValueError where there are no brokers, and for a security
    that cannot be; TypeError for settings that are neither text nor numbers nor bools.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, Setting] | None = None,
        *,
        data_dir: str | Path | None = None,
        loop_factory: LoopFactory | None = None,
        security: Security | str | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has brokers, not {brokers}")
        self._security = checked(security)
        self._keys_dir: Path | None = None
        self._security_settings: dict[str, str] = {}
        self.brokers: dict[int, ClusterNode] = {}  # by id, running or not, once it is started
        self._ids = range(1, brokers + 1)
        self._settings = {**_defaults(brokers), **texts(settings)}
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._data_dir: Path | None = None
        self._loop_factory = loop_factory
        self._ports: list[socket.socket] = []
        self._process = -1

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Cluster:
        """Start all brokers; returns when each serves and knows of all.  Raises what a broker's start raised."""
        assert not self.brokers, "the cluster has been started already"
        self._process = os.getpid()
        _unended.add(self)
        try:
            self._data_dir = directory = self._given_dir or Path(tempfile.mkdtemp(prefix="pybroker-cluster-"))
            directory.mkdir(parents=True, exist_ok=True)
            if self._security is not None:
                self._keys_dir = Path(tempfile.mkdtemp(prefix="pybroker-keys-"))
                self._security_settings = self._security.prepare(self._keys_dir)
            self.brokers = {broker_id: self._make_node(directory, broker_id) for broker_id in self._ids}
            _at_once(ClusterNode.start, self.brokers.values())
            self._wait_for_members()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all brokers and remove what was made; a second call does nothing.

        In a fork of the process that started it, it only forgets: the cluster is the parent's.
        """
        nodes, self.brokers = self.brokers, {}
        # The controller last: the others ask it whether they may go.
        last = self._controller_among(nodes.values())
        _at_once(ClusterNode.stop, [node for node in nodes.values() if node is not last])
        if last is not None:
            last.stop()
        for port in self._ports:
            port.close()
        self._ports.clear()
        for directory in (self._keys_dir, self._data_dir if self._given_dir is None else None):
            if directory is not None and self._process == os.getpid():
                shutil.rmtree(directory, ignore_errors=True)
        self._data_dir = self._keys_dir = None
        _unended.discard(self)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        return await start_on_worker(self.start, self.stop, give_up=lambda: None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await stop_on_worker(self.stop)

    # --- use ---------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, ``host:port,host:port``, for a client's ``bootstrap_servers``."""
        assert self.brokers, "the cluster is not running"
        return ",".join(node.bootstrap for node in self.brokers.values())

    @property
    def data_dir(self) -> Path:
        """Where the metadata store and the brokers' directories lie."""
        assert self._data_dir is not None, "the cluster is not running"
        return self._data_dir

    @property
    def certificates(self) -> Path:
        """Where ``ca.pem`` lies, whom to trust, and with ``client_auth`` ``<user>.pem``: key and certificate."""
        assert self._security is not None, "the cluster has no security of its own"
        return self._security.certificates_in(self._keys())

    def client_settings(self, library: str, *, user: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """What a client needs to reach the cluster: as ``Broker.client_settings``, with all addresses."""
        from pybroker.security.client_access import ClientAccess

        if self._security is None:
            return ClientAccess(self.bootstrap).settings(library)
        return self._security.access(self.bootstrap, self._keys(), user, mechanism).settings(library)

    @property
    def controller_id(self) -> int | None:
        """The id of the active controller; None while it is none of the brokers that run."""
        node = self._controller_among(self._awake())
        return None if node is None else node.broker_id

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The id of the partition's leader; None while it has none, and while no broker runs that is not paused.

        KeyError where there is no such partition.
        """
        image = self._latest_image()
        if image is None:
            return None
        found = image.partition(topic, partition)
        if found is None:
            raise KeyError(f"{topic}-{partition}")
        return found.leader if found.leader >= 0 else None

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic without a client; returns when every broker that runs knows it.

        Raises ValueError with Kafka's reason when the controller refuses.
        """
        from pybroker.cluster.decisions.operations import NewTopic

        if not isinstance(name, str) or not isinstance(partitions, int) or not isinstance(replication_factor, int):
            raise TypeError(f"a topic has a name and numbers, not {name!r}, {partitions!r} and {replication_factor!r}")
        topic = NewTopic(name, partitions, replication_factor, configs=tuple(texts(configs).items()))
        result = self._at_the_controller(partial(_create, topic))
        if result.error_code:
            raise ValueError(f"topic {name} was not created: {result.error_message or result.error_code}")
        self._wait_for_images(lambda image: name in image.topics_by_name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic without a client; returns when no broker that runs knows it.

        One that does not exist is no error.  Raises ValueError with Kafka's reason when the controller refuses.
        """
        from pybroker_protocol.errors import ErrorCode

        result = self._at_the_controller(partial(_delete, name))
        if result.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            raise ValueError(f"topic {name} was not deleted: {result.error_message or result.error_code}")
        self._wait_for_images(lambda image: name not in image.topics_by_name)

    # --- brokers that come and go ----------------------------------------------------------------------------------

    def add_broker(self) -> int:
        """Start one more broker; returns its id when all know of it.  Partitions that are there stay where they are."""
        broker_id = max(self.brokers) + 1
        node = self.brokers[broker_id] = self._make_node(self.data_dir, broker_id)
        node.start()
        self._wait_for_members()
        return broker_id

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly: others lead in its place first.  ``restart`` starts it again.

        One that is paused is killed.
        """
        self.brokers[broker_id].stop()

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """End a broker as ``kill -9`` would; the others notice because connections to it are refused."""
        self.brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """Have a broker do nothing until ``resume``, as SIGSTOP would; its connections stay open."""
        self.brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """Have a broker go on that was paused, as SIGCONT would."""
        self.brokers[broker_id].resume()

    def restart(self, broker_id: int) -> None:
        """Stop a broker, cleanly if it runs, and start it again on its data and port; returns when all know of it.

        One that is paused is killed.
        """
        node = self.brokers[broker_id]
        node.stop()
        node.start()
        self._wait_for_members()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _keys(self) -> Path:
        assert self._keys_dir is not None, "the cluster is not running"
        return self._keys_dir

    def _make_node(self, directory: Path, broker_id: int) -> ClusterNode:
        port = socket.socket()
        self._ports.append(port)
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind((_HOST, 0))
        settings: dict[str, Setting] = {
            **self._security_settings,
            **self._settings,
            "node.id": broker_id,
            "pybroker.metadata": f"sqlite://{directory.absolute() / _METADATA_FILE}",
        }
        _, number = port.getsockname()
        return ClusterNode(
            broker_id,
            settings,
            directory / f"broker-{broker_id}",
            _HOST,
            number,
            self._loop_factory,
            self._security,
            self._keys_dir,
        )

    def _awake(self) -> list[ClusterNode]:
        return [node for node in self.brokers.values() if node.is_running and not node.is_paused]

    @staticmethod
    def _controller_among(nodes: Iterable[ClusterNode]) -> ClusterNode | None:
        return next((node for node in nodes if node.is_controller()), None)

    def _latest_image(self) -> ClusterImage | None:
        return max((node.image() for node in self._awake()), key=lambda image: image.epoch, default=None)

    def _wait_for_members(self) -> None:
        """Until every broker that runs knows all that run, and who the controller is."""
        ids = {node.broker_id for node in self._awake()}

        def knows_them(image: ClusterImage) -> bool:
            known = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
            return ids <= known and image.controller_id in known

        self._wait_for_images(knows_them)

    def _wait_for_images(self, holds: Callable[[ClusterImage], bool]) -> None:
        for node in self._awake():
            node.wait_for_image(holds)

    def _at_the_controller(self, ask: Callable[[ClusterNode], Any]) -> Any:
        """The answer of the active controller; TimeoutError when there is none for long."""
        from pybroker_protocol.errors import ErrorCode

        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            node = self._controller_among(self._awake())
            if node is not None:
                result = ask(node)
                if result.error_code != ErrorCode.NOT_CONTROLLER:
                    return result
            time.sleep(_PAUSE_S)
        raise TimeoutError("the cluster has no active controller")


def _create(topic: NewTopic, node: ClusterNode) -> TopicCreation:
    return node.create([topic])[0]


def _delete(name: str, node: ClusterNode) -> TopicDeletion:
    return node.delete([name])[0]


def _defaults(brokers: int) -> dict[str, str]:
    from pybroker.config.broker import internal_topic_factors

    return {
        "pybroker.metadata.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
        **internal_topic_factors(brokers),
        "transaction.state.log.min.isr": "1",
    }


def _at_once(do: Callable[[ClusterNode], object], nodes: Iterable[ClusterNode]) -> None:
    """Do it to all of them, each on a thread; raises what the first failed one raised, after the others have ended."""
    nodes = list(nodes)
    if not nodes:
        return
    with ThreadPoolExecutor(len(nodes), "pybroker-cluster") as threads:
        done = [threads.submit(do, node) for node in nodes]
    for each in done:
        each.result()


_unended: set[Cluster] = set()


@atexit.register
def _end_the_rest() -> None:
    """A cluster that was not stopped ends with the interpreter, so that no temporary directory outlives it."""
    for cluster in list(_unended):
        cluster.stop()
