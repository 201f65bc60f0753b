"""One broker of a ``Cluster``: a ``Broker`` that tells what it knows of the others.

Owns: what the cluster asks of each.  Does not own its address, which is the cluster's.

Invariants:
- A killed broker says nothing more. The session of its metadata store expires, its log dirs have no mark of a clean
  stop, and the connections of its peers break.
- While it is paused neither its loop nor its threads begin anything.
- Its sockets are open, as a stopped process's are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.testing.in_process_broker import Broker, LoopFactory, Setting

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import NewTopic, TopicCreation, TopicDeletion
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.server import BrokerServer
    from pybroker.testing.security import Security


class ClusterNode(Broker):
    """A broker of a ``Cluster``, which makes, starts and stops it."""

    def __init__(
        self,
        broker_id: int,
        settings: Mapping[str, Setting],
        data_dir: Path,
        host: str,
        port: int,
        loop_factory: LoopFactory | None,
        security: Security | None,
        keys_dir: Path | None,
    ) -> None:
        self.broker_id = broker_id
        self._at = (host, port)
        listen = f"{host}:{port}"
        super().__init__(settings, data_dir=data_dir, listen=listen, loop_factory=loop_factory, security=security)
        self._given_keys = keys_dir

    @property
    def host(self) -> str:
        """The host that clients connect to, whether or not it runs."""
        return self._at[0]

    @property
    def port(self) -> int:
        """The port that clients connect to, whether or not it runs."""
        return self._at[1]

    def start(self) -> ClusterNode:
        """Start it, on the data that its last life left; returns when it serves."""
        super().start()
        return self

    # --- for the cluster ---------------------------------------------------------------------------------------------

    def image(self) -> ClusterImage:
        """What it knows of the cluster now."""
        return self._running().services.metadata.image

    def is_controller(self) -> bool:
        """Whether it is the active controller now."""
        return self.is_running and not self._is_paused and self._running().services.controller.is_active

    def create(self, topics: Sequence[NewTopic]) -> Sequence[TopicCreation]:
        """Create topics, as the active controller."""
        created: Sequence[TopicCreation] = self._call(
            lambda server, done: server.services.controller.create_topics(topics, done)
        )
        return created

    def delete(self, names: Sequence[str]) -> Sequence[TopicDeletion]:
        """Delete topics, as the active controller."""
        deleted: Sequence[TopicDeletion] = self._call(
            lambda server, done: server.services.controller.delete_topics(names, done)
        )
        return deleted

    def wait_for_image(self, holds: Callable[[ClusterImage], bool]) -> None:
        """Until what it knows of the cluster is so; TimeoutError."""

        def begin(server: BrokerServer, done: Callable[[None], None]) -> None:
            def look(image: ClusterImage, _: object = None) -> None:
                if holds(image):
                    unsubscribe()
                    done(None)

            unsubscribe = server.services.metadata.subscribe(look)
            look(server.services.metadata.image)

        self._call(begin)
