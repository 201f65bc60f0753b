"""Offsets of groups that stand past the end of a mirrored topic as it begins to take writes.

The group has read at the source what never came here.  A consumer would fall back to ``auto.offset.reset``: it would
read everything twice, or skip what comes.  So such an offset is lowered to the end, for groups of all kinds, whatever
has committed it.

Owns: when that is looked at, and that it is tried until each partition's leader has said where it ends.  Does not own
the ends (``replication/partition_ends``), nor the records (``group/offsets/lowered_offsets``).

Invariant: what is compared with an end was committed before that end was asked for, so that no group is taken back to
before what it has read here.

Counterpart in Kafka: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import WRITABLE

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, TopicImage
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.group.offsets.lowered_offsets import HeldOffset
    from pybroker.env import Cancellable, Env

# Between two tries: a group's partition is being loaded, or a leader does not say where a log ends.
PAST_THE_END_RETRY_MS: Final = 500
# Offsets that one batch lowers, far below max.message.bytes, and those of a group that a line of the log names.
_LOWERED_AT_ONCE: Final = 1_000
_NAMED_MAX: Final = 10

# written_ends(partitions, done(offsets by topic and partition))
WrittenEnds = Callable[[Iterable[tuple[str, int]], Callable[[Mapping[tuple[str, int], int]], None]], None]

logger = logging.getLogger(__name__)


class OffsetsPastTheEnd:
    """One per broker with mirrored topics; ``groups()`` is this broker's coordinator."""

    def __init__(
        self, env: Env, metadata: MetadataCache, groups: Callable[[], GroupCoordinator], written_ends: WrittenEnds
    ) -> None:
        self._env = env
        self._metadata = metadata
        self._groups = groups
        self._written_ends = written_ends
        self._begun: set[str] = set()  # topics that have begun to take writes since this process runs
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
        begun = {name for name in delta.mirrors_changed if name in image.mirrors and image.mirrors[name].is_writable}
        self._begun |= begun
        if any(before.name == GROUPS.topic and _has_moved(before, after) for before, after in delta.topics_changed):
            begun |= self._begun  # groups have another coordinator now
        self._unchecked |= begun
        if begun:
            self._check_in(0)

    def _check_in(self, pause_ms: int) -> None:
        if self._timer is None and not self._is_checking and not self._closed:
            self._timer = self._env.timers.call_later(pause_ms, self._check)

    def _check(self) -> None:
        """Look at all that groups have committed in the topics, and then at where these end."""
        self._timer = None
        image = self._metadata.image
        topics = [name for name in self._unchecked if name in image.mirrors and image.mirrors[name].state in WRITABLE]
        self._unchecked.clear()
        self._begun.intersection_update(image.mirrors)
        if not topics or GROUPS.topic not in image.topics_by_name:
            return
        self._is_checking = True

        def known(held: list[HeldOffset] | int) -> None:
            if isinstance(held, int):
                self._end(topics)
            else:
                self._written_ends({each[1:3] for each in held}, partial(self._compare, held))

        self._groups().list_offsets_in(topics, known)

    def _compare(self, held: list[HeldOffset], ends: Mapping[tuple[str, int], int]) -> None:
        unknown = {each.topic for each in held if (each.topic, each.partition) not in ends}
        past: dict[str, list[tuple[HeldOffset, int]]] = {}
        for each in held:
            end = ends.get((each.topic, each.partition), each.offset)
            if each.offset > end:
                past.setdefault(each.group_id, []).append((each, end))
        for group_id, lowered in past.items():
            named = (f"{each.topic}-{each.partition} from {each.offset} to {end}" for each, end in lowered[:_NAMED_MAX])
            logger.warning("group %s has offsets past the end, which are lowered: %s", group_id, ", ".join(named))
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
