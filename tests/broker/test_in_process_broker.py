"""The in-process broker: starts anywhere, touches nothing of the host, leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
from pybroker.cluster.membership.controller_channel import ControllerChannel
from pybroker.config.resources import BROKER, MIN_INSYNC_REPLICAS
from pybroker.config.schema import ConfigError
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server import BrokerServer
from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import read_meta_properties
from pybroker.storage.results import StorageError
from pybroker.testing import Broker
from pybroker.testing import in_process_broker as in_process
from pybroker.testing.in_process_broker import Setting
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import WireClient, produce_request
from tests.new_threads import NewThreads


def test_nothing_is_left_after_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()
    with Broker() as broker:
        address = (broker.host, broker.port)
        broker.create_topic("t")
        with WireClient(address) as client:
            client.produce("t", batch(b"v" * 300_000))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert not new_threads()
    with socket.socket() as probe:
        assert probe.connect_ex(address) != 0


def test_host_settings_are_not_touched() -> None:
    def state() -> tuple[object, ...]:
        return (
            [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)],
            type(asyncio.get_event_loop_policy()),
            list(logging.getLogger().handlers),
            logging.getLogger().level,
            gc.get_threshold(),
            gc.get_freeze_count(),
        )

    before = state()
    with Broker():
        assert state() == before
    assert state() == before


def test_blocking_client_on_the_callers_loop_does_not_deadlock_the_broker() -> None:
    async def scenario() -> bytes:
        async with Broker() as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
            producer.send("t", b"value").get(timeout=PATIENCE_S)  # blocks this loop
            producer.close()
            consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
            value: bytes = next(iter(consumer)).value
            consumer.close()
            return value

    assert asyncio.run(scenario()) == b"value"


def test_broker_runs_on_the_standard_loop_too() -> None:
    with Broker(loop_factory=asyncio.SelectorEventLoop) as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            sent = batch(b"x" * 500_000)
            assert client.produce("t", sent).base_offset == 0
            data = client.fetch("t", 0, partition_max_bytes=1 << 20).responses[0].partitions[0]
            assert bytes(data.records or b"")[16:] == sent[16:]


def test_data_survives_in_a_given_directory(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            client.produce("t", batch(b"kept"))
    with Broker(data_dir=tmp_path / "data") as broker, WireClient((broker.host, broker.port)) as client:
        assert client.produce("t", batch(b"next")).base_offset == 1


def test_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(StorageError, match=r"in use|is using it|locked"):
        Broker(data_dir=tmp_path).start()


def test_unknown_setting_is_refused_and_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker({"num.partition": "3"}).start()


async def _never(_: BrokerServer) -> None:
    await asyncio.Event().wait()


class _Interrupted(Future[Any]):
    """Ctrl-C while the result is waited for."""

    def result(self, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


def _takes_too_long(monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    monkeypatch.setattr(in_process, "_START_TIMEOUT_S", 0.05)
    return TimeoutError


def _is_interrupted(monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    monkeypatch.setattr(in_process, "Future", _Interrupted)
    return KeyboardInterrupt


@pytest.mark.parametrize("give_up", [_takes_too_long, _is_interrupted])
def test_start_that_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_up: Callable[[pytest.MonkeyPatch], type[BaseException]]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(BrokerServer, "start", _never)
    error = give_up(monkeypatch)
    new_threads = NewThreads()
    with pytest.raises(error):
        Broker().start()
    assert not new_threads()
    assert not list(tmp_path.iterdir())


def test_start_that_holds_its_thread_is_given_up_too_and_undone_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    start = BrokerServer.start

    async def blocking_start(server: BrokerServer) -> None:
        over.wait()
        await start(server)

    monkeypatch.setattr(BrokerServer, "start", blocking_start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(in_process, "_START_TIMEOUT_S", 0.05)
    monkeypatch.setattr(in_process, "_GIVE_UP_TIMEOUT_S", 0.05)
    new_threads = NewThreads()
    try:
        with pytest.raises(TimeoutError):
            Broker().start()
    finally:
        over.set()
    wait_until(lambda: not new_threads(), "the thread ends")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reached", ["begun", "over"])
def test_cancelled_entry_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: str) -> None:
    begun, start = threading.Event(), Broker._start

    async def begin(server: BrokerServer) -> None:
        begun.set()
        await asyncio.Event().wait()

    def start_wholly(broker: Broker, started: Future[BrokerServer]) -> Broker:
        try:
            return start(broker, started)
        finally:
            begun.set()
            cancelled.wait()

    cancelled = threading.Event()
    if reached == "begun":
        monkeypatch.setattr(BrokerServer, "start", begin)
    else:
        monkeypatch.setattr(Broker, "_start", start_wholly)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()

    async def enter() -> None:
        async with Broker():
            raise AssertionError("entered")

    async def scenario() -> None:
        entering = asyncio.create_task(enter())
        while not begun.is_set():
            await asyncio.sleep(0.001)
        entering.cancel()
        asyncio.get_running_loop().call_soon(cancelled.set)
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert not list(tmp_path.iterdir())

    asyncio.run(scenario())
    wait_until(lambda: not new_threads(), "the threads end")


def test_cancelled_exit_stops_the_broker_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()

    task: asyncio.Task[None]

    async def use() -> None:
        async with Broker():
            asyncio.get_running_loop().call_soon(task.cancel)

    async def scenario() -> None:
        nonlocal task
        task = asyncio.create_task(use())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    wait_until(lambda: not new_threads(), "the threads end")
    assert not list(tmp_path.iterdir())


def test_fork_that_leaves_the_block_leaves_the_broker_to_its_parent() -> None:
    with Broker() as broker:
        child = os.fork()
        if child == 0:
            try:
                broker.stop()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            assert client.produce("t", batch(b"v")).base_offset == 0
        assert any(broker.data_dir.iterdir())


# libuv's own end of a process fails in a fork of one that used its threads, so the child leaves without it.
_NEVER_STOPPED = """
import atexit, os
from pybroker.testing import Broker
broker = Broker().start()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert broker.data_dir.exists()
    broker.create_topic("t")
    print(broker.data_dir)
else:
    atexit._run_exitfuncs()
    os._exit(0)
"""


def test_broker_that_nobody_stops_ends_with_its_interpreter_and_not_with_a_fork_of_it() -> None:
    command = [sys.executable, "-c", _NEVER_STOPPED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()


def test_start_that_finds_its_broker_at_an_end_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    on_failure: Callable[[], None]

    async def fail(server: BrokerServer) -> None:
        on_failure()
        await asyncio.Event().wait()

    def failing(*arguments: Any, **options: Any) -> BrokerServer:
        nonlocal on_failure
        on_failure = options["on_failure"]
        return BrokerServer(*arguments, **options)

    monkeypatch.setattr(BrokerServer, "start", fail)
    monkeypatch.setattr(in_process, "BrokerServer", failing)
    with pytest.raises(RuntimeError, match="before it had started"):
        Broker().start()


def test_loop_factory_that_fails_fails_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError("no loop today")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="no loop today"):
        Broker(loop_factory=no_loop).start()
    assert not list(tmp_path.iterdir())


class CtrlC:
    """Raises KeyboardInterrupt in this thread at the n-th line that it runs in the module, as a signal might."""

    def __init__(self, at: int, module: str) -> None:
        self.lines = 0
        self._at = at
        self._module = module

    def __enter__(self) -> CtrlC:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_globals.get("__name__") != self._module:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


async def _serves_at_once(server: BrokerServer) -> None:
    """A start without its cost: what is interrupted is not in it."""


def test_ctrl_c_at_any_point_of_a_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(BrokerServer, "start", _serves_at_once)
    new_threads, unended = NewThreads(), set(in_process._unended)
    at, entered = 0, False
    while not entered:
        at += 1
        broker = Broker()
        with suppress(KeyboardInterrupt), CtrlC(at, in_process.__name__):
            broker.__enter__()
            sys.settrace(None)
            entered = True
        if entered:
            broker.stop()
        wait_until(lambda: not new_threads(), f"no thread is left by Ctrl-C at line {at}")
        assert not list(tmp_path.iterdir()), f"a directory is left by Ctrl-C at line {at}"
        assert in_process._unended <= unended, f"the exit would end what Ctrl-C at line {at} has ended"
    assert at > 20, "every line was tried"


@pytest.mark.parametrize("reached", ["begun", "over"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, in_process._fast_loop])
def test_cancelled_entry_complains_of_nothing(
    monkeypatch: pytest.MonkeyPatch, reached: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    begun = threading.Event()

    async def begin(server: BrokerServer) -> None:
        begun.set()
        if reached == "begun":
            await asyncio.Event().wait()

    monkeypatch.setattr(BrokerServer, "start", begin)
    complaints: list[dict[str, Any]] = []

    async def enter() -> None:
        async with Broker():
            await asyncio.Event().wait()

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        entering = asyncio.create_task(enter())
        while not begun.is_set():
            await asyncio.sleep(0.001)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        del entering
        gc.collect()
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
    gc.collect()
    assert not complaints


def test_settings_may_be_numbers_and_bools() -> None:
    settings: dict[str, Setting] = {"num.partitions": 5, "auto.create.topics.enable": False}
    with Broker(settings) as broker:
        broker.create_topic("t", partitions=2, configs={"retention.ms": -1, "min.cleanable.dirty.ratio": 0.25})
        assert broker._running().config["num.partitions"] == 5
        assert broker._running().config["auto.create.topics.enable"] is False


def test_what_is_no_setting_and_no_topic_is_a_type_error() -> None:
    settings: Any = {"num.partitions": None}
    with pytest.raises(TypeError, match=r"num\.partitions"):
        Broker(settings)
    wrong: Any = 5
    with Broker() as broker, pytest.raises(TypeError, match="a topic has a name"):
        broker.create_topic(wrong)


def test_broker_whose_last_log_dir_fails_says_so_and_stops_serving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_disk(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    new_threads = NewThreads()
    with Broker() as broker:
        broker.create_topic("t")
        address = (broker.host, broker.port)
        with WireClient(address) as client:
            monkeypatch.setattr(os_file, "pwrite", broken_disk)
            client.send(produce_request("t", batch(b"v")), 9)
            wait_until(lambda: not new_threads(), "the broker ends by itself")
        with socket.socket() as probe:
            assert probe.connect_ex(address) != 0
    assert "no log directory is left" in caplog.text


def test_two_brokers_live_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        assert first.port != second.port
        first.create_topic("only-here")
        with pytest.raises(ValueError, match=r"already exists"):
            first.create_topic("only-here")
        second.create_topic("only-here")


def test_plugin_imports_nothing_of_the_broker_until_a_fixture_is_used() -> None:
    code = "import sys, pybroker.testing.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "uvloop", "kafka"}
    assert {name for name in loaded if name.startswith("pybroker")} == {
        "pybroker",
        "pybroker.testing",
        "pybroker.testing.pytest_plugin",
    }


def test_settings_of_all_brokers_count_before_partitions_hear_of_the_image_that_brings_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[int] = []
    real = ReplicaManager.on_image

    def on_image(self: ReplicaManager, image: ClusterImage, delta: ImageDelta) -> None:
        if image.overrides(BROKER, "").get(MIN_INSYNC_REPLICAS) == "3":
            heard.append(self.config.get_int(MIN_INSYNC_REPLICAS))
        real(self, image, delta)

    monkeypatch.setattr(ReplicaManager, "on_image", on_image)
    config = AlterableConfig(name=MIN_INSYNC_REPLICAS, config_operation=0, value="3")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        assert client.ask(request, 1).responses[0].error_code == 0
    assert heard[:1] == [3]


def test_log_dirs_say_on_the_disk_whose_they_are_before_the_broker_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[dict[str, str] | None] = []
    register = ControllerChannel.register

    def registering(channel: ControllerChannel, *args: Any) -> None:
        registered.append(read_meta_properties(tmp_path / "data"))
        register(channel, *args)

    monkeypatch.setattr(ControllerChannel, "register", registering)
    with Broker({"pybroker.metadata": f"sqlite://{tmp_path}/metadata.db"}, data_dir=tmp_path / "data"):
        assert registered
    assert registered[0] is not None, "with a crash now, the broker would come back with other log dirs"
    assert registered[0] == read_meta_properties(tmp_path / "data")
