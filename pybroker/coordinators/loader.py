"""Rebuilds a shard's state from its partition's log, without keeping the loop busy.

Owns: reading one partition from start to end and replaying what it finds, in slices.  Changes nothing but the state.

Counterpart in Kafka: ``CoordinatorLoaderImpl``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from pybroker.coordinators.ports import PartitionReader
from pybroker.coordinators.state import NO_PRODUCER_ID, CoordinatorState
from pybroker.env import Cancellable, Env

logger = logging.getLogger(__name__)

# A slice of loading holds the loop for about this long, then everybody else has a turn.
LOAD_SLICE_MS = 2
# Reading the clock costs as much as replaying a record, so it is read once in so many records.
RECORDS_PER_CLOCK_READ = 32
# Bytes copied out of the log at a time while loading (offsets.load.buffer.size is Kafka's, 5 MiB): small enough
# that the copy itself does not exceed a slice.
LOAD_READ_BYTES = 256 << 10
# A log that cannot be read now (its disk is being retried, its log dir is offline) is tried again after this.
LOAD_RETRY_MS = 1_000
