"""Mirrored partitions that this broker leads: which they are, who leads them at the source, and what was found.

Owns: a ``MirroredPartition`` for each that the image wants fetched here, and one ``MirroredLink`` for each link with
the fetchers of its source's brokers. Also owns the reports to the controller, and the end of the source's open
transactions where a topic takes writes. Does not own a fetch (``mirror_fetcher``), nor the states
(``cluster/image/link_states``).

Invariants: what is not to be fetched any more, or not so, is let go before anything else hears of the image. What takes
longer (opening logs) is done a share in each turn of the loop. A report is repeated until the controller has answered,
or the partition is led otherwise.

Counterpart in Kafka: ``MirrorMetadataManager`` of KIP-1279.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.link_states import ASKED_FOR, MIRRORING, PROMOTING, MirrorReport
from pybroker.config.link_config import links_of
from pybroker.config.resources import BROKER
from pybroker.replication.mirrored_link import MirroredLink
from pybroker.replication.mirrored_partition import MirroredPartition
from pybroker.replication.source_transactions import end_source_transactions

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.links.source_port import Connect
    from pybroker.env import Cancellable
    from pybroker.replication.replica_manager import ReplicaManager

# Partitions begin to be mirrored for so long in one turn of the loop.
MIRRORS_SLICE_MS: Final = 10
# What could not be done is tried again after this time: a log that cannot be had, a report, the end of a transaction.
MIRRORS_RETRY_MS: Final = 500

# report(reports, done(error code))
Report = Callable[[Sequence[MirrorReport], Callable[[int], None]], None]

logger = logging.getLogger(__name__)


class Mirrors:
    """One per broker, made with the first mirrored topic."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache, connect: Connect, report: Report) -> None:
        self._replicas = replicas
        self._connect = connect
        self._report = report
        self._links: dict[str, MirroredLink] = {}
        self._mirrored: dict[str, dict[int, MirroredPartition]] = {}  # by the topic's name here
        self._unsettled: dict[str, None] = {}  # topics
        self._later: dict[str, None] = {}  # those that wait for the next try
        self._turn: Cancellable | None = None
        self._retry: Cancellable | None = None
        self._reports: dict[tuple[bytes, int], tuple[MirroredPartition, MirrorReport]] = {}
        self._is_telling = False
        self._closed = False
        self._unsubscribe = metadata.subscribe(self._on_image)
        self._settle_soon(metadata.image.mirrors)

    def close(self) -> None:
        """Fetch nothing any more."""
        self._closed = True
        self._unsubscribe()
        self._unsettled.clear()
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        for link in self._links.values():
            link.close()

    def progress(self, link: str) -> list[dict[str, str | int]]:
        """How far each partition is that this broker fetches for a link; see ``MirroredPartition.progress``."""
        each_topic = (of_topic.values() for of_topic in self._mirrored.values())
        return [each.progress() for of_topic in each_topic for each in of_topic if each.link == link]

    # --- the image ---------------------------------------------------------------------------------------------------

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        names = dict.fromkeys(delta.mirrors_changed)
        for topic in (*delta.topics_created, *delta.topics_deleted, *(after for _, after in delta.topics_changed)):
            if topic.name in image.mirrors or topic.name in self._mirrored:
                names[topic.name] = None
        for name in names:
            self._let_go_of_others(image, name)
        if (BROKER, "") in delta.configs_changed:
            links = links_of(self._replicas.config)
            for name, link in self._links.items():
                link.become(links.get(name))
        for name in [name for name, link in self._links.items() if link.is_over]:
            del self._links[name]
        self._settle_soon(names)

    def _wanted(
        self, image: ClusterImage, name: str
    ) -> tuple[TopicImage, MirroredTopic, dict[int, PartitionImage]] | None:
        """The topic with those of its partitions that are led here; None where nothing of it is mirrored here."""
        topic, mirror = image.topics_by_name.get(name), image.mirrors.get(name)
        if topic is None or mirror is None:
            return None
        led = {index: state for index, state in enumerate(topic.partitions) if state.leader == self._replicas.broker_id}
        return topic, mirror, led

    def _let_go_of_others(self, image: ClusterImage, name: str) -> None:
        """Fetch no partition of the topic that is not to be fetched so."""
        wanted = self._wanted(image, name)
        for index, mirrored in list(self._mirrored.get(name, {}).items()):
            if wanted is None or not (_is_led_so(mirrored, *wanted) and self._goes_on(mirrored, wanted[1].state)):
                del self._mirrored[name][index]
                self._links[mirrored.link].remove(mirrored)
        if not self._mirrored.get(name, True):
            del self._mirrored[name]

    def _goes_on(self, mirrored: MirroredPartition, state: str) -> bool:
        """Whether it is fetched as before in that state: a promotion needs nothing else than its end."""
        if (mirrored.state, state) == (MIRRORING, PROMOTING):
            mirrored.state = state
            self._links[mirrored.link].look_for_end(mirrored)
        return mirrored.state == state

    def _settle_soon(self, names: Iterable[str]) -> None:
        self._unsettled.update(dict.fromkeys(names))
        if self._unsettled and self._turn is None and not self._closed:
            self._turn = self._replicas.env.timers.call_soon(self._settle_some)

    def _settle_some(self) -> None:
        """Begin with a share of the topics, and with the others in later turns."""
        self._turn = None
        env = self._replicas.env
        end_ms = env.clock.monotonic_ms() + MIRRORS_SLICE_MS
        while self._unsettled:
            name = next(iter(self._unsettled))
            del self._unsettled[name]
            try:
                self._settle(name)
            except Exception:  # the others begin
                logger.exception("%s cannot be mirrored now", name)
                self._settle_later(name)
            if self._unsettled and env.clock.monotonic_ms() >= end_ms:
                self._settle_soon(())
                return

    def _settle_later(self, name: str) -> None:
        self._later[name] = None
        self._try_later()

    def _try_later(self) -> None:
        if self._retry is None and not self._closed:
            self._retry = self._replicas.env.timers.call_later(MIRRORS_RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        later, self._later = self._later, {}
        self._settle_soon(later)
        self._tell_soon()

    def _settle(self, name: str) -> None:
        wanted = self._wanted(self._replicas.image, name)
        if wanted is None:
            return
        topic, mirror, led = wanted
        if mirror.state in ASKED_FOR:
            for index, state in led.items():
                if index not in self._mirrored.get(name, {}) and not self._begin(topic, mirror, index, state):
                    self._settle_later(name)
        elif mirror.is_writable:
            retry = partial(self._settle_later, name)
            for index in led:
                if not end_source_transactions(self._replicas, topic, mirror, index, retry):
                    retry()

    def _begin(self, topic: TopicImage, mirror: MirroredTopic, index: int, state: PartitionImage) -> bool:
        """Mirror one partition from now on; whether its log could be had."""
        partition = self._replicas.partition(topic.topic_id, index)
        if partition is None:
            return False
        mirrored = MirroredPartition(mirror, partition, state, self._tell, self._replicas.env.clock)
        self._mirrored.setdefault(topic.name, {})[index] = mirrored
        link = self._links.get(mirror.link)
        if link is None:
            link = self._links[mirror.link] = MirroredLink(self._replicas, mirror.link, self._connect)
        link.add(mirrored)
        return True

    # --- reports -----------------------------------------------------------------------------------------------------

    def _tell(self, mirrored: MirroredPartition, kind: int, reason: str) -> None:
        partition = mirrored.partition
        report = MirrorReport(partition.topic_id, partition.index, partition.leader_epoch, kind, reason)
        self._reports[partition.topic_id, partition.index] = mirrored, report
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._reports and not self._is_telling and not self._closed:
            self._is_telling = True
            self._replicas.env.timers.call_soon(self._tell_all)

    def _tell_all(self) -> None:
        """Tell the controller all that is to be told, at once."""
        told = {key: each for key, each in self._reports.items() if not each[0].retired}
        self._reports = dict(told)
        if not told or self._closed:
            self._is_telling = False
            return

        def answered(error_code: int) -> None:
            self._is_telling = False
            if error_code:
                self._try_later()
                return
            for key, each in told.items():
                if self._reports.get(key) is each:
                    del self._reports[key]
            self._tell_soon()

        self._report([report for _, report in told.values()], answered)


def _is_led_so(
    mirrored: MirroredPartition, topic: TopicImage, _mirror: MirroredTopic, led: dict[int, PartitionImage]
) -> bool:
    """Whether it is led here still, in the same epoch."""
    state = led.get(mirrored.index)
    return (
        state is not None
        and state.leader_epoch == mirrored.leader_epoch
        and topic.topic_id == mirrored.partition.topic_id
        and not mirrored.partition.gone
    )
