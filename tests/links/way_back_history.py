"""There and back by links under chance: what happens is decided by a seed, and what must hold is looked at each time.

The invariants
- While a topic is adopted nothing of it is cut, on no replica.
- The partings say what the other cluster lacks: from the first offset on at which both differ, all of it.
- What both clusters have stays on each replica, whatever is cut behind it.
- What lies below a mirror's high watermark lies, or once lay, at the same offset of the writer, byte by byte; but for
  what the partings give up, until it is cut.
- A topic that was promoted has all that its source's consumers could see.
- When nothing happens any more, both sides are the same, on each replica.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from pybroker.cluster.image.link_states import ADOPTED, FAIL_OVER, MIRRORING, PROMOTE, PROMOTED
from tests.links.two_clusters import TwoClusters
from tests.links.virtual_link import stored_of
from tests.replication.cluster import NAME, Cluster

ROUNDS = 3
STEPS = 4
STEP_MS = 5
# What was under way to a source that is away is given up by then, and a leader is asked for anew.
QUIET_MS = 40_000


class WayBackHistory:
    """One run; ``play`` raises AssertionError where something does not hold."""

    def __init__(self, path: Path, seed: int) -> None:
        self._random = Random(seed)
        self.clusters = TwoClusters(path)
        self._number = 0
        self._ever: dict[int, set[bytes]] = defaultdict(set)  # batches of the writer, by their base offsets
        self._lost: dict[int, bytes] = {}  # batches of the mirror that the writer lacks
        self._kept: dict[int, bytes] = {}  # batches that both have
        self.trace: list[str] = []

    def play(self) -> None:
        """So many ways there and back, each with what happens meanwhile."""
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                self._do(self._produce, self._elect_at_the_writer, self._elect_at_the_mirror, self._lose_the_source)
            self._do(self._promote, self._fail_over)
            for _ in range(STEPS):
                self._do(self._produce, self._elect_at_the_writer)
            self._come_back()

    def _do(self, *steps: Callable[[], None]) -> None:
        step = self._random.choice(steps)
        self.trace.append(step.__name__)
        step()
        self._advance(self._random.choice((1, 5, 20, 200, 2_000)))

    def _advance(self, ms: int) -> None:
        while ms > 0:
            step = min(STEP_MS, ms)
            self.clusters.world.advance(step)
            ms -= step
            self.check()

    # --- steps -------------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        self._write_to(self.clusters.writer)

    def _write_to(self, cluster: Cluster) -> None:
        for _ in range(self._random.randrange(1, 4)):
            self._number += 1
            cluster.brokers[cluster.state().leader].produce(1, value=b"%d" % self._number)

    def _elect_at_the_writer(self) -> None:
        self._elect(self.clusters.writer)

    def _elect_at_the_mirror(self) -> None:
        self._elect(self.clusters.mirror)

    def _elect(self, cluster: Cluster) -> None:
        cluster.settle()
        self._remember()
        cluster.elect(self._random.choice(cluster.state().isr))
        cluster.tell()

    def _lose_the_source(self) -> None:
        self.clusters.is_away = not self.clusters.is_away

    def _promote(self) -> None:
        """All comes over, and the mirror takes writes."""
        clusters = self.clusters
        clusters.is_away = False
        clusters.writer.settle()
        seen = clusters.stored(clusters.writer)
        clusters.move(PROMOTE)
        clusters.world.advance(QUIET_MS)
        assert clusters.topic.state == PROMOTED, self.trace
        assert seen.items() <= clusters.stored(clusters.mirror).items(), self.trace
        self._hand_over()

    def _fail_over(self) -> None:
        """The writer goes on for a while without the mirror, which takes writes then; so may the writer still."""
        clusters = self.clusters
        clusters.is_away = True
        for _ in range(self._random.randrange(3)):
            self._do(self._produce, self._elect_at_the_writer)
        clusters.move(FAIL_OVER)
        if self._random.random() < 0.5:
            self._write_to(clusters.writer)
        self._hand_over()

    def _hand_over(self) -> None:
        self.clusters.world.advance(QUIET_MS)
        self.clusters.hand_over()
        self._ever.clear()
        self._remember()

    def _come_back(self) -> None:
        """The former writer is adopted, tells what it would lose, loses that, and mirrors."""
        clusters = self.clusters
        clusters.is_away = self._random.random() < 0.5
        clusters.world.advance(QUIET_MS)
        before = {broker_id: stored_of(broker) for broker_id, broker in clusters.mirror.brokers.items()}
        mine, others = clusters.stored(clusters.mirror), clusters.stored(clusters.writer)
        self._kept = _same_beginning(mine, others)
        self._lost = {offset: batch for offset, batch in mine.items() if offset not in self._kept}
        clusters.adopt()
        for _ in range(2):
            self._do(self._elect_at_the_mirror, self._elect_at_the_writer, lambda: None)
            if clusters.topic.state == ADOPTED:
                now = {broker_id: stored_of(broker) for broker_id, broker in clusters.mirror.brokers.items()}
                assert now == before, self.trace
        clusters.is_away = False
        self._advance(200)
        clusters.world.advance(QUIET_MS)
        self.check()
        if self._lost:
            first, end = min(self._lost), clusters.mirror.brokers[clusters.mirror.state().leader].offsets()[2]
            assert (clusters.topic.state, clusters.topic.partings) == (ADOPTED, ((0, first, end - first),)), self.trace
            clusters.discard()
        self._advance(200)
        clusters.world.advance(QUIET_MS)
        assert clusters.topic.state == MIRRORING, self.trace
        self._lost = {}
        self.check()
        self._check_both_sides()
        self._kept = {}

    # --- what holds --------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        for broker in self.clusters.writer.brokers.values():
            for offset, batch in stored_of(broker).items():
                self._ever[offset].add(batch)

    def check(self) -> None:
        """The invariants of each moment at which there is a mirror."""
        self._remember()
        topic = self.clusters.mirror.image.mirrors.get(NAME)
        if topic is None or topic.is_writable:
            return  # a former writer, with what it has of its own
        for broker_id, broker in self.clusters.mirror.brokers.items():
            _, high_watermark, _ = broker.offsets()
            batches = stored_of(broker)
            assert self._kept.items() <= batches.items(), (broker_id, self.trace)
            for offset, batch in batches.items():
                if offset < high_watermark and self._lost.get(offset) != batch:
                    assert batch in self._ever[offset], (broker_id, offset, self.trace)

    def _check_both_sides(self) -> None:
        original = self.clusters.stored(self.clusters.writer)
        for cluster in (self.clusters.writer, self.clusters.mirror):
            for broker in cluster.brokers.values():
                assert stored_of(broker) == original, self.trace


def _same_beginning(mine: Mapping[int, bytes], others: Mapping[int, bytes]) -> dict[int, bytes]:
    """The batches of both before the first at which they differ."""
    same: dict[int, bytes] = {}
    for offset in sorted(mine):
        if others.get(offset) != mine[offset]:
            break
        same[offset] = mine[offset]
    return same
