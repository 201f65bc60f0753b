"""The in-process broker: a whole broker on a thread and an event loop of its own.

Owns: the thread, the loop, the temporary directory, and starting and stopping them.  Does not own the broker
(``pybroker.server``).

Invariants: nothing of the host is touched: no signal handler, event loop policy, logging handler or garbage collector
setting; after ``stop`` no thread, file or port is left; a blocking client on the caller's own loop cannot deadlock the
broker, because the broker does not run there.  A broker whose last log dir fails says so in the log and stops serving.
A broker belongs to the process that started it: a fork of it can only forget it.  One that was never stopped is stopped
at the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pybroker.config.broker import BrokerConfig
from pybroker.server import BrokerServer

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
# What a Python program writes for a setting; bool is an int.
Setting = str | int | float

_START_TIMEOUT_S = 30
_GIVE_UP_TIMEOUT_S = 10


class Broker:
    """A broker for a test: ``with Broker() as broker: KafkaProducer(bootstrap_servers=broker.bootstrap)``.

    ``settings`` are Kafka's broker settings on top of those of ``pybroker serve --dev``.  Without ``data_dir`` the data
    lives in a temporary directory that ``stop`` removes.  ``async with`` works too, and blocks no loop.  Settings are
    Kafka's text, or numbers and bools; anything else is a ``TypeError``.  ``data_dir`` may name several
    directories with commas, as ``--data-dir`` does.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        data_dir: str | Path | None = None,
        listen: str = "127.0.0.1:0",
        loop_factory: LoopFactory | None = None,
    ) -> None:
        self._settings = _texts(settings)
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._listen = listen
        self._loop_factory = loop_factory or _fast_loop
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: BrokerServer | None = None
        self._stopping: asyncio.Event | None = None
        self._temporary: str | None = None
        self._process = 0

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Start the broker; returns when it serves.

        Raises what the broker's start raised, and ``TimeoutError`` when it takes longer than 30 s.  A start that was
        given up, for that or by Ctrl-C, is undone; what cannot be interrupted is undone by its thread when it is over.
        """
        return self._start(Future())

    def stop(self) -> None:
        """Stop the broker and remove what it made; a second call does nothing.

        In a fork of the process that started it, it only forgets: the broker is the parent's.
        """
        if self._thread is not None:
            self._end()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        started: Future[BrokerServer] = Future()
        # One thread, so that the stop of a start that was cancelled comes behind it, whenever that is.
        worker = ThreadPoolExecutor(1, "pybroker-start")
        try:
            return await asyncio.shield(asyncio.wrap_future(worker.submit(self._start, started)))
        except asyncio.CancelledError:
            started.cancel()
            await asyncio.shield(asyncio.wrap_future(worker.submit(self.stop)))
            raise
        finally:
            worker.shutdown(wait=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        worker = ThreadPoolExecutor(1, "pybroker-stop")
        try:
            await asyncio.shield(asyncio.wrap_future(worker.submit(self.stop)))
        finally:
            worker.shutdown(wait=False)

    # --- use -------------------------------------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The host that clients connect to."""
        return self._running().endpoints[0].host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._running().endpoints[0].port

    @property
    def bootstrap(self) -> str:
        """``host:port``, for a client's ``bootstrap_servers``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Where the broker's log lies."""
        directory = self._given_dir or self._temporary
        assert directory is not None, "the broker is not running"
        return Path(directory)

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, Setting] | None = None) -> None:
        """Create a topic without a client.  Raises ValueError with Kafka's reason when the broker refuses."""
        from pybroker.cluster.operations import NewTopic

        if not isinstance(name, str) or not isinstance(partitions, int):
            raise TypeError(f"a topic has a name and a number of partitions, not {name!r} and {partitions!r}")
        topic = NewTopic(name, partitions, configs=tuple(_texts(configs).items()))
        (result,) = self._call(lambda server, done: server.services.controller.create_topics([topic], done))
        if result.error_code:
            raise ValueError(f"topic {name} was not created: {result.error_message or result.error_code}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic without a client; one that does not exist is no error."""
        self._call(lambda server, done: server.services.controller.delete_topics([name], done))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _start(self, started: Future[BrokerServer]) -> Broker:
        """``start``; cancelling ``started`` gives it up, as Ctrl-C does."""
        assert self._thread is None, "the broker has been started already"
        self._loop, self._stopping = self._loop_factory(), asyncio.Event()
        if self._given_dir is None:
            self._temporary = tempfile.mkdtemp(prefix="pybroker-")
        body = (self._loop, self._stopping, self.data_dir, started)
        self._thread = threading.Thread(target=self._run, args=body, name="pybroker", daemon=True)
        self._process = os.getpid()
        _unstopped.add(self)
        self._thread.start()
        try:
            self._server = started.result(_START_TIMEOUT_S)
        except BaseException:
            self._end(_GIVE_UP_TIMEOUT_S)
            raise
        return self

    def _running(self) -> BrokerServer:
        assert self._server is not None, "the broker is not running"
        return self._server

    def _call(self, operation: Callable[[BrokerServer, Callable[[Any], None]], None]) -> Any:
        """Run an operation with a ``done`` callback on the broker's loop and wait for its result."""
        server = self._running()
        assert self._loop is not None
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                operation(server, outcome.set_result)
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return outcome.result(_START_TIMEOUT_S)

    def _run(
        self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, data_dir: Path, started: Future[BrokerServer]
    ) -> None:
        """The thread's body: the loop from start to stop, and the end of what was made for it."""
        try:
            loop.run_until_complete(self._serve(stopping, data_dir, started))
            if not started.done():
                raise RuntimeError("the broker stopped before it had started; its log says why")
        except BaseException as error:
            if started.done() and not started.cancelled():
                raise
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
        finally:
            loop.close()
            if self._given_dir is None:
                shutil.rmtree(data_dir, ignore_errors=True)

    async def _serve(self, stopping: asyncio.Event, data_dir: Path, started: Future[BrokerServer]) -> None:
        """One broker until ``stopping`` is set: by whoever started it, or because its last log dir has failed."""
        config = BrokerConfig.load(
            listen=[self._listen], data_dir=str(data_dir), settings=list(self._settings.items()), dev=True
        )
        server = BrokerServer(config, on_failure=stopping.set)
        start, stop = asyncio.ensure_future(server.start()), asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                # Otherwise the start was given up meanwhile, and whoever did that sets ``stopping``.
                if started.set_running_or_notify_cancel():
                    started.set_result(server)
                await stop
        finally:
            start.cancel()
            stop.cancel()
            await asyncio.gather(start, stop, return_exceptions=True)
            await server.stop()

    def _end(self, timeout_s: float | None = None) -> None:
        """Let the thread come to its end, and wait for that; in a fork there is no such thread."""
        assert self._thread is not None
        assert self._loop is not None
        assert self._stopping is not None
        if self._process == os.getpid():
            with suppress(RuntimeError):  # it has ended by itself, and closed its loop
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout_s)
        _unstopped.discard(self)
        self._thread = self._loop = self._server = self._stopping = self._temporary = None


def _fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, the standard loop elsewhere; made directly, so that no policy is touched."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _texts(settings: Mapping[str, Setting] | None) -> dict[str, str]:
    """Settings as the text that Kafka's parsers take; ``TypeError`` for what is neither text nor number nor bool."""
    texts = {}
    for name, value in (settings or {}).items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float)):
            raise TypeError(f"a setting is a name with text, a number or a bool, not {name!r}: {value!r}")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


_unstopped: weakref.WeakSet[Broker] = weakref.WeakSet()


@atexit.register
def _stop_the_rest() -> None:
    """What nobody stopped ends with the interpreter, so that no temporary directory outlives it."""
    for broker in list(_unstopped):
        if broker._thread is not None:
            broker._end(_GIVE_UP_TIMEOUT_S)
