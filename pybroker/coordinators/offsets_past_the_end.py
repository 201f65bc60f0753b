"""Offsets of groups that stand past the end of a mirrored topic as it begins to take writes, or is cut on the way back.

The group has read what never came here, or what is here no more.  A consumer would fall back to ``auto.offset.reset``:
it would read everything twice, or skip what comes.  So such an offset is lowered to the end, or to where the topic is
cut, for groups of all kinds, whatever has committed it.

Owns: when that is looked at, and that it is tried until each partition's leader has said where it ends.  Does not own
the ends (``replication/partition_ends``), the records (``group/offsets/lowered_offsets``), nor what is done for good
(``settlements``).

Invariants
- What is compared with an end was committed before that end was asked for. What is compared with a cut was committed
  before the cut, where this broker has coordinated the group since then: its own clock says so.  So no group is taken
  back to before what it has read here.
- A broker that starts, or takes a partition of groups over, looks at what is not settled there.  Then the clock of
  the former coordinator says nothing: what is behind the cut goes back to it, because reading twice is better than
  skipping.

Counterpart in Kafka: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.coordinators.gather import Gather
from pybroker.coordinators.settlements import leaders_have_moved

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.group.offsets.lowered_offsets import HeldOffset
    from pybroker.coordinators.settlements import Led, Settlements
    from pybroker.env import Cancellable, Env

# Between two tries: a group's partition is being loaded, or a leader does not say where a log ends.
PAST_THE_END_RETRY_MS: Final = 500
# Offsets that one batch lowers, far below max.message.bytes, and groups that a line of the log names.
_LOWERED_AT_ONCE: Final = 1_000
_NAMED_MAX: Final = 10

# written_ends(partitions, done(offsets by topic and partition))
WrittenEnds = Callable[[Iterable[tuple[str, int]], Callable[[Mapping[tuple[str, int], int]], None]], None]

logger = logging.getLogger(__name__)


class _Round(NamedTuple):
    """As what a topic was looked at last.

    ``noticed`` has, by partitions of groups, the leader epoch and the time in which this broker has heard of its cut,
    or has looked first.
    """

    first_epoch: int
    partings: tuple[tuple[int, int, int], ...]
    noticed: dict[int, tuple[int, int]]


class _Look(NamedTuple):
    """The topics of one look, and the partitions of groups of which each is to be settled."""

    mirrors: dict[str, MirroredTopic]
    pending: dict[str, Led]
    began_ms: int


class OffsetsPastTheEnd:
    """One per broker with mirrored topics; ``groups()`` is this broker's coordinator."""

    def __init__(
        self,
        env: Env,
        metadata: MetadataCache,
        groups: Callable[[], GroupCoordinator],
        written_ends: WrittenEnds,
        settlements: Settlements,
    ) -> None:
        self._env = env
        self._metadata = metadata
        self._groups = groups
        self._written_ends = written_ends
        self._settlements = settlements
        self._rounds: dict[str, _Round] = {}
        self._unchecked: set[str] = set()
        self._timer: Cancellable | None = None
        self._is_checking = False
        self._closed = False
        self._unsubscribe = metadata.subscribe(self._on_image)
        for name in metadata.image.mirrors:
            self._note(metadata.image, name, {})  # of which cuts no time is known
        self._check_soon()

    def close(self) -> None:
        """Look at nothing any more."""
        self._closed = True
        self._unsubscribe()
        self._settlements.close()
        if self._timer is not None:
            self._timer.cancel()

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.mirrors_changed:
            led = self._settlements.led()
            for name in delta.mirrors_changed:
                self._note(image, name, led)
        if leaders_have_moved(delta):
            self._unchecked |= self._rounds.keys()
        self._check_soon()

    def _note(self, image: ClusterImage, name: str, led: Led) -> None:
        """A topic that takes writes now, or is cut, is looked at; of one that was the cut is of before."""
        mirror, before = image.mirrors.get(name), self._rounds.get(name)
        if mirror is None or not (mirror.is_writable or mirror.is_cut):
            self._rounds.pop(name, None)
            return
        now_ms = self._env.clock.now_ms()
        noticed = {at: (epoch, now_ms) for at, epoch in led.items()}
        if before is not None and before.partings == mirror.partings:
            if before.first_epoch == mirror.writable_since:
                return
            noticed = before.noticed
        self._rounds[name] = _Round(mirror.writable_since, mirror.partings, noticed)
        self._unchecked.add(name)

    def _check_soon(self) -> None:
        if self._unchecked:
            self._check_in(0)

    def _check_in(self, pause_ms: int) -> None:
        if self._timer is None and not self._is_checking and not self._closed:
            self._timer = self._env.timers.call_later(pause_ms, self._check)

    # --- a look ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Look at all that groups have committed in the topics, and then at where these end."""
        self._timer = None
        image, led = self._metadata.image, self._settlements.led()
        mirrors = {name: image.mirrors[name] for name in sorted(self._unchecked) if name in self._rounds}
        self._unchecked.clear()
        pending = {name: self._settlements.pending(mirror, led) for name, mirror in mirrors.items()}
        pending = {name: partitions for name, partitions in pending.items() if partitions}
        if not pending:
            return
        self._is_checking = True
        look = _Look(mirrors, pending, self._env.clock.now_ms())

        def known(held: list[HeldOffset] | int) -> None:
            if isinstance(held, int):
                self._end(look, pending)
                return
            asked = dict.fromkeys((each.topic, each.partition) for each in held if mirrors[each.topic].is_writable)
            self._written_ends(asked, partial(self._compare, look, held))

        self._groups().list_offsets_in(list(pending), known)

    def _compare(self, look: _Look, held: list[HeldOffset], ends: Mapping[tuple[str, int], int]) -> None:
        past: dict[str, list[tuple[HeldOffset, int]]] = {}
        unknown: set[str] = set()
        partition_of = self._groups().partition_of
        cuts = {name: {index: offset for index, offset, _ in look.mirrors[name].partings} for name in look.pending}
        times = {name: self._times_of_cut(name, partitions) for name, partitions in look.pending.items()}
        for each in held:
            at = partition_of(each.group_id)
            if at not in look.pending[each.topic]:
                continue
            time_ms = times[each.topic].get(at)
            is_of_before = time_ms is None or each.committed_ms <= time_ms
            end = cuts[each.topic].get(each.partition) if is_of_before else None
            if end is None and look.mirrors[each.topic].is_writable:
                end = ends.get((each.topic, each.partition))
                if end is None:
                    unknown.add(each.topic)
            if end is not None and each.offset > end:
                past.setdefault(each.group_id, []).append((each, end))
        self._lower(look, past, unknown)

    def _times_of_cut(self, name: str, partitions: Led) -> dict[int, int]:
        """By partitions of groups, until when what was committed may be of before the cut, where that is known."""
        noticed = self._rounds[name].noticed if name in self._rounds else {}
        return {at: noticed[at][1] for at, epoch in partitions.items() if at in noticed and noticed[at][0] == epoch}

    def _note_look(self, look: _Look, name: str) -> None:
        """All that was past the cut is lowered: another look, if there is one, has the time of this one."""
        partitions = look.pending[name]
        known = self._times_of_cut(name, partitions)
        if name in self._rounds:
            new = {at: (epoch, look.began_ms) for at, epoch in partitions.items() if at not in known}
            self._rounds[name].noticed.update(new)

    def _lower(self, look: _Look, past: Mapping[str, list[tuple[HeldOffset, int]]], unknown: set[str]) -> None:
        if past:
            first = ", ".join(
                f"{each.group_id} in {each.topic}-{each.partition} from {each.offset} to {end}"
                for (each, end), *_ in list(past.values())[:_NAMED_MAX]
            )
            logger.warning("offsets of %d groups are past the end, and are lowered, as of %s", len(past), first)
        batches = [
            (group_id, lowered[start : start + _LOWERED_AT_ONCE])
            for group_id, lowered in past.items()
            for start in range(0, len(lowered), _LOWERED_AT_ONCE)
        ]

        def done(codes: list[int]) -> None:
            failed = {each.topic for code, (_, some) in zip(codes, batches, strict=True) if code for each, _ in some}
            for name in look.pending.keys() - failed:
                self._note_look(look, name)
            self._end(look, unknown | failed)

        gather = Gather(len(batches), done)
        for position, (group_id, some) in enumerate(batches):
            self._groups().lower_offsets(group_id, some, gather.slot(position))

    def _end(self, look: _Look, again: Iterable[str]) -> None:
        """Topics of which not all is known are looked at again, and the others are settled."""
        self._is_checking = False
        if self._closed:
            return
        again, loaded = set(again), set(self._groups().partitions)
        for name, partitions in look.pending.items():
            if name not in again:
                self._settlements.tell(
                    name, look.mirrors[name], {at: epoch for at, epoch in partitions.items() if at in loaded}
                )
            if not loaded >= partitions.keys():
                again.add(name)
        pause_ms = 0 if self._unchecked else PAST_THE_END_RETRY_MS
        self._unchecked |= again
        if self._unchecked:
            self._check_in(pause_ms)
