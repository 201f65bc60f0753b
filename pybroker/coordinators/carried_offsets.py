"""Offsets that groups have committed at a link's source: taken over here while a group has no members here.

Owns: which groups and which offsets are taken over, when the source is looked at, and what was seen there.  Does not
own what is news of a group (``news_of_groups``), what one accepts (``group/offsets/offset_operations``), a connection
(``cluster/links/source_port``), nor what is done for good (``settlements``).

Invariants
- Each broker takes over the groups that it coordinates, and commits as any consumer without a group would: who has
  members refuses that.
- Only offsets in topics that the link mirrors are taken over, until a topic takes writes.  Each group is looked at once
  more after it was promoted, so that what its last consumers committed is here.  Who coordinates the group does that,
  or the next coordinator.
- Of no other cluster than the link's source anything is taken over.
- An offset goes back only where it has gone back at the source since the last look. What was read here is not forgotten
  for the sake of an old offset there.
- No offset is past what is here, by the word of the partition's leader; without that word it is not taken over.  Of a
  promoted topic none is past what was here of its source, whatever is written since.

Counterpart in Kafka: ``MirrorCheckpointTask``, which has to translate offsets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.image.link_states import FETCHED, PROMOTED, SHARE, LinkState
from pybroker.cluster.links.source_port import (
    ANY_NODE,
    LIST_GROUPS_VERSION,
    METADATA_VERSION,
    OFFSET_FETCH_VERSION,
)
from pybroker.config.link_config import LinkConfig, links_of
from pybroker.config.resources import BROKER
from pybroker.config.schema import ConfigError
from pybroker.coordinators.last_looks import LastLooks
from pybroker.coordinators.news_of_groups import Key, SourceOffset, commit_of, is_news, is_news_to_the_end
from pybroker.coordinators.settlements import leaders_have_moved
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.links.source_port import Connect, Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.config.broker import BrokerConfig
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.settlements import Settlements
    from pybroker.env import Cancellable, Env

# How long a source has for one answer, and for how many groups it is asked at once.
ANSWER_TIMEOUT_MS: Final = 10_000
GROUPS_PER_REQUEST: Final = 50
# The version of OffsetCommit whose rules hold.
COMMIT_VERSION: Final = 9

# The coordinator here will answer otherwise before long.
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

AskEnds = Callable[[Collection[Key], Callable[[Mapping[Key, int]], None]], None]
AskEndsBefore = Callable[[Mapping[Key, int], Callable[[Mapping[Key, int]], None]], None]

logger = logging.getLogger(__name__)


class CarriedOffsets:
    """One per broker that has mirrored topics.

    ``groups()`` is this broker's coordinator, ``coordinates(group_id)`` whether it is that group's.
    ``ends(partitions, done)`` asks where what is committed of each ends here, and ``ends_before(epochs, done)`` where
    what was written before a leader epoch does (``replication/partition_ends``).
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: MetadataCache,
        connect: Connect,
        groups: Callable[[], GroupCoordinator],
        coordinates: Callable[[str], bool],
        ends: AskEnds,
        ends_before: AskEndsBefore,
        settlements: Settlements,
    ) -> None:
        self.env = env
        self.metadata = metadata
        self.connect = connect
        self.groups = groups
        self.coordinates = coordinates
        self.ends = ends
        self.ends_before = ends_before
        self.settlements = settlements
        self.metadata_max = config.get_int("offset.metadata.max.bytes")  # a longer one is left out: an offset is not
        self._config = config
        self._links: dict[str, _CarriedLink] = {}
        self._unsubscribe = metadata.subscribe(self._on_image)
        self._take_settings()

    def close(self) -> None:
        """Take over nothing any more."""
        self._unsubscribe()
        self.settlements.close()
        for link in self._links.values():
            link.close()

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        has_moved = leaders_have_moved(delta)
        if (BROKER, "") in delta.configs_changed:
            self._take_settings()
        elif has_moved:
            self._settle(image.mirrors)
        else:
            self._settle(delta.mirrors_changed)
        for link in self._links.values():
            if has_moved:
                link.take_groups_over()
            if link.name in delta.links_changed:
                link.know_source(image.links.get(link.name, LinkState()).source_cluster_id)

    def _settle(self, names: Iterable[str]) -> None:
        """Promoted topics are looked at once more, or not where their links carry no groups."""
        image, led = self.metadata.image, self.settlements.led()
        for name in names:
            mirror = image.mirrors.get(name)
            if mirror is None or mirror.state != PROMOTED or self.settlements.is_settled(mirror, led):
                continue
            if mirror.link in self._links:
                self._links[mirror.link].settle(name, mirror)
            else:
                self.settlements.tell(name, mirror, self.settlements.pending(mirror, led))

    def _take_settings(self) -> None:
        links = {name: config for name, config in links_of(self._config).items() if config.get("groups")}
        for name in [name for name in self._links if name not in links]:
            self._links.pop(name).close()
        for name, config in links.items():
            link = self._links.get(name)
            if link is None:
                self._links[name] = _CarriedLink(self, config)
            else:
                link.become(config)
        self._settle(self.metadata.image.mirrors)


class _CarriedLink:
    """One link's groups.  A look is a list of steps, each of which ends with ``_go_on``."""

    def __init__(self, owner: CarriedOffsets, config: LinkConfig) -> None:
        self.name = config.link
        self._owner = owner
        self._config = config
        self._source: Source | None = None
        self._seen: dict[tuple[str, Key], int] = {}  # at the source, when it was looked at last
        self._found: dict[tuple[str, Key], int] = {}  # in this look
        self._last_looks = LastLooks(owner.settlements)
        self._names: dict[str, str] = {}  # of topics: here, by the source's
        self._cluster_id = ""  # the source's, as this look knows it
        self._looked_at: dict[str, int] = {}  # groups that this look has come to, with their partitions
        self._failed: set[str] = set()  # those of them that could not be looked at
        self._steps: deque[Callable[[], None]] = deque()
        self._has_failed = self._is_looking = self._looks_again = self._closed = False
        self._timer: Cancellable | None = owner.env.timers.call_soon(self._look)

    def become(self, config: LinkConfig) -> None:
        """The link is set so."""
        before, self._config = self._config, config
        if before.connection() != config.connection():
            self._disconnect()
            self._seen.clear()
        if before != config:
            self._look_now()

    def settle(self, topic: str, mirror: MirroredTopic) -> None:
        """The topic was promoted: what is committed in it at the source is looked at once more."""
        if self._last_looks.add(topic, mirror):
            self._look_now()

    def take_groups_over(self) -> None:
        """Groups have another coordinator now, who may be this broker."""
        self._last_looks.look_for_more()
        if len(self._last_looks):
            self._look_now()

    def know_source(self, cluster_id: str) -> None:
        """The source's cluster is known, or is another one."""
        if cluster_id != self._cluster_id:
            self._look_now()

    def close(self) -> None:
        """Take over nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._disconnect()

    def _disconnect(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    # --- a look ------------------------------------------------------------------------------------------------------

    def _look_now(self) -> None:
        if self._is_looking:
            self._looks_again = True
        else:
            self._look_in(0)

    def _look_in(self, pause_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._closed else self._owner.env.timers.call_later(pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        self._is_looking, self._has_failed, self._looks_again = True, False, False
        self._found, self._looked_at, self._failed = {}, {}, set()
        image = self._owner.metadata.image
        self._cluster_id = image.links.get(self.name, LinkState()).source_cluster_id
        self._last_looks.begin(image.mirrors)
        self._names = {
            mirror.source_topic: name
            for name, mirror in image.mirrors.items()
            if mirror.link == self.name and (mirror.state in FETCHED or name in self._last_looks)
        }
        self._steps.clear()
        if self._names and self._is_connected():
            self._steps.append(self._ask_for_nodes)
        self._steps.append(self._end)
        self._go_on()

    def _is_connected(self) -> bool:
        if self._source is None:
            try:
                self._source = self._owner.connect(self._config)
            except ConfigError:
                self._has_failed = True  # the link's keeper tells of it
        return self._source is not None

    def _go_on(self) -> None:
        """Do the next step, in a turn of its own."""
        if not self._closed:
            self._owner.env.timers.call_soon(self._step)

    def _step(self) -> None:
        if not self._closed:
            self._steps.popleft()()

    def _end(self) -> None:
        self._is_looking = False
        if self._has_failed or self._failed:
            self._seen.update(self._found)  # what could not be looked at stands as it was seen last
        else:
            self._seen = self._found
        self._last_looks.end(self._looked_at, self._failed, not self._has_failed)
        self._look_in(0 if self._looks_again else self._config.get("refresh.interval.ms"))

    def _ask(
        self, node: int, request: Any, version: int, done: Callable[[Any], None], groups: Iterable[str] | None = None
    ) -> None:
        """Go on with ``done(response)``; without an answer these ``groups`` have failed, or the look as a whole."""
        source = self._source
        if source is None:
            self._fail(groups)
            return

        def answered(response: Any | None, _error: PeerError | None) -> None:
            if self._closed:
                return
            if response is None or source is not self._source:
                self._fail(groups)
            else:
                done(response)
                self._go_on()

        source.ask(node, request, version, answered, timeout_ms=ANSWER_TIMEOUT_MS)

    def _fail(self, groups: Iterable[str] | None) -> None:
        if groups is None:
            self._has_failed = True
        else:
            self._failed.update(groups)
        self._go_on()

    # --- what the source says ----------------------------------------------------------------------------------------

    def _ask_for_nodes(self) -> None:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        self._ask(ANY_NODE, request, METADATA_VERSION, self._on_nodes)

    def _on_nodes(self, response: Any) -> None:
        assert self._source is not None
        if not self._cluster_id or response.cluster_id != self._cluster_id:
            self._has_failed = True  # the link's keeper tells of another cluster, or has not looked yet
            return
        self._source.learn({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        self._steps.extendleft(partial(self._ask_for_groups, broker.node_id) for broker in response.brokers)

    def _ask_for_groups(self, node: int) -> None:
        request = ListGroupsRequest(states_filter=[])
        self._ask(node, request, LIST_GROUPS_VERSION, partial(self._on_groups, node))

    def _on_groups(self, node: int, response: Any) -> None:
        if response.error_code:
            logger.warning("link %s: its source lists no groups: %s", self._config.link, response.error_code)
            self._has_failed = True
            return
        named = (group.group_id for group in response.groups if group.protocol_type != SHARE)
        carried = [each for each in named if self._config.carries(each) and self._owner.coordinates(each)]
        wanted = [each for each in carried if self._is_wanted(each)]
        for start in range(0, len(wanted), GROUPS_PER_REQUEST):
            self._steps.appendleft(partial(self._ask_for_offsets, node, wanted[start : start + GROUPS_PER_REQUEST]))

    def _is_wanted(self, group_id: str) -> bool:
        """Whether it has offsets to look at; of one in promoted topics alone that was looked at there are none."""
        partition = self._looked_at[group_id] = self._owner.groups().partition_of(group_id)
        if len(self._names) > len(self._last_looks):
            return True
        return self._last_looks.needs(group_id, partition)

    def _ask_for_offsets(self, node: int, groups: list[str]) -> None:
        asked = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups]
        request = OffsetFetchRequest(groups=asked, require_stable=True)
        self._ask(node, request, OFFSET_FETCH_VERSION, self._on_offsets, groups)

    def _on_offsets(self, response: Any) -> None:
        for group in response.groups:
            if group.group_id not in self._looked_at or group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                continue  # it was not asked for, or has no offsets: deleted meanwhile, or of a kind that commits none
            if group.error_code:
                self._failed.add(group.group_id)
            elif offsets := self._offsets_of(group):
                self._steps.appendleft(partial(self._look_here, group.group_id, offsets))

    def _offsets_of(self, group: Any) -> dict[Key, SourceOffset]:
        """The group's offsets in topics that are mirrored, as they can be here."""
        found = {}
        topics, metadata_max = self._owner.metadata.image.topics_by_name, self._owner.metadata_max
        for topic in group.topics:
            name = self._names.get(topic.name)
            if name is None or name not in topics:
                continue
            if not self._last_looks.needs(group.group_id, self._looked_at[group.group_id], name):
                continue
            for each in topic.partitions:
                if each.error_code:
                    self._failed.add(group.group_id)  # a transaction with it is open
                elif (
                    each.committed_offset >= 0
                    and each.partition_index < len(topics[name].partitions)
                    and self._last_looks.first_epoch(name, each.partition_index) != -1
                ):
                    found[name, each.partition_index] = SourceOffset(
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata if len(each.metadata or "") <= metadata_max else "",
                    )
        return found

    # --- what is here ------------------------------------------------------------------------------------------------

    def _look_here(self, group_id: str, offsets: dict[Key, SourceOffset]) -> None:
        def known(response: Any) -> None:
            if response.error_code:
                self._note(group_id, response.error_code)
                self._go_on()
                return
            here = {
                (topic.name, each.partition_index): each.committed_offset
                for topic in response.topics
                for each in topic.partitions
            }
            self._take(group_id, offsets, here)

        asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        self._owner.groups().fetch_offsets(asked, False, known)

    def _take(self, group_id: str, offsets: dict[Key, SourceOffset], here: dict[Key, int]) -> None:
        """Take over what has moved at the source, as far as it is here."""
        news = {}
        for key, found in offsets.items():
            if is_news(found.offset, here.get(key, -1), self._seen.get((group_id, key))):
                news[key] = found
            else:
                self._found[group_id, key] = found.offset
        if news:
            self._ask_ends(news, lambda ends: self._commit(group_id, news, here, ends))
        else:
            self._go_on()

    def _ask_ends(self, keys: Collection[Key], done: Callable[[Mapping[Key, int]], None]) -> None:
        """Ask where each ends; one of a promoted topic where what is the source's does."""
        epochs = {key: epoch for key in keys if (epoch := self._last_looks.first_epoch(*key)) is not None}
        others = [key for key in keys if key not in epochs]
        if epochs:
            self._owner.ends_before(
                epochs, lambda known: self._owner.ends(others, lambda ends: done({**known, **ends}))
            )
        else:
            self._owner.ends(others, done)

    def _commit(
        self, group_id: str, news: dict[Key, SourceOffset], here: dict[Key, int], ends: Mapping[Key, int]
    ) -> None:
        """Commit what is news, none of it past the ``ends`` that are known."""
        if self._closed:
            return
        taken: dict[Key, SourceOffset] = {}
        topics = self._owner.metadata.image.topics_by_name
        for key, found in news.items():
            if key[0] not in topics:
                continue  # it was deleted meanwhile
            seen, end = self._seen.get((group_id, key)), ends.get(key, -1)
            if found.offset <= end:
                taken[key] = found
                self._found[group_id, key] = found.offset
                continue
            # The records to there are missing here yet: it is news still at the next look.
            if seen is not None:
                self._found[group_id, key] = seen
            if end < 0:
                self._failed.add(group_id)
            elif is_news_to_the_end(end, found.offset, here.get(key, -1), seen):
                taken[key] = SourceOffset(end, -1, found.metadata)
        if not taken:
            self._go_on()
            return

        def committed(response: Any) -> None:
            codes = {each.error_code for topic in response.topics for each in topic.partitions} - {0}
            if codes:
                for key in taken:  # they are news still when the group has no members
                    self._found.pop((group_id, key), None)
                self._note(group_id, min(codes))
            self._go_on()

        commit = commit_of(group_id, taken, {name: topics[name].topic_id for name, _ in taken})
        self._owner.groups().commit_offsets(commit, COMMIT_VERSION, committed)

    def _note(self, group_id: str, error_code: int) -> None:
        """A group here did not take them: it has members, which is as it should be, or cannot now."""
        if error_code in _NOT_NOW:
            self._failed.add(group_id)
        logger.debug("link %s: group %s takes no offsets: %s", self._config.link, group_id, error_name(error_code))
