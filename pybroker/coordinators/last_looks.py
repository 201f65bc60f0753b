"""Promoted topics of a link in which groups' offsets are looked at once more at the source, and which groups were.

Owns: what is left to look at, of each topic and group.  Does not own a look (``carried_offsets``), nor what is done for
good (``settlements``).

Invariants: a group that was looked at is looked at no more, whatever becomes of others.  A group that appears at the
source once all were known is of no concern: the topic is this cluster's own by then.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pybroker.cluster.image.link_states import PROMOTED

if TYPE_CHECKING:
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.coordinators.settlements import Led, Settlements


class _LastLook:
    """What is left to look at of one topic."""

    def __init__(self, mirror: MirroredTopic) -> None:
        self.mirror = mirror
        self.pending: Led = {}  # partitions of groups that are not settled
        self._taken: set[str] = set()
        self._left: Collection[str] | None = None  # those that could not be looked at, once all groups are known

    def needs(self, group_id: str, partition: int) -> bool:
        """Whether a group is to be looked at, which lies in a partition."""
        is_left = self._left is None or group_id in self._left
        return is_left and group_id not in self._taken and partition in self.pending

    def end(self, looked_at: Mapping[str, int], failed: Collection[str], are_all_known: bool) -> Led:
        """The partitions that a look has settled."""
        if not self.pending:
            return {}  # the topic was promoted while the look was under way
        left = {group_id for group_id in failed if self.needs(group_id, looked_at[group_id])}
        self._taken.update(group_id for group_id in looked_at if group_id not in failed)
        if not are_all_known:
            return {}
        self._left = left
        unsettled = {looked_at[group_id] for group_id in left}
        return {index: epoch for index, epoch in self.pending.items() if index not in unsettled}

    def look_for_more(self) -> None:
        """Groups may have come here that another broker has coordinated."""
        self._left = None


class LastLooks:
    """Those of one link."""

    def __init__(self, settlements: Settlements) -> None:
        self._settlements = settlements
        self._looks: dict[str, _LastLook] = {}

    def __len__(self) -> int:
        return len(self._looks)

    def __contains__(self, topic: str) -> bool:
        return topic in self._looks

    def add(self, topic: str, mirror: MirroredTopic) -> bool:
        """The topic is promoted; whether that is new."""
        known = self._looks.get(topic)
        if known is not None and known.mirror.writable_since == mirror.writable_since:
            return False
        self._looks[topic] = _LastLook(mirror)
        return True

    def look_for_more(self) -> None:
        """Groups may have come here that another broker has coordinated."""
        for look in self._looks.values():
            look.look_for_more()

    def begin(self, mirrors: Mapping[str, MirroredTopic]) -> None:
        """A look begins: topics of which all is settled, or which are not promoted any more, are left out."""
        led = self._settlements.led()
        for topic, look in list(self._looks.items()):
            mirror = mirrors.get(topic)
            if mirror is None or mirror.state != PROMOTED or mirror.writable_since != look.mirror.writable_since:
                del self._looks[topic]
                continue
            look.pending = self._settlements.pending(mirror, led)
            if self._settlements.is_settled(mirror, led):
                del self._looks[topic]

    def needs(self, group_id: str, partition: int, topic: str | None = None) -> bool:
        """Whether a group is to be looked at for the topic, or for any; True for a topic that is none of these."""
        if topic is not None:
            return topic not in self._looks or self._looks[topic].needs(group_id, partition)
        return any(look.needs(group_id, partition) for look in self._looks.values())

    def first_epoch(self, topic: str, partition: int) -> int | None:
        """The leader epoch with which a partition of one of these began to take writes; None of another topic.

        A partition that is younger has nothing of the source's: -1.
        """
        look = self._looks.get(topic)
        if look is None:
            return None
        epochs = look.mirror.first_epochs
        return epochs[partition] if partition < len(epochs) else -1

    def end(self, looked_at: Mapping[str, int], failed: Collection[str], are_all_known: bool) -> None:
        """A look has ended.  ``looked_at`` has its groups with their partitions, ``failed`` those of them that could
        not be looked at."""
        for topic, look in self._looks.items():
            self._settlements.tell(topic, look.mirror, look.end(looked_at, failed, are_all_known))
