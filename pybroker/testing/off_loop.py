"""Starting and stopping brokers for ``async with``, which blocks no loop.

Owns: the worker of each start and stop.  One thread has both, so that the stop of a cancelled start comes behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def start_on_worker(start: Callable[[], T], stop: Callable[[], None], give_up: Callable[[], object]) -> T:
    """What ``start`` gives, off the caller's loop; cancelled, ``give_up`` hastens its end, and ``stop`` undoes it."""
    # One thread, so that the stop of a start that was cancelled comes behind it, whenever that is.
    worker = ThreadPoolExecutor(1, "pybroker-start")
    try:
        return await _result_of(worker, start)
    except asyncio.CancelledError:
        give_up()
        await _result_of(worker, stop)
        raise
    finally:
        worker.shutdown(wait=False)


async def stop_on_worker(stop: Callable[[], None]) -> None:
    """Stop off the caller's loop."""
    worker = ThreadPoolExecutor(1, "pybroker-stop")
    try:
        await _result_of(worker, stop)
    finally:
        worker.shutdown(wait=False)


async def _result_of(worker: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """What the work comes to on the worker's thread; a caller that is cancelled meanwhile hears of it no more."""
    future = asyncio.wrap_future(worker.submit(work))
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio complains of that
    return await asyncio.shield(future)
