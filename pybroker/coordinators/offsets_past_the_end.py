"""Offsets of groups that stand past the end of a mirrored topic as it begins to take writes, or is cut on the way back.

The group has read what never came here, or what is here no more.  A consumer would fall back to ``auto.offset.reset``:
it would read everything twice, or skip what comes.  So such an offset is lowered to the end, or to where the topic is
cut, for groups of all kinds, whatever has committed it.

Owns: when that is looked at, and that it is tried until each partition's leader has said where it ends.  Does not own
the ends (``replication/partition_ends``), nor the records (``group/offsets/lowered_offsets``).

Invariant: what is compared with an end was committed before that end was asked for, and what is compared with a cut
before the cut.  So no group is taken back to before what it has read here.

Counterpart in Kafka: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import ADOPTED, MIRRORING

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, TopicImage
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.group.offsets.lowered_offsets import HeldOffset
    from pybroker.env import Cancellable, Env

# Between two tries: a group's partition is being loaded, or a leader does not say where a log ends.
PAST_THE_END_RETRY_MS: Final = 500
# Offsets that one batch lowers, far below max.message.bytes, and groups that a line of the log names.
_LOWERED_AT_ONCE: Final = 1_000
_NAMED_MAX: Final = 10

# written_ends(partitions, done(offsets by topic and partition))
WrittenEnds = Callable[[Iterable[tuple[str, int]], Callable[[Mapping[tuple[str, int], int]], None]], None]

logger = logging.getLogger(__name__)


class _Cut(NamedTuple):
    """From where on partitions of a topic were discarded, and when this broker has heard of it."""

    noticed_ms: int
    offsets: dict[tuple[str, int], int]


class OffsetsPastTheEnd:
    """One per broker with mirrored topics; ``groups()`` is this broker's coordinator."""

    def __init__(
        self, env: Env, metadata: MetadataCache, groups: Callable[[], GroupCoordinator], written_ends: WrittenEnds
    ) -> None:
        self._env = env
        self._metadata = metadata
        self._groups = groups
        self._written_ends = written_ends
        self._begun: set[str] = set()  # topics that have begun to take writes since this process runs, or were cut
        self._cuts: dict[str, _Cut] = {}
        self._unchecked: set[str] = set()
        self._timer: Cancellable | None = None
        self._is_checking = False
        self._closed = False
        self._unsubscribe = metadata.subscribe(self._on_image)

    def close(self) -> None:
        """Look at nothing any more."""
        self._closed = True
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        begun: set[str] = set()
        for name in delta.mirrors_changed:
            mirror = image.mirrors.get(name)
            if mirror is None or mirror.state == ADOPTED:
                self._cuts.pop(name, None)  # it has another history now
            elif mirror.state == MIRRORING and mirror.partings and name not in self._cuts:
                offsets = {(name, index): offset for index, offset, _ in mirror.partings}
                self._cuts[name] = _Cut(self._env.clock.now_ms(), offsets)
            if self._is_concerned(image, name):
                begun.add(name)
        self._begun |= begun
        if any(before.name == GROUPS.topic and _has_moved(before, after) for before, after in delta.topics_changed):
            begun |= self._begun  # groups have another coordinator now
        self._unchecked |= begun
        if begun:
            self._check_in(0)

    def _is_concerned(self, image: ClusterImage, name: str) -> bool:
        return name in image.mirrors and (image.mirrors[name].is_writable or name in self._cuts)

    def _takes_writes(self, name: str) -> bool:
        mirror = self._metadata.image.mirrors.get(name)
        return mirror is not None and mirror.is_writable

    def _check_in(self, pause_ms: int) -> None:
        if self._timer is None and not self._is_checking and not self._closed:
            self._timer = self._env.timers.call_later(pause_ms, self._check)

    def _check(self) -> None:
        """Look at all that groups have committed in the topics, and then at where these end."""
        self._timer = None
        image = self._metadata.image
        self._begun = {name for name in self._begun if self._is_concerned(image, name)}
        topics = [name for name in self._unchecked if self._is_concerned(image, name)]
        self._unchecked.clear()
        if not topics or GROUPS.topic not in image.topics_by_name:
            return
        self._is_checking = True

        def known(held: list[HeldOffset] | int) -> None:
            if isinstance(held, int):
                self._end(topics)
            else:
                asked = {(each.topic, each.partition) for each in held if self._takes_writes(each.topic)}
                self._written_ends(asked, partial(self._compare, held))

        self._groups().list_offsets_in(topics, known)

    def _compare(self, held: list[HeldOffset], ends: Mapping[tuple[str, int], int]) -> None:
        past: dict[str, list[tuple[HeldOffset, int]]] = {}
        unknown: set[str] = set()
        for each in held:
            key, cut = (each.topic, each.partition), self._cuts.get(each.topic)
            end = cut.offsets.get(key) if cut is not None and each.committed_ms <= cut.noticed_ms else None
            if end is None and self._takes_writes(each.topic):
                end = ends.get(key)
                if end is None:
                    unknown.add(each.topic)
            if end is not None and each.offset > end:
                past.setdefault(each.group_id, []).append((each, end))
        if past:
            first = ", ".join(
                f"{each.group_id} in {each.topic}-{each.partition} from {each.offset} to {end}"
                for (each, end), *_ in list(past.values())[:_NAMED_MAX]
            )
            logger.warning("offsets of %d groups are past the end, and are lowered, as of %s", len(past), first)
        for group_id, lowered in past.items():
            for start in range(0, len(lowered), _LOWERED_AT_ONCE):
                some = lowered[start : start + _LOWERED_AT_ONCE]
                self._groups().lower_offsets(group_id, some, partial(self._lowered, {each.topic for each, _ in some}))
        self._end(unknown)

    def _lowered(self, topics: Iterable[str], error_code: int) -> None:
        if error_code:
            self._unchecked.update(topics)
            self._check_in(PAST_THE_END_RETRY_MS)

    def _end(self, again: Iterable[str]) -> None:
        """Topics of which not all is known are looked at again."""
        self._is_checking = False
        self._unchecked.update(again)
        if self._unchecked:
            self._check_in(PAST_THE_END_RETRY_MS)


def _has_moved(before: TopicImage, after: TopicImage) -> bool:
    """Whether a partition has another leader."""
    return [each.leader for each in before.partitions] != [each.leader for each in after.partitions]
