"""What the active controller does for cluster links: it looks at each source from time to time, and follows it.

Owns: when a source is looked at, the questions of one look, and what is logged of a link that has a problem.  Does not
own what follows from a look (``decisions/mirrored_topics``), a connection (``sources``), nor records
(``replication/mirrors``).

Invariants: nothing is asked while this broker's controller is not active. Of one link one look is under way at a time.
What the settings want of topics is done at once, whether the source answers or not.

Counterpart in Kafka: the mirror coordinator of KIP-1279.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.cluster.decisions.carried_access import SourceAccess, carry_access
from pybroker.cluster.decisions.followed_settings import FOLLOWED_SETTINGS
from pybroker.cluster.decisions.mirrored_topics import (
    follow_source,
    forget_links,
    note_problem,
    take_wishes,
)
from pybroker.cluster.image.link_states import ADOPTED, MIRROR_STATE, MIRROR_TOPIC_ID, SourceCluster, SourceTopic
from pybroker.cluster.links.source_access import ask_for_access
from pybroker.cluster.links.source_port import ANY_NODE, DESCRIBE_CONFIGS_VERSION, METADATA_VERSION
from pybroker.config.link_config import LinkConfig, links_of
from pybroker.config.resources import BROKER, DEFAULT_CONFIG, TOPIC
from pybroker.config.schema import ConfigError
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, ImageDelta
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.links.source_port import Connect, Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env

# How long a source has for one answer of a look.
LOOK_TIMEOUT_MS: Final = 10_000
# Settings of all topics are asked for once in so many looks, and those of new topics at once.
LOOKS_PER_SETTINGS: Final = 12
# Topics whose settings are asked for with one request.
TOPICS_PER_REQUEST: Final = 200

# A broker that starts, or lags, may not know of topics that there are: so many looks in a row have to miss them.
LOOKS_UNTIL_LOST: Final = 3

# Brokers of a source may fail each in its own way, and are asked in turns: a reason stays until so many looks in a row
# have another one.
LOOKS_PER_REASON: Final = 12

# Why a topic is not mirrored that the source does not show.
UNSEEN: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the source has no such topic, or the link may not see it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the link may not see it at the source",
}

log = logging.getLogger(__name__)


class LinkKeeper:
    """One per broker that has links; made before or after its controller becomes active."""

    def __init__(
        self, env: Env, config: BrokerConfig, controller: Controller, metadata: MetadataCache, connect: Connect
    ) -> None:
        self._env = env
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._connect = connect
        self._watched: dict[str, _WatchedSource] = {}
        # By links: topics that were missed by so many looks in a row, and when the last one that counts was.
        self._missed: dict[str, dict[str, tuple[int, float]]] = {}
        self._unsubscribe = metadata.subscribe(self._on_image)
        controller.activity_listeners.append(self._on_activity)
        self._on_activity(controller.is_active)

    def close(self) -> None:
        """Look at nothing any more."""
        self._unsubscribe()
        self._controller.activity_listeners.remove(self._on_activity)
        self._on_activity(False)

    def _on_activity(self, is_active: bool) -> None:
        if is_active:
            self._take_settings()
        else:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()
            self._missed.clear()

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        if not self._controller.is_active:
            return
        deleted = [topic.name for topic in delta.topics_deleted if topic.name not in image.topics_by_name]
        for watched in self._watched.values() if deleted else ():
            if any(watched.config.source_name(name) is not None for name in deleted):
                watched.look_soon()  # the link makes it anew, before a client's Metadata does
        if (BROKER, "") in delta.configs_changed:
            self._take_settings()
        elif any(name in image.mirrors and image.mirrors[name].state == ADOPTED for name in delta.mirrors_changed):
            # What is to be discarded of it may be known now.
            links = links_of(self._config)
            self._submit(lambda builder: _take_all_wishes(builder, links))

    def _take_settings(self) -> None:
        """Have links as the settings name them."""
        links = links_of(self._config)
        for link, watched in list(self._watched.items()):
            if link not in links or links[link].connection() != watched.config.connection():
                self._watched.pop(link).close()
        self._submit(lambda builder: _take_all_wishes(builder, links))
        for link, config in links.items():
            watched_link = self._watched.get(link)
            if watched_link is None:
                self._watched[link] = _WatchedSource(
                    self._env, config, self._connect, self._follow, self._carry, self._note, self._lacks
                )
            elif watched_link.config != config:
                watched_link.become(config)

    def _follow(self, config: LinkConfig, source: SourceCluster) -> None:
        rules = self._controller.topic_rules
        looks = self._looks_that_missed(config, source)
        self._missed[config.link] = looks
        unsure = frozenset(topic for topic, (count, _) in looks.items() if count < LOOKS_UNTIL_LOST)

        def decide(builder: ImageBuilder) -> Generator[None, None, None] | None:
            watched = self._watched.get(config.link)
            if watched is None or watched.config is not config:
                return None  # it was altered meanwhile, and another look has begun
            return follow_source(builder, config, source._replace(unsure=unsure), rules)

        self._submit(decide)

    def _looks_that_missed(self, config: LinkConfig, source: SourceCluster) -> dict[str, tuple[int, float]]:
        """Those in a row, of each topic, and when the last one that counts was.

        One that follows another at once says nothing more: the broker that answers lags as it did.
        """
        now_ms, before = self._env.clock.monotonic_ms(), self._missed.get(config.link, {})
        counts_before_ms = now_ms - config.get("refresh.interval.ms") / 2
        looks = {}
        for topic in self._missed_topics(config, source):
            count, at_ms = before.get(topic, (0, -math.inf))
            looks[topic] = (count + 1, now_ms) if at_ms <= counts_before_ms else (count, at_ms)
        return looks

    def _missed_topics(self, config: LinkConfig, source: SourceCluster) -> list[str]:
        """Topics that the link mirrors, and which the source does not show, or with fewer partitions."""
        image = self._metadata.image
        missed = []
        for name, mirror in image.mirrors.items():
            if mirror.link != config.link or mirror.is_writable:
                continue
            seen, topic = source.topics.get(mirror.source_topic), image.topics_by_name.get(name)
            # One that the link may not see is no exception: an ACL that is replaced lacks for a moment.
            if seen is None or (topic is not None and len(seen.leader_epochs) < len(topic.partitions)):
                missed.append(mirror.source_topic)
        return missed

    def _carry(self, config: LinkConfig, access: SourceAccess) -> None:
        known = self._metadata.image.links.get(config.link)
        if access == SourceAccess() and (known is None or not known.has_of_access):
            return  # nothing is wanted
        has_authorizer = bool(self._config["authorizer.class.name"])
        self._submit(lambda builder: carry_access(builder, config, access, has_authorizer))

    def _lacks(self, config: LinkConfig, topic: str) -> bool:
        """Whether a topic of the source is not here yet, or not any more."""
        return config.get("prefix") + topic not in self._metadata.image.topics_by_name

    def _note(self, link: str, problem: str) -> None:
        """A link has a problem: it is reported where it is new."""
        known = self._metadata.image.links.get(link)
        if known is None or known.problem != problem:
            log.warning("link %s: %s", link, problem)
            self._submit(lambda builder: note_problem(builder, link, problem))

    def _submit(self, decide: Callable[[ImageBuilder], Generator[None, None, None] | None]) -> None:
        self._controller.submit(decide, lambda code, message: None, lambda _: None)


def _take_all_wishes(builder: ImageBuilder, links: dict[str, LinkConfig]) -> Generator[None, None, None]:
    forget_links(builder, links)
    for config in links.values():
        yield from take_wishes(builder, config)


class _Settings(NamedTuple):
    """Those of a topic at the source: what is set there, and what it has by default."""

    given: dict[str, str]
    defaults: dict[str, str]


class _WatchedSource:
    """One link's source, looked at every ``refresh.interval.ms``, and at once as the link's settings change.

    ``follow(config, source)`` gets what the source says, ``note(link, problem)`` why it says nothing, and
    ``carry(config, access)``, with the settings of all topics, who may do what there.  ``lacks(config, topic)`` says
    whether a topic is to be made, which cannot be done without its settings.
    """

    def __init__(
        self,
        env: Env,
        config: LinkConfig,
        connect: Connect,
        follow: Callable[[LinkConfig, SourceCluster], None],
        carry: Callable[[LinkConfig, SourceAccess], None],
        note: Callable[[str, str], None],
        lacks: Callable[[LinkConfig, str], bool],
    ) -> None:
        self.config = config
        self._asked_by = config  # what the link was set to as the look began that is under way
        self._env = env
        self._connect = connect
        self._follow = follow
        self._carry = carry
        self._note = note
        self._lacks = lacks
        self._source: Source | None = None
        self._looks = 0
        self._seen: set[str] = set()  # topics whose settings have been asked for
        self._not_made: set[str] = set()  # those of them that are mirrors there, and are made by their names alone
        self._timer: Cancellable | None = env.timers.call_soon(self._look)
        self._is_looking = self._looks_again = False
        self._reason = ""  # why the source says nothing, as it was noted last; "" since it has said something
        self._other_reasons = 0  # looks in a row that had another one
        self._closed = False

    def become(self, config: LinkConfig) -> None:
        """The link is set otherwise, with the same source."""
        self.config = config
        self._looks = 0
        self._look_in(0)

    def look_soon(self) -> None:
        """Look at once, or once more behind the look that is under way."""
        self._looks_again = True
        if not self._is_looking:
            self._look_in(0)

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._source is not None:
            self._source.close()

    def _look_in(self, pause_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._closed else self._env.timers.call_later(pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_looking or self._closed:
            return
        if self._source is None:
            try:
                self._source = self._connect(self.config)
            except ConfigError as error:
                self._fail(str(error))
                return
        self._is_looking, self._looks_again = True, False
        self._asked_by = self.config
        names = self.config.names()
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        self._ask(request, METADATA_VERSION, self._on_metadata)

    def _ask(self, request: Any, version: int, done: Callable[[Any], None]) -> None:
        def answered(response: Any | None, error: PeerError | None) -> None:
            if self._closed:
                return
            if self._asked_by is not self.config:
                self._is_looking = False
                self._look_in(0)  # what was asked for is another question's
            elif response is None:
                self._fail(f"its source does not answer: {error}")
            else:
                done(response)

        assert self._source is not None
        self._source.ask(ANY_NODE, request, version, answered, timeout_ms=LOOK_TIMEOUT_MS)

    def _on_metadata(self, response: Any) -> None:
        if not response.brokers:
            self._fail("its source names no brokers: it may be starting")  # and no topics, whichever there are
            return
        assert self._source is not None
        self._source.learn({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        topics = {
            topic.name: SourceTopic(topic.name, topic.topic_id, _leader_epochs(topic.partitions))
            for topic in response.topics
            if topic.name and not topic.error_code and topic.partitions and self.config.mirrors(topic.name)
        }
        refused = {
            topic.name: UNSEEN.get(topic.error_code) or f"the source says of it {error_name(topic.error_code)}"
            for topic in response.topics
            if topic.name and topic.error_code and self.config.mirrors(topic.name)
        }
        source = SourceCluster(response.cluster_id or "", topics, refused)
        if self._looks % LOOKS_PER_SETTINGS == 0:
            self._seen.clear()
        self._looks += 1
        self._seen &= topics.keys()
        known = {name for name in self._seen if name in self._not_made or not self._lacks(self.config, name)}
        self._ask_for_settings(source, {}, [name for name in topics if name not in known])

    def _ask_for_settings(self, source: SourceCluster, known: dict[str, _Settings], rest: list[str]) -> None:
        """Ask for the settings of so many topics, then for those of the rest, and follow the source then."""
        if not rest:
            self._end(source, known)
            return
        names, later = rest[:TOPICS_PER_REQUEST], rest[TOPICS_PER_REQUEST:]
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configuration_keys=[*FOLLOWED_SETTINGS, MIRROR_STATE, MIRROR_TOPIC_ID],
                )
                for name in names
            ],
            include_synonyms=False,
            include_documentation=False,
        )

        refused = dict(source.refused)

        def answered(response: Any) -> None:
            for result in response.results:
                if result.error_code:
                    what = error_name(result.error_code)
                    refused[result.resource_name] = f"its settings at the source cannot be had: {what}"
                else:
                    known[result.resource_name] = _settings(result.configs)
            self._ask_for_settings(source._replace(refused=refused), known, later)

        self._ask(request, DESCRIBE_CONFIGS_VERSION, answered)

    def _end(self, source: SourceCluster, known: dict[str, _Settings]) -> None:
        self._is_looking = False
        self._reason = ""
        topics = {name: _with_settings(topic, known.get(name)) for name, topic in source.topics.items()}
        # Of one that is to be adopted it is asked each time whether it takes writes there.
        self._seen.update(name for name in known if topics[name].takes_writes or not self.config.adopts(name))
        self._not_made.difference_update(known)
        self._not_made.update(
            name for name in known if not topics[name].takes_writes and not self.config.names_topic(name)
        )
        self._follow(self.config, source._replace(topics=topics))
        if self._looks % LOOKS_PER_SETTINGS == 1:
            self._look_at_access()
        self._look_in(0 if self._looks_again else self.config.get("refresh.interval.ms"))

    def _look_at_access(self) -> None:
        config = self.config
        assert self._source is not None

        def known(access: SourceAccess) -> None:
            if not self._closed and config is self.config:
                self._carry(config, access)

        ask_for_access(self._source, config, known)

    def _fail(self, problem: str) -> None:
        self._is_looking = False
        self._other_reasons = 0 if problem == self._reason else self._other_reasons + 1
        if not self._reason or self._other_reasons in (0, LOOKS_PER_REASON):
            self._reason, self._other_reasons = problem, 0
            self._note(self.config.link, problem)
        self._look_in(self.config.get("refresh.interval.ms"))


def _leader_epochs(partitions: list[Any]) -> tuple[int, ...]:
    by_index = {partition.partition_index: partition.leader_epoch for partition in partitions}
    return tuple(by_index.get(index, -1) for index in range(max(by_index) + 1))


def _settings(configs: list[Any]) -> _Settings:
    known = _Settings({}, {})
    for config in configs:
        if config.value is not None and not config.is_sensitive:
            (known.defaults if config.config_source == DEFAULT_CONFIG else known.given)[config.name] = config.value
    return known


def _with_settings(topic: SourceTopic, known: _Settings | None) -> SourceTopic:
    return topic if known is None else topic._replace(configs=known.given, defaults=known.defaults)
