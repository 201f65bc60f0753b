"""The process around a broker: settings in, exit code out.

Owns: the event loop, the signals, the ready line, logging to stderr, and the garbage collector's tuning, all of which
only a process that is ours may touch.  Owns nothing of the broker (``pybroker.server``).

An in-process broker leaves the host's garbage collector alone, so the request path avoids cycles of objects.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence

from pybroker.cli.standard_streams import silence_stdout
from pybroker.cluster.metadata_store import StoreError
from pybroker.config.broker import BrokerConfig
from pybroker.config.schema import ConfigError
from pybroker.server import BrokerServer
from pybroker.storage.results import StorageError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Collections are rare once the broker is up: what it allocates per request is not cyclic.  What is, is deleted topics.
GC_THRESHOLDS = (10_000, 20, 50)


def run_broker(
    *,
    listen: Sequence[str],
    data_dir: str | None,
    config_file: str | None,
    settings: Sequence[tuple[str, str]],
    dev: bool,
) -> int:
    """Run a broker in this process until SIGTERM or SIGINT; the exit code.

    0 after a clean shutdown, 1 when the start failed or no log dir is left.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    try:
        config = BrokerConfig.load(
            config_file=config_file, settings=settings, listen=listen, data_dir=data_dir, dev=dev
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(config))
    except (ConfigError, StorageError, StoreError, OSError) as error:
        print(f"pybroker: {error}", file=sys.stderr)
        return 1


async def _serve(config: BrokerConfig) -> int:
    stopping = asyncio.Event()
    exit_code = 0

    def fail() -> None:
        nonlocal exit_code
        exit_code = 1
        stopping.set()

    server = BrokerServer(config, on_failure=fail, own_process=True)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.start()
        _tune_garbage_collector()
        first = server.endpoints[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        _say(f"pybroker ready on {host}:{first.port}")
        await stopping.wait()
    finally:
        await server.stop()
    return exit_code


def _say(line: str) -> None:
    """Print a line; the broker serves as well where nobody reads it."""
    try:
        print(line, flush=True)
    except OSError:
        silence_stdout()


def _tune_garbage_collector() -> None:
    """What is alive now stays alive: never look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
