"""The in-process broker: a whole broker on a thread and an event loop of its own.

Owns: the thread, and starting and stopping it. The thread owns what a broker leaves (the loop, the temporary directory,
the broker's parts). It makes and removes all of it, because Ctrl-C strikes the main thread alone, and there between any
two steps. Does not own the broker (``pybroker.server``).

Invariants:
- Nothing of the host is touched: no signal handler, event loop policy, logging handler or garbage collector setting.
- After ``stop`` no thread, file or port is left.
- A blocking client on the caller's own loop cannot deadlock the broker, because the broker does not run there.
- A broker whose last log dir fails says so in the log and stops serving.
- A broker that was never stopped is stopped at the interpreter's exit; a fork of its process can only forget it.

The thread is started from another thread, because of Ctrl-C. Cancelling the ``started`` future gives the start up.

``kill``, ``pause`` and ``resume`` are what ``kill -9``, SIGSTOP and SIGCONT are to a process. A killed broker finishes
and marks nothing, and what was written is there, synced or not. It keeps its directories, and its port by a socket that
never listens, until ``stop``.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pybroker.cluster.store.initial_metadata import NO_USERS
from pybroker.config.broker import BrokerConfig
from pybroker.net.loop_env import loop_env
from pybroker.server import BrokerServer
from pybroker.testing.broker_resources import BrokerResources
from pybroker.testing.killable_env import ProcessState
from pybroker.testing.off_loop import start_on_worker, stop_on_worker

if TYPE_CHECKING:
    from pybroker.testing.security import Security

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
# What a Python program writes for a setting; bool is an int.
Setting = str | int | float

_START_TIMEOUT_S = 30
_GIVE_UP_TIMEOUT_S = 10


class Broker:
    """A broker in this process: ``with Broker() as broker: KafkaProducer(bootstrap_servers=broker.bootstrap)``.

    ``settings`` are Kafka's broker settings on top of those of ``pybroker serve --dev``: text, numbers or bools.
    Without ``data_dir`` the data lives in a temporary directory that ``stop`` removes; it may name several directories
    with commas, as ``--data-dir`` does.  ``listen`` is an address as ``--listen`` takes it; port 0 picks a free one.
    ``loop_factory`` makes the broker's event loop, uvloop's where that is installed.  ``async with`` works too, and
    blocks no loop.

    ``security`` has clients speak TLS, log in, or both: ``Broker(security=Security("SASL_SSL"))``, or only the
    protocol's name, with keys and users that end with the broker.  ``client_settings`` is what clients need then.

    The broker's log, topics and groups outlive ``kill`` and ``restart``, and so do its port, its keys and its users.

    TypeError for a setting that is neither text nor number nor bool, ValueError for a security that cannot be.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        data_dir: str | Path | None = None,
        listen: str = "127.0.0.1:0",
        loop_factory: LoopFactory | None = None,
        security: Security | str | None = None,
    ) -> None:
        self._settings = texts(settings)
        self._security = security = checked(security)
        self._given_keys: Path | None = None  # those of a cluster (``ClusterNode``)
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._listen = listen if security is None or "://" in listen else f"{security.protocol}://{listen}"
        self._loop_factory = loop_factory or _fast_loop
        self._resources: BrokerResources | None = None
        self._is_paused = False
        self._lock = threading.RLock()  # a thread that has brokers come and go, and the test's own that stops them
        self._life: _Life | None = None
        self._server: BrokerServer | None = None

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Start the broker; returns when it serves.

        Raises what the broker's start raised: ``ConfigError``, a ValueError, for a setting that cannot be, OSError for
        a port that is taken. Raises ModuleNotFoundError for TLS without the extra ``tls``, and TimeoutError when it
        takes longer than 30 s. A start that was given up, for that or by Ctrl-C, is undone; what cannot be interrupted
        is undone by its thread when it is over.
        """
        return self._start(Future())

    def stop(self) -> None:
        """Stop the broker and remove what it made; a second call does nothing.

        One that is paused is killed.  In a fork of the process that started it, it only forgets: the broker is the
        parent's.
        """
        with self._lock:
            if self._is_paused and self.is_running:
                self.kill()
            self._is_paused = False
            self._end()
            if self._resources is not None:
                self._resources.end()
                _unended.discard(self._resources)
                self._resources = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        started: Future[BrokerServer] = Future()
        return await start_on_worker(partial(self._start, started), self.stop, give_up=started.cancel)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await stop_on_worker(self.stop)

    # --- faults ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the broker as ``kill -9`` would: connections break, nothing is finished.  ``restart`` starts it again.

        Its port refuses connections meanwhile.  AssertionError where it does not run.
        """
        with self._lock:
            server, life = self._running(), self._alive()
            life.resources.are_kept = True
            if self._is_paused:
                life.process_state.die()
            with suppress(RuntimeError):  # it has ended by itself, and closed its loop
                life.call_soon(lambda: life.process_state.kill(server))
            self._is_paused = False
            self._end()

    def restart(self) -> None:
        """Stop the broker cleanly if it runs, and start it again on its data and its port; returns when it serves.

        One that is paused is killed.  Raises what ``start`` raises, and AssertionError where it was never started, or
        has been stopped since.
        """
        with self._lock:
            assert self._resources is not None, "the broker has not been started"
            self._resources.are_kept = True
            if self._is_paused:
                self.kill()
            self._end()
            self._start(Future())

    def pause(self) -> None:
        """Have the broker do nothing until ``resume``, as SIGSTOP would; its connections stay open.

        AssertionError where it does not run, or is paused already; TimeoutError where it does not come to a stop.
        """
        with self._lock:
            server, life = self._running(), self._alive()
            assert not self._is_paused, "the broker is paused already"
            arrivals = threading.Semaphore(0)

            def wait() -> None:
                arrivals.release()
                life.process_state.wait()

            def stall() -> None:
                server.stall(wait)
                if life.process_state.is_dead:
                    life.process_state.kill(server)

            life.process_state.stand_still()
            life.call_soon(stall)
            self._is_paused = True
            for _ in ("the loop",) if server.is_alone else ("the loop", "the metadata store's thread"):
                if not arrivals.acquire(timeout=_START_TIMEOUT_S):
                    raise TimeoutError("the broker does not come to a stop")

    def resume(self) -> None:
        """Have the broker go on after ``pause``, as SIGCONT would; AssertionError where it is not paused."""
        with self._lock:
            assert self._is_paused, "the broker is not paused"
            self._is_paused = False
            self._alive().process_state.go_on()

    # --- use -------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and not stopped or killed since, nor ended by itself; it may be paused.

        False in a fork of the process that started it.
        """
        return self._server is not None and self._life is not None and self._life.is_there

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._is_paused

    @property
    def host(self) -> str:
        """The host that clients connect to; also while it is killed."""
        return self._address()[0]

    @property
    def port(self) -> int:
        """The port that clients connect to; also while it is killed."""
        return self._address()[1]

    @property
    def bootstrap(self) -> str:
        """``host:port``, for a client's ``bootstrap_servers``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Where the broker's log lies."""
        directory = self._given_dir or (self._resources.data_dir if self._resources is not None else None)
        assert directory is not None, "the broker is not running"
        return directory

    @property
    def certificates(self) -> Path:
        """Where ``ca.pem`` lies, whom to trust, and with ``client_auth`` ``<user>.pem``: key and certificate."""
        assert self._security is not None, "the broker has no security of its own"
        return self._security.certificates_in(self._keys_dir())

    def client_settings(self, library: str, *, user: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """What a client needs: ``KafkaProducer(**broker.client_settings("kafka-python"))``.

        ``library`` is kafka-python, aiokafka, confluent-kafka or java; ``user`` one of ``security``'s, the first if it
        is None; ``mechanism`` PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, the last if it is None.  ValueError for others.
        """
        from pybroker.security.client_access import ClientAccess

        if self._security is None:
            return ClientAccess(self.bootstrap).settings(library)
        return self._security.access(self.bootstrap, self._keys_dir(), user, mechanism).settings(library)

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, Setting] | None = None) -> None:
        """Create a topic without a client.

        ValueError with Kafka's reason where the broker refuses; TypeError for what is no name and no number.
        """
        from pybroker.cluster.decisions.operations import NewTopic

        if not isinstance(name, str) or not isinstance(partitions, int):
            raise TypeError(f"a topic has a name and a number of partitions, not {name!r} and {partitions!r}")
        topic = NewTopic(name, partitions, configs=tuple(texts(configs).items()))
        (result,) = self._call(lambda server, done: server.services.controller.create_topics([topic], done))
        if result.error_code:
            raise ValueError(f"topic {name} was not created: {result.error_message or result.error_code}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic without a client; one that does not exist is no error."""
        self._call(lambda server, done: server.services.controller.delete_topics([name], done))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _start(self, started: Future[BrokerServer]) -> Broker:
        """``start``; cancelling ``started`` gives it up, as Ctrl-C does."""
        life: _Life | None = None
        try:  # around the lock: Ctrl-C may strike when that is let go
            with self._lock:
                assert self._life is None, "the broker has been started already"
                if self._resources is None:
                    self._resources = BrokerResources(self._given_dir, self._given_keys, self._listen)
                self._resources.are_kept = False
                life = self._life = _Life(self._settings, self._resources, self._loop_factory, started, self._security)
                life.begin()
                self._server = started.result(_START_TIMEOUT_S)
                return self
        except BaseException:
            if life is not None:
                self._end(_GIVE_UP_TIMEOUT_S)
                self._resources = None
            raise

    def _address(self) -> tuple[str, int]:
        if self._server is None and self._resources is not None and self._resources.address is not None:
            return self._resources.address
        assert self._server is not None, "the broker is not running"
        endpoint = self._server.endpoints[0]
        return endpoint.host, endpoint.port

    def _alive(self) -> _Life:
        assert self._life is not None, "the broker is not running"
        return self._life

    def _running(self) -> BrokerServer:
        assert self.is_running, "the broker is not running"
        assert self._server is not None
        return self._server

    def _keys_dir(self) -> Path:
        assert self._resources is not None, "the broker is not running"
        assert self._resources.keys_dir is not None
        return self._resources.keys_dir

    def _call(self, operation: Callable[[BrokerServer, Callable[[Any], None]], None]) -> Any:
        """Run an operation with a ``done`` callback on the broker's loop and wait for its result."""
        server, life = self._running(), self._alive()
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                operation(server, outcome.set_result)
            except BaseException as error:
                outcome.set_exception(error)

        life.call_soon(run)
        return outcome.result(_START_TIMEOUT_S)

    def _end(self, timeout_s: float | None = None) -> None:
        """Let the thread come to its end, and wait for that."""
        life = self._life
        if life is not None:
            life.end(timeout_s)
            self._life = self._server = None


class _Life:
    """A broker from start to stop, on a thread that makes and removes everything."""

    def __init__(
        self,
        settings: Mapping[str, str],
        resources: BrokerResources,
        loop_factory: LoopFactory,
        started: Future[BrokerServer],
        security: Security | None,
    ) -> None:
        self.process_state = ProcessState()
        self.resources = resources
        self._security = security
        self._settings = settings
        self._loop_factory = loop_factory
        self._started = started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pybroker", daemon=True)
        self._has_begun = False
        self._is_over = False

    def begin(self) -> None:
        """Start the thread, from another one: Ctrl-C inside ``Thread.start`` may leave its locks in disorder."""
        _unended.add(self)
        _thread.start_new_thread(self._thread.start, ())

    def end(self, timeout_s: float | None = None) -> None:
        """Have the thread end, and wait for that; in a fork of the process there is no such thread.

        Also where ``begin`` was interrupted: a thread that has not begun by now finds that it has nothing to do.
        """
        self._is_over = True
        if self._process == os.getpid():
            with suppress(RuntimeError):  # it has ended by itself, and closed its loop
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._stopping.set)
            if self._has_begun:
                self._thread.join(timeout_s)
        _unended.discard(self)

    @property
    def is_there(self) -> bool:
        """Whether the thread runs, in this process."""
        return self._thread.is_alive()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run it on the loop; RuntimeError where that is closed."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        """The thread's body: the loop from start to stop, and the end of what was made for it."""
        self._has_begun = True
        if self._is_over:
            return
        try:
            self._serve_in_place()
            if not self._started.done():
                raise RuntimeError("the broker stopped before it had started; its log says why")
        except BaseException as error:
            if self._started.done() and not self._started.cancelled():
                raise
            if self._started.set_running_or_notify_cancel():
                self._started.set_exception(error)

    def _serve_in_place(self) -> None:
        """Make the loop and the belongings, and remove them."""
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                self.resources.make(self._security)
                self._loop = runner.get_loop()
                if self._is_over:  # said so before there was a loop to say it to
                    self._stopping.set()
                runner.run(self._serve())
        finally:
            if self.resources.are_kept:
                _unended.add(self.resources)
            else:
                self.resources.end()
                _unended.discard(self.resources)
            _unended.discard(self)

    async def _serve(self) -> None:
        """One broker until ``_stopping`` is set: by its owner, or because its last log dir has failed."""
        started, stopping, process_state = self._started, self._stopping, self.process_state
        first_users = NO_USERS if self._security is None else self._security.first_users()
        config = BrokerConfig.load(
            listen=[self.resources.listen],
            data_dir=str(self.resources.data_dir),
            settings=list({**self.resources.settings, **self._settings}.items()),
            dev=True,
        )
        env = process_state.env(loop_env())
        server = BrokerServer(config, on_failure=stopping.set, env=env, first_users=first_users)
        start, stop = asyncio.ensure_future(server.start()), asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                # Otherwise the start was given up meanwhile, and whoever did that sets ``stopping``.
                if started.set_running_or_notify_cancel():
                    started.set_result(server)
                await stop
                # A broker that ends by itself may be started again.
                self.resources.are_kept |= not self._is_over
        finally:
            start.cancel()
            stop.cancel()
            await asyncio.gather(start, stop, return_exceptions=True)
            if process_state.is_dead:
                await process_state.wait_ended(server)
            else:
                await server.stop()
            if self.resources.are_kept:
                endpoint = server.endpoints[0]
                self.resources.hold_ports((endpoint.host, endpoint.port), server.bound)


def _fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, the standard loop elsewhere; made directly, so that no policy is touched."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def checked(security: Security | str | None) -> Security | None:
    """What is asked of clients, also by its protocol's name alone; ValueError for what cannot be."""
    if security is None:
        return None
    from pybroker.testing.security import Security

    wanted = Security(security) if isinstance(security, str) else security
    wanted.check()
    return wanted


def texts(settings: Mapping[str, Setting] | None) -> dict[str, str]:
    """Settings as the text that Kafka's parsers take; ``TypeError`` for what is neither text nor number nor bool."""
    texts = {}
    for name, value in (settings or {}).items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float)):
            raise TypeError(f"a setting is a name with text, a number or a bool, not {name!r}: {value!r}")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


_unended: set[_Life | BrokerResources] = set()


@atexit.register
def _end_the_rest() -> None:
    """A broker that was not stopped ends with the interpreter, so that no temporary directory outlives it."""
    for each in list(_unended):
        if isinstance(each, _Life):
            each.end(_GIVE_UP_TIMEOUT_S)
        else:
            each.end()
