"""The process around a broker: settings in, exit code out.

Owns: the event loop, the signals, the ready line and the line that says which broker it is. Owns logging to stderr and
the garbage collector's tuning, too. All of these only a process that is ours may touch. Owns nothing of the broker
(``pybroker.server``).

An in-process broker leaves the host's garbage collector alone, so the request path avoids cycles of objects.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pybroker import __version__
from pybroker.cli.terminal.failure import exit_code_of
from pybroker.cli.terminal.standard_streams import log_to_stderr, say
from pybroker.config.broker import BrokerConfig
from pybroker.config.named_files import read_named_text
from pybroker.config.schema import ConfigError
from pybroker.config.secret_files import tell_of_exposure
from pybroker.public import AdvertisedListener, BrokerServer, StorageError, StoreError

if TYPE_CHECKING:
    from pybroker.security.first_users import FirstUsers

log = logging.getLogger("pybroker")

# Collections are rare once the broker is up: what it allocates per request is not cyclic.  What is, is deleted topics.
GC_THRESHOLDS = (10_000, 20, 50)


def run_broker(
    *,
    listen: Sequence[str],
    data_dir: str | None,
    config_file: str | None,
    settings: Sequence[tuple[str, str]],
    dev: bool,
    add_scram: Sequence[str] = (),
) -> int:
    """Run a broker in this process until SIGTERM or SIGINT; the exit code.

    ``add_scram`` are users that a new cluster begins with, or ``@FILE`` with a user in each line.

    0 after a clean shutdown, 1 when the start failed or no log dir is left, 2 for arguments that are wrong.
    """
    log_to_stderr()
    try:
        config = BrokerConfig.load(
            config_file=config_file, settings=settings, listen=listen, data_dir=data_dir, dev=dev
        )
        loop_factory = _loop_factory()
        _keep_what_was_imported()
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_serve(config, _first_users(add_scram)))
    except (ConfigError, StorageError, StoreError, OSError) as error:
        print(f"pybroker: {error}", file=sys.stderr)
        return exit_code_of(error)


def _first_users(add_scram: Sequence[str]) -> FirstUsers:
    """The users that ``--add-scram`` names; ConfigError."""
    if not add_scram:
        return {}
    from pybroker.security.first_users import first_users

    return first_users([user for text in add_scram for user in (_lines(text[1:]) if text[:1] == "@" else [text])])


def _lines(path: str) -> list[str]:
    """The lines of a file that are neither empty nor comments; ConfigError."""
    lines = [line.strip() for line in read_named_text(path, "--add-scram").split("\n")]
    tell_of_exposure(path, "passwords")
    return [line for line in lines if line and not line.startswith("#")]


async def _serve(config: BrokerConfig, first_users: FirstUsers) -> int:
    stopping = asyncio.Event()
    exit_code = 0

    def fail() -> None:
        nonlocal exit_code
        exit_code = 1
        stopping.set()

    server = BrokerServer(config, on_failure=fail, own_process=True, first_users=first_users)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.start()
        _tune_garbage_collector()
        log.info(
            "pybroker %s serves as node %d of cluster %s at %s, with its data in %s",
            __version__,
            server.services.broker_id,
            server.services.cluster_id,
            ", ".join(f"{each.name}://{_address(each)}" for each in server.endpoints),
            ", ".join(os.path.abspath(directory) for directory in config.log_dirs),
        )
        say(f"pybroker ready on {_address(server.endpoints[0])}")
        await stopping.wait()
    finally:
        await server.stop()
    return exit_code


def _address(listener: AdvertisedListener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def _keep_what_was_imported() -> None:
    """Never look at it: what imports have let go is a few hundred objects, and finding them takes as long as all of the
    start that is not imports.
    """
    gc.freeze()
    gc.enable()


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
