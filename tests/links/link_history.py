"""A link under chance: what happens on both sides, decided by a seed, and what must hold after each step.

The invariants
- What lies below the high watermark of a broker here lies, or once lay, at the same offset of the source, byte by byte.
- What lies below the high watermark of the leader here lies on each replica that is in sync.
- No batch here has a leader epoch above that of the partition here.
- In one leader epoch of the partition here no offset has another batch than consumers have read there.
- A promoted topic has all that its source's consumers could see as it was promoted.
- When nothing happens any more, both sides are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pybroker.cluster.image.link_states import MIRRORING, PROMOTED, PROMOTING
from pybroker_protocol.records import PARTITION_LEADER_EPOCH_AT
from tests.links.virtual_link import LinkedClusters, stored_of
from tests.replication.cluster import Broker, Cluster
from tests.replication.test_divergence import only

STEPS = 14
# A report is seen within so many milliseconds; what follows from it comes within so many.
STEP_MS, WATCHED_MS = 5, 100
# What was under way to a broker that is gone is given up by then.
FETCH_TIMEOUT_MS = 40_000


class LinkHistory:
    """One run; ``play`` raises AssertionError where something does not hold."""

    storage_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: Path, seed: int) -> None:
        self._random = Random(seed)
        self.linked = LinkedClusters(path, storage_settings=self.storage_settings)
        self._number = 0
        self._ever: dict[int, set[bytes]] = defaultdict(set)  # batches of the source, by their base offsets
        self._read: dict[tuple[int, int], bytes] = {}  # what consumers may have read, by leader epoch and offset
        self.trace: list[str] = []

    def play(self) -> None:
        """So many steps, an end at which everything is quiet, and a promotion."""
        steps: list[Callable[[], None]] = [
            self._produce,
            self._produce,
            self._elect_at_the_source,
            self._elect_uncleanly_at_the_source,
            self._elect_here,
            self._lose_the_source,
            self._stand_back,
        ]
        for _ in range(STEPS):
            step = self._random.choice(steps)
            self.trace.append(step.__name__)
            step()
            for _ in range(self._random.randrange(1, 4)):
                self._advance(self._random.choice((1, 5, 20, 200, 2_000)))
        self.linked.is_away = False
        self.linked.world.advance(FETCH_TIMEOUT_MS)
        self.check()
        self._check_both_sides()
        self._promote()

    def _advance(self, ms: int) -> None:
        """Let time go by, and look at its end; behind a report, by which logs may be cut, at each millisecond."""
        closely = 0
        while ms > 0:
            reports, step = len(self.linked.reports), 1 if closely else min(STEP_MS, ms)
            self.linked.world.advance(step)
            ms -= step
            closely = WATCHED_MS if len(self.linked.reports) > reports else max(closely - 1, 0)
            if closely or ms <= 0:
                self.check()

    # --- steps -------------------------------------------------------------------------------------------------------

    def _leader(self, cluster: Cluster) -> Broker:
        return cluster.brokers[cluster.state().leader]

    def _others(self, cluster: Cluster) -> list[int]:
        return [broker_id for broker_id in cluster.brokers if broker_id != cluster.state().leader]

    def _produce(self) -> None:
        for _ in range(self._random.randrange(1, 4)):
            self._number += 1
            self._leader(self.linked.source).produce(1, value=b"%d" % self._number)

    def _elect_at_the_source(self) -> None:
        source = self.linked.source
        source.settle()
        self._remember()
        source.elect(self._random.choice(list(source.brokers)))
        source.tell()

    def _elect_uncleanly_at_the_source(self) -> None:
        """A leader goes with what it alone has, which consumers have seen, and comes back as a follower."""
        source = self.linked.source
        source.settle()
        first = source.state().leader
        (second,) = self._others(source)
        only(source, first)
        source.set(isr=(first,))
        source.tell((first,))
        self._produce()
        self.linked.world.advance(self._random.choice((1, 50, 1_000)))
        self._remember()
        only(source, second)
        source.elect(second, isr=(second,))
        source.tell((second,))
        self._produce()
        self.linked.world.advance(self._random.choice((1, FETCH_TIMEOUT_MS)))
        self._remember()
        only(source, first, second)
        source.tell()

    def _elect_here(self) -> None:
        here = self.linked.here
        here.elect(self._random.choice(here.state().isr))
        here.tell()

    def _lose_the_source(self) -> None:
        self.linked.is_away = not self.linked.is_away

    def _stand_back(self) -> None:
        """Promotion is begun, and taken back before it can end."""
        self.linked.is_away = True
        self.linked.become(PROMOTING)
        self.linked.world.advance(self._random.choice((1, 100)))
        self.linked.become(MIRRORING)

    def _promote(self) -> None:
        """With a source that may just have lost what is here, and have other records at its offsets.

        The controller may hear late what leaders have found.
        """
        if self._random.random() < 0.5:
            self.linked.is_away = self._random.random() < 0.5
            self.linked.hears_reports = self._random.random() < 0.5
            self._elect_uncleanly_at_the_source()
        self.linked.become(PROMOTING)
        self.linked.is_away = False
        self.linked.world.advance(self._random.choice((1, 200)))
        self.linked.hears_reports = True
        self.linked.world.advance(FETCH_TIMEOUT_MS)
        assert self.linked.state == PROMOTED, self.trace
        assert self.linked.stored(self.linked.source) == self.linked.stored(self.linked.here), self.trace

    # --- what holds --------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        for broker in self.linked.source.brokers.values():
            if broker.alive:
                for offset, batch in stored_of(broker).items():
                    self._ever[offset].add(batch)

    def check(self) -> None:
        """The invariants of each moment."""
        self._remember()
        here = self.linked.here
        state = here.state()
        leader = self._leader(here)
        _, high_watermark, _ = leader.offsets()
        committed = {offset: batch for offset, batch in stored_of(leader).items() if offset < high_watermark}
        for offset, batch in committed.items():
            assert self._read.setdefault((state.leader_epoch, offset), batch) == batch, (offset, self.trace)
        for broker_id, broker in here.brokers.items():
            _, high_watermark, _ = broker.offsets()
            batches = stored_of(broker)
            for offset, batch in batches.items():
                assert int.from_bytes(batch[PARTITION_LEADER_EPOCH_AT:][:4], "big") <= state.leader_epoch, self.trace
                assert offset >= high_watermark or batch in self._ever[offset], (broker_id, offset, self.trace)
            assert broker_id not in state.isr or committed.items() <= batches.items(), (broker_id, self.trace)

    def _check_both_sides(self) -> None:
        original = self.linked.stored(self.linked.source)
        for broker in self.linked.here.brokers.values():
            assert stored_of(broker) == original, self.trace
