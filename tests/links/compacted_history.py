"""A link of a compacted topic under chance: each replica on both sides cleans by itself, whenever its cleaner looks.

The invariants
- A record below the high watermark of a replica here is, or once was, at the same offset of the source.
- A promoted topic has the last record of each key that its source has.
- When nothing happens any more, each replica on both sides has the same last records, whatever was cut before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pybroker.cluster.image.link_states import PROMOTED, PROMOTING
from tests.links.link_history import FETCH_TIMEOUT_MS, LinkHistory
from tests.replication.cluster import Broker
from tests.storage.batches import batch
from tests.storage.cleaner.logs import Survivor, survivors

KEYS = [b"%d" % number for number in range(12)]
COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "200",
    "min_cleanable_dirty_ratio": "0.0",
    "file_delete_delay_ms": "0",
}


class CompactedHistory(LinkHistory):
    """See ``LinkHistory``, of which the steps are."""

    storage_settings: ClassVar[dict[str, Any]] = {"log_cleaner_backoff_ms": 20, "log_initial_task_delay_ms": 0}

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self._were: set[Survivor] = set()  # records that the source has or had
        for cluster in (self.linked.source, self.linked.here):
            cluster.configure_topic(**COMPACTED)
            cluster.tell()

    def _produce(self) -> None:
        leader = self._leader(self.linked.source)
        for _ in range(self._random.randrange(4, 17)):
            self._number += 1
            value = None if self._random.random() < 0.1 else b"%d" % self._number
            records = memoryview(batch([(self._random.choice(KEYS), value)]))
            leader.partition().append(records, 1, 5_000, 13, lambda _: None)
        self._remember()  # a cleaner may take it before the next look

    def _promote(self) -> None:
        self.linked.become(PROMOTING)
        self.linked.world.advance(FETCH_TIMEOUT_MS)
        assert self.linked.state == PROMOTED, self.trace
        self._check_both_sides()

    def _remember(self) -> None:
        for broker in self.linked.source.brokers.values():
            if broker.alive:
                self._were.update(survivors(broker.log()))

    def check(self) -> None:
        """The invariants of each moment."""
        self._remember()
        for broker_id, broker in self.linked.here.brokers.items():
            _, high_watermark, _ = broker.offsets()
            for record in survivors(broker.log()):
                assert record.offset >= high_watermark or record in self._were, (broker_id, record, self.trace)

    def _check_both_sides(self) -> None:
        last = last_of(self._leader(self.linked.source))
        for cluster in (self.linked.source, self.linked.here):
            for broker_id, broker in cluster.brokers.items():
                assert last_of(broker) == last, (broker_id, self.trace)


def last_of(broker: Broker) -> dict[bytes | None, Survivor]:
    """The last record of each key in a broker's log."""
    return {record.key: record for record in survivors(broker.log())}
