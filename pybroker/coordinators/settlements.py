"""What this broker's coordinator has done for groups' offsets in mirrored topics, as the controller hears it.

Owns: which partitions of ``__consumer_offsets`` are to be looked at for a topic, and that a word is repeated until the
image has it.  Does not own what is looked at (``carried_offsets``, ``offsets_past_the_end``), nor what the controller
makes of it (``decisions/settled_offsets``).

Invariant: the next coordinator does what a broker has not reported before it was killed, or lost its leadership; what
the image has is done for good.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pybroker.cluster.decisions.settled_offsets import is_settled, text_of
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import CARRIED, MirroredTopic, MirrorReport

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ImageDelta, TopicImage
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.env import Cancellable, Env

# Between two tries to tell the controller.
TELL_RETRY_MS: Final = 500
# Topics of one report, and partitions of groups of each: their numbers and epochs are one string.
TOLD_MAX: Final = 1_000
PARTITIONS_MAX: Final = 1_000

Report = Callable[[Sequence[MirrorReport], Callable[[int], None]], None]
# Partitions of ``__consumer_offsets`` with their leader epochs.
Led = dict[int, int]


class Settlements:
    """One per service that settles; ``kind`` is what it does: CARRIED or LOWERED."""

    def __init__(self, env: Env, metadata: MetadataCache, broker_id: int, report: Report, kind: int) -> None:
        self._env = env
        self._metadata = metadata
        self._broker_id = broker_id
        self._report = report
        self._kind = kind
        self._untold: dict[str, tuple[int, Led]] = {}  # by topics: with the first epoch of each
        self._is_telling = self._closed = False
        self._timer: Cancellable | None = None

    def close(self) -> None:
        """Tell nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def led(self) -> Led:
        """The partitions of ``__consumer_offsets`` that this broker leads."""
        topic = self._metadata.image.topics_by_name.get(GROUPS.topic)
        states = () if topic is None else topic.partitions
        return {index: state.leader_epoch for index, state in enumerate(states) if state.leader == self._broker_id}

    def pending(self, mirror: MirroredTopic, led: Led) -> Led:
        """Those of them of which the image does not have that they are settled."""
        settled = mirror.carried if self._kind == CARRIED else mirror.lowered
        if settled and is_settled(self._metadata.image, settled):
            return {}
        return {index: epoch for index, epoch in led.items() if not settled >> index & 1}

    def is_settled(self, mirror: MirroredTopic, led: Led) -> bool:
        """Whether nothing is left to this broker; without groups' topic that is to come."""
        return GROUPS.topic in self._metadata.image.topics_by_name and not self.pending(mirror, led)

    def tell(self, name: str, mirror: MirroredTopic, settled: Mapping[int, int]) -> None:
        """These are settled for the topic, as the mirror stood when it was looked at."""
        if settled:
            before, led = self._untold.get(name, (mirror.writable_since, {}))
            known = led if before == mirror.writable_since else {}
            self._untold[name] = mirror.writable_since, {**known, **settled}
            self._tell_in(0)

    def _tell_in(self, pause_ms: int) -> None:
        if self._timer is None and not self._is_telling and not self._closed:
            self._timer = self._env.timers.call_later(pause_ms, self._tell)

    def _tell(self) -> None:
        self._timer = None
        image, led = self._metadata.image, self.led()
        reports: list[MirrorReport] = []
        for name, (first_epoch, settled) in list(self._untold.items()):
            mirror = image.mirrors.get(name)
            pending = self.pending(mirror, led) if mirror is not None and mirror.writable_since == first_epoch else {}
            left = {index: epoch for index, epoch in settled.items() if pending.get(index) == epoch}
            if not left:
                del self._untold[name]  # the image has it, or another one coordinates
            elif len(reports) < TOLD_MAX:
                topic_id, some = image.topics_by_name[name].topic_id, dict(islice(left.items(), PARTITIONS_MAX))
                reports.append(MirrorReport(topic_id, 0, first_epoch, self._kind, text_of(some)))
        if not reports:
            return
        self._is_telling = True

        def answered(_error_code: int) -> None:
            self._is_telling = False
            if self._untold:
                self._tell_in(TELL_RETRY_MS)

        self._report(reports, answered)


def leaders_have_moved(delta: ImageDelta) -> bool:
    """Whether groups have another coordinator now, or have one at last."""
    if any(topic.name == GROUPS.topic for topic in delta.topics_created):
        return True
    changed = (pair for pair in delta.topics_changed if pair[0].name == GROUPS.topic)
    return any(_terms(before) != _terms(after) for before, after in changed)


def _terms(topic: TopicImage) -> list[tuple[int, int]]:
    return [(each.leader, each.leader_epoch) for each in topic.partitions]
