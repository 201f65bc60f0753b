"""What coordinators have done for the offsets of groups in mirrored topics, kept with each topic.

Owns: which partitions of ``__consumer_offsets`` are settled, by the word of the brokers that lead them.  Does not own
what is done there (``coordinators/carried_offsets``, ``coordinators/offsets_past_the_end``).

Invariants: a broker's word counts for partitions that it leads still in the same leader epoch, and for the topic as it
stood.  So the next coordinator does again what is not settled, and nothing else.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import CARRIED, LOWERED, MirrorReport

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder

# The reports that are these.
SETTLED: Final = (CARRIED, LOWERED)


def is_settled(image: ClusterImage, settled: int) -> bool:
    """Whether each partition of ``__consumer_offsets`` is among these, one bit each."""
    topic = image.topics_by_name.get(GROUPS.topic)
    return topic is None or settled == (1 << len(topic.partitions)) - 1


def take_settled(builder: ImageBuilder, broker_id: int, name: str, report: MirrorReport) -> None:
    """Take a coordinator's word, as far as it is not out of date."""
    image = builder.view()
    mirror, offsets = image.mirrors[name], image.topics_by_name.get(GROUPS.topic)
    if offsets is None or report.leader_epoch != mirror.writable_since:
        return
    before = mirror.carried if report.kind == CARRIED else mirror.lowered
    settled = before
    for index, epoch in partitions_of(report.reason):
        state = offsets.partitions[index] if index < len(offsets.partitions) else None
        if state is not None and (state.leader, state.leader_epoch) == (broker_id, epoch):
            settled |= 1 << index
    if settled != before:
        after = mirror._replace(carried=settled) if report.kind == CARRIED else mirror._replace(lowered=settled)
        builder.put_mirror(name, after)


def partitions_of(text: str) -> list[tuple[int, int]]:
    """Partitions with their leader epochs, as a report has them; what is none of these is left out."""
    pairs = (part.partition(":") for part in text.split())
    return [(int(index), int(epoch)) for index, _, epoch in pairs if index.isdecimal() and epoch.isdecimal()]


def text_of(partitions: dict[int, int]) -> str:
    """The same as text."""
    return " ".join(f"{index}:{epoch}" for index, epoch in partitions.items())
