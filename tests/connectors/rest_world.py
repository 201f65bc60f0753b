"""Kafka Connect's REST interface over doubles of the topics, the groups and the connectors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from pybroker.connectors.rest.rest_server import make_app
from pybroker.connectors.state.state_records import Known, Record
from pybroker.connectors.supervision.connect_operations import Operations
from pybroker.connectors.supervision.connector_offsets import SinkOffsets
from pybroker.connectors.supervision.connector_supervisor import Supervisor
from pybroker.connectors.supervision.membership import Idle, Waits

WORKER = "127.0.0.1:8083"


class Topics:
    """The topics in memory."""

    def __init__(self) -> None:
        self.known = Known()

    def write_configs(self, records: list[Record]) -> None:
        for record in records:
            self.known.take_config(*record)

    def write_statuses(self, records: list[Record]) -> None:
        for record in records:
            self.known.take_status(*record)

    def write_offsets(self, records: list[Record]) -> None:
        for record in records:
            self.known.take_offset(*record)


class Groups:
    """Offsets of groups in memory."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}

    def documents(self, group: str) -> list[dict[str, Any]]:
        return [
            {"partition": {"kafka_partition": number, "kafka_topic": topic}, "offset": {"kafka_offset": at}}
            for (topic, number), at in self.offsets.get(group, {}).items()
        ]

    def alter(self, group: str, wanted: SinkOffsets) -> None:
        found = self.offsets.setdefault(group, {})
        found.update({(at.topic, at.partition): at.offset for at in wanted.altered})
        for place in wanted.forgotten:
            found.pop(place, None)

    def reset(self, group: str) -> None:
        self.offsets.pop(group, None)


class Run:
    """A connector that runs."""

    failure: str | None = None
    remark: str | None = None

    def stop(self) -> None:
        """It has nothing to stop."""


class World:
    """The interface, and what is behind it."""

    def __init__(self, logins: Mapping[str, str] | None = None, cluster_id: str = "k") -> None:
        topics: Any = Topics()
        groups: Any = Groups()
        self.topics, self.groups = topics, groups
        self.runs: list[Run] = []
        self.supervisor = Supervisor(self.topics, self._start, WORKER)
        self.waits: Idle | None = None
        # So many requests are refused before the supervisor works.
        self.refusals = 0
        self._operations = Operations(topics, self.supervisor, groups, WORKER, "0.1.0")
        root = {"version": "0.1.0", "commit": "c", "kafka_cluster_id": cluster_id}
        self.app = make_app(self._works, logins or {}, root)

    def _works(self) -> Operations | Idle:
        if self.refusals > 0:
            self.refusals -= 1
            return Waits.NONE_WORKS_YET
        return self.waits or self._operations

    def _start(self, *_: Any) -> Run:
        self.runs.append(Run())
        return self.runs[-1]


@contextmanager
def served(world: World) -> Iterator[str]:
    """The interface at an address of this machine, on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rest")
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_started(world.app), loop).result()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _started(app: web.Application) -> web.AppRunner:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner
