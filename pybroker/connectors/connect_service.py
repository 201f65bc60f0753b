"""A supervisor as a process: it joins the others of its name, works or waits, and answers requests.

Owns the threads and their order: the membership's, the one that works, and the loop of the requests.  Spark is started
by the first connector that needs it, and stays then.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from pybroker import __version__
from pybroker.connectors.declared.common_keys import DEAD_LETTERS, DEAD_LETTERS_FACTOR, TOPICS_REGEX
from pybroker.connectors.declared.plugin_kinds import kind_named, unknown_kind
from pybroker.connectors.kinds.connector_runs import Run, Work, start
from pybroker.connectors.rest.rest_server import check_listen, make_app
from pybroker.connectors.state.connector_topics import create_dead_letters, topics_found
from pybroker.connectors.state.hidden_values import HiddenValues
from pybroker.connectors.state.state_topics import Replaced, SourcePlace, StateTopics, create_topics
from pybroker.connectors.state.worker_settings import SettingsRefused, WorkerSettings
from pybroker.connectors.supervision.connect_operations import Operations, group_of
from pybroker.connectors.supervision.connector_checkpoints import Checkpoints
from pybroker.connectors.supervision.connector_offsets import GroupOffsets
from pybroker.connectors.supervision.connector_supervisor import Supervisor, first_line, topics_of
from pybroker.connectors.supervision.membership import SESSION_MS, Idle, Membership, Waits
from pybroker.extras import how_to_install

POSTGRES_DRIVER: Final = "org.postgresql:postgresql:42.7.8"
_STOP_TIMEOUT_MS: Final = "60000"
_AGAIN_AFTER_S: Final = SESSION_MS / 1_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service:
    """One supervisor's process.  ``directory`` keeps the checkpoints; supervisors of one name share it."""

    settings: WorkerSettings
    host: str
    port: int
    logins: Mapping[str, str]
    directory: str
    packages: Sequence[str] = (POSTGRES_DRIVER,)
    master: str = "local[*,4]"
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[str], None] = print
    _operations: Operations | None = field(default=None, init=False)
    # Why it does not work, while there are no operations.
    _waits: Idle = field(default=Waits.NONE_WORKS_YET, init=False)
    _works: threading.Event = field(default_factory=threading.Event, init=False)
    # Set when work that is under way has to end.
    _ends: threading.Event = field(default_factory=threading.Event, init=False)
    _is_over: threading.Event = field(default_factory=threading.Event, init=False)
    _state: StateTopics | None = field(default=None, init=False)
    _spark: Any = field(default=None, init=False)
    _address: str = field(default="", init=False)
    _hidden: HiddenValues = field(default_factory=HiddenValues, init=False)

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C; raises ListenRefused, ValueError, KafkaException, LoginRefused."""
        check_listen(self.host, self.logins)
        create_topics(self.settings)
        with self._hidden.kept_from_log():
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        root = {"version": __version__, "commit": "pybroker", "kafka_cluster_id": self._cluster_id()}
        runner = web.AppRunner(make_app(lambda: self._operations or self._waits, self.logins, root), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port)
        await site.start()
        port = runner.addresses[0][1]
        self._address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        worker = threading.Thread(target=self._work, name="supervisor", daemon=True)
        membership = Membership(self.settings, self._change)
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        worker.start()
        membership.start()
        self.ready(f"pybroker connect ready on http://{self._address}")
        try:
            await over.wait()
        finally:
            self._is_over.set()
            self._ends.set()
            self._works.set()
            await asyncio.to_thread(worker.join)
            await asyncio.to_thread(membership.close)
            await runner.cleanup()
            if self._spark is not None:
                from pybroker import pipeline

                await asyncio.to_thread(pipeline.end_session, self._spark)

    def _change(self, waits: Idle | None) -> None:
        """On the membership's thread."""
        self._waits = waits or Waits.NONE_WORKS_YET
        if waits is None:
            _log.info("this supervisor works")
            self._ends.clear()
            self._works.set()
        else:
            _log.info("this supervisor waits")
            self._works.clear()
            self._ends.set()

    def _work(self) -> None:
        """The thread that works whenever it is this supervisor's turn."""
        while True:
            self._works.wait()
            if self._is_over.is_set():
                return
            try:
                self._work_once()
            except Replaced as replaced:
                _log.warning("%s", replaced)
            except Exception as error:
                _log.error("the supervisor failed, and begins anew: %s", first_line(error), exc_info=True)
            finally:
                self._operations = None
            # A supervisor that was replaced hears of it from its group meanwhile, and does not fence its successor.
            if self._works.is_set() and self._is_over.wait(_AGAIN_AFTER_S):
                return

    def _work_once(self) -> None:
        state = StateTopics(self.settings)
        try:
            state.take_over()
            self._state = state
            groups = GroupOffsets(self.settings.client)
            supervisor = Supervisor(
                state,
                self._start,
                self._address,
                checkpoints=Checkpoints(self.directory),
                told=self._hidden.told,
                topics=self._topics,
            )
            self._operations = Operations(state, supervisor, groups, self._address, __version__)
            supervisor.work(self._ends)
        finally:
            self._operations = None
            state.close()

    def _start(self, name: str, config: Mapping[str, str], number: int) -> Run:
        kind = kind_named(config.get("connector.class", ""))
        if kind is None:
            raise SettingsRefused(unknown_kind(config.get("connector.class", "")))
        assert self._state is not None, "connectors are started by a supervisor that works"
        if kind.needs_spark and self._spark is None:
            self._spark = self._session()
        group = group_of(name)
        groups = GroupOffsets(self.settings.client)
        resolved = self.settings.resolved(config)
        otherwise = resolved.config.get("consumer.override.auto.offset.reset", "earliest").lower()
        self._hidden.add(resolved.found, kind.keys)
        work = Work(
            name=name,
            kind=kind,
            config=resolved.config,
            declared=config,
            spark=self._spark,
            cluster={f"kafka.{each}": text for each, text in self.settings.client.items()},
            directory=Checkpoints(self.directory).of(name, number),
            group=group,
            starting_offsets=lambda topics: groups.starting_offsets(group, topics, otherwise),
            place=SourcePlace(self._state, self.settings, name),
        )
        if any(key.name == DEAD_LETTERS for key in kind.keys) and (topic := work.value(DEAD_LETTERS)):
            create_dead_letters(self.settings.client, topic, work.value(DEAD_LETTERS_FACTOR))
        return start(work)

    def _topics(self, config: Mapping[str, str]) -> Sequence[str]:
        """Those that a connector reads or writes, as far as its configuration tells."""
        pattern = config.get(TOPICS_REGEX, "").strip()
        return topics_found(self.settings.client, pattern) if pattern else topics_of(config)

    def _session(self) -> Any:
        from pybroker import pipeline

        if find_spec("pyspark") is None:
            raise SettingsRefused(f"this kind runs on Spark, which is not installed: {how_to_install('spark')}")
        _log.info("Spark starts")
        own = {"spark.sql.streaming.stopTimeout": _STOP_TIMEOUT_MS, **self.spark_settings}
        begin = partial(pipeline.session, "pybroker connect", master=self.master, settings=own, sparing=True)
        try:
            return begin(packages=self.packages)
        except pipeline.JarsMissing as missing:
            _log.warning("kinds that need these jars will fail: %s", missing)
            return begin()

    def _cluster_id(self) -> str:
        from pybroker.pipeline.topics.admin_logins import admin_client
        from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S
        from pybroker.pipeline.topics.librdkafka_settings import client_settings

        admin = admin_client(client_settings(self.settings.client), REQUEST_TIMEOUT_S)
        found: str = admin.describe_cluster().result(REQUEST_TIMEOUT_S).cluster_id
        return found


def absolute(directory: Path) -> str:
    """A directory of checkpoints as Spark has it, which would take %20 for these three characters.

    An earlier version kept checkpoints below a name with %20 where it has a blank; such a directory stays in use.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory.resolve()
    former = Path(path.as_uri().removeprefix("file://"))
    return f"file://{former if former.is_dir() else path}"
