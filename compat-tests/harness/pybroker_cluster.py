"""pybroker as a cluster: processes that share their metadata, with the same handles as ``ApacheCluster``.

Owns: what the brokers are told of each other.  Everything else of a broker is ``PybrokerProcess``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.broker_cluster import BrokerCluster
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND, PybrokerProcess


class PybrokerCluster(BrokerCluster[PybrokerProcess]):
    """Brokers 1 to ``nodes``; their metadata lies in a SQLite file below ``directory``, or where ``metadata`` says.

    ``properties`` overrides any setting of all of them; ``own`` is asked for those of one alone, by its id, and
    ``more_listeners`` for the URLs of its listeners beside the first one.  ``command`` may be that of another pybroker.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        nodes: int = 3,
        metadata: str | None = None,
        environment: Mapping[str, str] | None = None,
        own: Callable[[int], Mapping[str, str]] = lambda _: {},
        more_listeners: Callable[[int], Sequence[str]] = lambda _: (),
        command: Path = COMMAND,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        url = metadata or f"sqlite://{directory / 'metadata.db'}"

        def make(number: int) -> PybrokerProcess:
            return PybrokerProcess(
                directory / f"node-{number}",
                {"pybroker.metadata": url, "node.id": str(number), **(properties or {}), **own(number)},
                [argument for listener in more_listeners(number) for argument in ("--listen", listener)],
                # Chosen here and not by the broker, so that a restart comes back to the others' connections.
                port=free_port(),
                environment=environment,
                command=command,
            )

        self._make = make
        super().__init__([make(number) for number in range(1, nodes + 1)])

    def add_broker(self) -> int:
        """Start one more, of the next id, and return that; every broker knows all when this returns."""
        broker_id = len(self.brokers) + 1
        self.brokers.append(self._make(broker_id))
        self.start()
        return broker_id
