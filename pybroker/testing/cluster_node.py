"""One broker of a ``Cluster``: a ``Broker`` that can be killed, and that can stand still.

Owns: what ``kill -9``, SIGSTOP and SIGCONT mean for a broker that is a thread.  Owns no process, and no machine: what
was written is there after a kill, synced or not.

Invariants: a killed broker says nothing to anybody: not to the metadata store, whose session expires, nor to its log
dirs, which have no mark of a clean stop, nor to its peers, whose connections break.  While it is paused neither its
loop nor its threads begin anything; its sockets are open, as a stopped process's are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.testing.broker import Broker, LoopFactory, Setting
from pybroker.testing.mortal_env import Mortality

if TYPE_CHECKING:
    from pybroker.cluster.image import ClusterImage
    from pybroker.cluster.operations import NewTopic, TopicCreation, TopicDeletion
    from pybroker.server import BrokerServer

_PATIENCE_S = 30


class ClusterNode(Broker):
    """See the module's docstring.  Made, started and stopped by its ``Cluster``."""

    def __init__(
        self,
        broker_id: int,
        settings: Mapping[str, Setting],
        data_dir: Path,
        host: str,
        port: int,
        loop_factory: LoopFactory | None,
    ) -> None:
        self.broker_id = broker_id
        self._address = (host, port)
        self._is_paused = False
        super().__init__(settings, data_dir=data_dir, listen=f"{host}:{port}", loop_factory=loop_factory)

    @property
    def host(self) -> str:
        """The host that clients connect to, whether or not it runs."""
        return self._address[0]

    @property
    def port(self) -> int:
        """The port that clients connect to, whether or not it runs."""
        return self._address[1]

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and neither stopped nor killed since; it may be paused."""
        return self._server is not None

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._is_paused

    def start(self) -> ClusterNode:
        """Start it, on the data that its last life left; returns when it serves."""
        self._mortality = Mortality()
        super().start()
        return self

    def stop(self) -> None:
        """Stop it cleanly; one that stands still is killed.  Does nothing when it does not run."""
        if self._is_paused:
            self.kill()
        else:
            super().stop()

    def kill(self) -> None:
        """End it as ``kill -9`` would."""
        server, mortality, life = self._running(), self._mortality, self._life
        assert mortality is not None
        assert life is not None
        if self._is_paused:
            mortality.die()
        life.call_soon(lambda: mortality.kill(server))
        self._is_paused = False
        self._end()

    def pause(self) -> None:
        """Have it do nothing until ``resume``, as SIGSTOP would."""
        server, mortality, life = self._running(), self._mortality, self._life
        assert mortality is not None
        assert life is not None
        assert not self._is_paused, f"broker {self.broker_id} is paused already"
        arrivals = threading.Semaphore(0)

        def wait() -> None:
            arrivals.release()
            mortality.wait()

        def stall() -> None:
            server.stall(wait)
            if mortality.is_dead:
                mortality.kill(server)

        self._is_paused = True
        mortality.stand_still()
        life.call_soon(stall)
        for _ in ("the loop", "the metadata store's thread"):
            if not arrivals.acquire(timeout=_PATIENCE_S):
                raise TimeoutError(f"broker {self.broker_id} does not come to a stop")

    def resume(self) -> None:
        """Have it go on after ``pause``, as SIGCONT would."""
        assert self._is_paused, f"broker {self.broker_id} is not paused"
        assert self._mortality is not None
        self._is_paused = False
        self._mortality.go_on()

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
