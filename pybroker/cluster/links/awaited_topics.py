"""Names of topics that are a link's to make: a client that needs one of them waits for the link.

Owns: which names these are.  Does not own their creation (``decisions/mirrored_topics``), nor that of others
(``controller/auto_topic_creation``).

Invariant: a name that a link has by a pattern alone is any client's, unless the topic was mirrored here until lately.
The source need not have it.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.config.link_config import LinkConfig, links_of
from pybroker.config.resources import BROKER

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env

# A mirrored topic that is deleted here is made anew by its link once the source has answered two questions.  For so
# long the name is left to the link: the source may not be reached, or not have the topic any more.
AWAITED_MS: Final = 60_000


class AwaitedTopics:
    """One per broker that has links."""

    def __init__(self, env: Env, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._env = env
        self._config = config
        self._links: list[LinkConfig] | None = None  # None until they are asked for, since they were altered
        self._until_ms: dict[str, int] = {}  # mirrored topics that were deleted, and how long their names are kept
        self.close = metadata.subscribe(self._on_image)

    def link_of(self, name: str) -> str | None:
        """The link that is to make a topic of that name here; None where a client may have it made."""
        if self._links is None:
            self._links = list(links_of(self._config).values())
        was_mirrored = self._until_ms.get(name, 0) > self._env.clock.monotonic_ms()
        for link in self._links:
            topic = link.source_name(name)
            if topic is not None and (was_mirrored or link.names_topic(topic)):
                return link.link
        return None

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        if (BROKER, "") in delta.configs_changed:
            self._links = None
        deleted = [name for name in delta.mirrors_changed if name not in image.mirrors]
        if deleted:
            now_ms = self._env.clock.monotonic_ms()
            kept = {name: until_ms for name, until_ms in self._until_ms.items() if until_ms > now_ms}
            self._until_ms = {**kept, **dict.fromkeys(deleted, now_ms + AWAITED_MS)}
