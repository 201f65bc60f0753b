"""Why a mirrored topic stands as it does, in the words that ``links describe`` shows.

Owns: what the image says of a topic besides the reason in its record: that offsets of groups are still to come, or that
partitions have no leader here.  Does not own the record (``decisions/mirrored_topics``), nor what a leader finds at the
source (``replication/mirrored_partition``).

Counterpart in Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.cluster.decisions.settled_offsets import is_settled
from pybroker.cluster.image.link_states import ASKED_FOR, PROMOTED
from pybroker.config.link_config import links_of

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.config.broker import BrokerConfig

LAST_LOOK: Final = "offsets of groups at the source are being looked at for the last time"
# As many partitions are named that have no leader.
_NAMED_MAX: Final = 10


def reason_of(image: ClusterImage, config: BrokerConfig, name: str, mirror: MirroredTopic) -> str:
    """``mirror`` is how the topic ``name`` stands; "" where there is nothing to say."""
    if mirror.state == PROMOTED and not is_settled(image, mirror.carried):
        link = links_of(config).get(mirror.link)
        return LAST_LOOK if link is not None and link.get("groups") else ""
    topic = image.topics_by_name.get(name)
    if mirror.reason or topic is None or mirror.state not in ASKED_FOR:
        return mirror.reason
    leaderless = [str(index) for index, state in enumerate(topic.partitions) if state.leader < 0]
    if not leaderless:
        return ""
    more = f" and {len(leaderless) - _NAMED_MAX} more" if len(leaderless) > _NAMED_MAX else ""
    return f"without a leader here: partition {', '.join(leaderless[:_NAMED_MAX])}{more}"
