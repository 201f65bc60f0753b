"""A process that appends until it is killed: prints ``offset value`` of every append once it is acknowledged."""

from __future__ import annotations

import asyncio
import sys
from random import Random
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.net.loop_env import loop_env
from pybroker.storage.manager.log_manager import LogManager
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, small_config

IN_FLIGHT_MAX = 20


async def main(directory: str, seed: int) -> None:
    """Append batches of all sizes to one log, through the loop and through the writer thread."""
    env = loop_env()
    manager = LogManager(env, BrokerConfig.load(data_dir=directory), on_all_dirs_failed=lambda: None)
    manager.start()
    partition_log = manager.open(
        "t", TOPIC_ID, 0, small_config(internal_segment_bytes=2 << 20, index_interval_bytes=4096)
    )
    assert partition_log is not None
    log = partition_log.open()
    random = Random(seed)
    in_flight = 0
    number = 0
    while True:
        while in_flight < IN_FLIGHT_MAX:
            number += 1
            value = b"%d-%d." % (seed, number)
            size = random.choice([10, 100, 5000, 150_000, 400_000])
            in_flight += 1

            def done(result: Any, value: bytes = value) -> None:
                nonlocal in_flight
                in_flight -= 1
                assert result.error_code == 0
                sys.stdout.write(f"{result.base_offset} {value.decode()}\n")
                sys.stdout.flush()

            result = log.append_as_leader(
                memoryview(batch([value + bytes(size)], timestamp=env.clock.now_ms())), 0, 13, done
            )
            if result is not None:
                done(result)
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
