"""Large batches where the host has taken the free memory back, so that each new page costs a fault in the host.

A machine of its own, or a host that takes nothing back, measures what ``large`` does: the metric *page cache write*
tells which it was.
"""

from __future__ import annotations

from functools import partial

from bench.contestants import ProduceContestant
from bench.context import Context
from bench.parts.large import measure_bulk
from bench.parts.warmup import warm_up
from bench.taken_memory import SmallBlocks, page_cache_write_s_per_gb

CONNECTIONS, IN_FLIGHT = 4, 3


def run(context: Context) -> None:
    """In every round the small blocks of free memory are held first, and the large ones given time to be taken."""
    with context.running() as brokers, SmallBlocks() as blocks:
        warm_up(context, brokers)
        context.alternate(context.with_floor(brokers), partial(measure, context, blocks))


def measure(context: Context, blocks: SmallBlocks, name: str, contestant: ProduceContestant) -> None:
    """A bulk transfer against one contestant."""
    blocks.hold()
    context.add("page cache write", "s/GB", name, page_cache_write_s_per_gb(context.root))
    measure_bulk(context, f"{CONNECTIONS} conn", CONNECTIONS, IN_FLIGHT, name, contestant)
