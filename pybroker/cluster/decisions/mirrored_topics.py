"""Topics of other clusters that are mirrored here: which there are, how they stand, and their leader epochs.

Owns: what becomes of them by what the source says of itself (``follow_source``), by what links are set to, and by what
their leaders find (``take_reports``). Does not own the table of states (``image/link_states``), nor when the source is
asked (``link_keeper``).

Invariants
- A mirrored topic comes into being with its record, in one change, so that no broker takes it for one that is written
  to.  It is one link's alone.
- The leader epoch of a partition that is not writable is never below that of the source's partition. It begins
  ``EPOCHS_AHEAD`` above it, so that leaders that change at the source change nothing here.
- A topic becomes writable together with a new leader epoch for each partition, which is above all that the source has
  written here. A leader that has not heard of that yet is not the leader any more.
- A promotion that is taken back, and a topic that goes on after it was paused, stopped or adopted, begin a leader
  epoch, too.  A broker may hear of the last of several changes alone: it begins anew by the epoch, and what was found
  before counts no more.
- What stops one topic stops no other.
- A topic that is here already is adopted where one of both was mirrored from the other.  Of two that were not, the same
  leader epochs have other records.
- A topic that is mirrored at the source is mirrored where it is named alone. So two links with patterns, from cluster
  to cluster and back, make no topics of topics of topics.
- From the first mirrored topic on no producer id is given that another cluster may give (``own_producer_ids``).

Counterpart in Kafka: none yet; KIP-1279 proposes ``ClusterMirrorControlManager``.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from typing import Final

from pybroker.cluster.decisions.followed_settings import FOLLOWED_SETTINGS, followed_settings
from pybroker.cluster.decisions.operations import MorePartitions, NewTopic
from pybroker.cluster.decisions.placement import Refused
from pybroker.cluster.decisions.settled_offsets import SETTLED, is_settled, take_settled
from pybroker.cluster.decisions.topic_changes import TopicRules, create_topics, grow_topic
from pybroker.cluster.image.cluster_image import ImageBuilder, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.image.link_states import (
    ADOPTED,
    ALIKE,
    ASKED_FOR,
    CAUGHT_UP,
    DISCARD,
    DIVERGED,
    ENDED,
    FAIL_OVER,
    FETCHED,
    PARTED,
    PAUSE,
    PAUSED,
    PROMOTE,
    PROMOTING,
    RESUME,
    STOP,
    STOPPED,
    TRANSITIONS,
    UNKNOWN_EPOCH,
    LinkState,
    MirroredTopic,
    MirrorReport,
    SourceCluster,
    SourceTopic,
    own_producer_ids,
)
from pybroker.config.link_config import LinkConfig
from pybroker.config.resources import TOPIC
from pybroker_protocol.uuids import ZERO_UUID

# How far a mirrored partition's leader epoch begins above the source's: leaders may change there so often before the
# epoch here has to be raised.  Epochs are int32, so that a partition may go from cluster to cluster 30,000 times.
EPOCHS_AHEAD: Final = 1 << 16

# Of a topic whose settings were asked for before, and which was refused then, the former reason holds.
_SETTINGS_UNKNOWN: Final = "its settings at the source are not known yet"
_IS_HERE: Final = "a topic {} is here already"
_MIRRORED_THERE: Final = "it is mirrored at the source: `topics` has to have its name for that, and no pattern"
# Records are fetched by ids alone.
_WITHOUT_ID: Final = "the source gives it no topic id: its inter.broker.protocol.version is below 2.8"
_LINK_GONE: Final = "there is no link {} any more"
_NOT_SEEN: Final = "the source has no such topic, or the link may not see it"

# As many refused topics of a link are kept with their reasons; the others are counted.
REFUSED_MAX: Final = 100

_WITH_REASON: Final = frozenset((STOPPED, ADOPTED))
# What leaders have found in these says nothing once they are left.  Behind those in which nothing comes a log may be
# cut, and consumers have read it in the former epoch.
_LEFT_BY_EPOCH: Final = frozenset((PROMOTING, STOPPED, PAUSED, ADOPTED))

# So many partitions are named with what the source lacks of them.
PARTED_MAX: Final = 20

_WISHES: Final = {"": RESUME, "pause": PAUSE, "promote": PROMOTE, "failover": FAIL_OVER}


# --- states ----------------------------------------------------------------------------------------------------------


def moved(builder: ImageBuilder, name: str, by: str, reason: str = "") -> str | None:
    """Move a mirrored topic by an input; why that cannot be, or None.  ``reason`` is why it stops."""
    mirror = builder.view().mirrors[name]
    state = TRANSITIONS.get((mirror.state, by))
    if state is None:
        return f"it is {mirror.state}"
    if state == mirror.state and (state not in _WITH_REASON or mirror.reason == reason or by != STOP):
        return None
    # Groups that have read what is cut go back to where it began: the record says so until that is done.
    is_cut = by == DISCARD or (mirror.is_cut and not is_settled(builder.view(), mirror.lowered))
    partings = mirror.partings if is_cut else ()
    after = mirror._replace(state=state, reason=reason if state in _WITH_REASON else "", ended=(), partings=partings)
    if after.is_writable:
        after = after._replace(first_epochs=_begin_epochs(builder, name), carried=0, lowered=0)
    elif mirror.state in _LEFT_BY_EPOCH and state != mirror.state:
        _begin_epochs(builder, name)
    builder.put_mirror(name, after)
    return None


def _begin_epochs(builder: ImageBuilder, name: str) -> tuple[int, ...]:
    """Begin a leader epoch in each partition; which these are."""
    topic = builder.view().topics_by_name[name]
    partitions = tuple(_in_epoch(partition, partition.leader_epoch + 1) for partition in topic.partitions)
    builder.put_topic(topic._replace(partitions=partitions))
    return tuple(partition.leader_epoch for partition in partitions)


def _in_epoch(partition: PartitionImage, leader_epoch: int) -> PartitionImage:
    """The same leader, if there is one, under another epoch."""
    return partition._replace(leader_epoch=leader_epoch, partition_epoch=partition.partition_epoch + 1)


# --- what the settings want, and the source says ---------------------------------------------------------------------


def forget_links(builder: ImageBuilder, links: Iterable[str]) -> None:
    """Links that are set no more: what they mirrored stops."""
    known = set(links)
    image = builder.view()
    for name, mirror in list(image.mirrors.items()):
        # What takes writes keeps its record: its first epochs say which records are the source's.  What has stopped
        # before keeps its reason, which a link of the same name would not mend.
        if mirror.link not in known and not mirror.is_writable and mirror.state != STOPPED:
            moved(builder, name, STOP, _LINK_GONE.format(mirror.link))
    for link in list(image.links):
        if link not in known:
            builder.remove_link(link)


def note_problem(builder: ImageBuilder, link: str, problem: str) -> None:
    """Something is the matter with a link as a whole; "" that nothing is."""
    known = builder.view().links.get(link, LinkState())
    if known.problem != problem or link not in builder.view().links:
        builder.put_link(link, known._replace(problem=problem))


def take_wishes(builder: ImageBuilder, config: LinkConfig) -> Generator[None, None, None]:
    """Do what the settings of a link want of its topics, whatever the source says."""
    for name, mirror in list(builder.view().mirrors.items()):
        if mirror.link == config.link:
            _ask_for_ends(builder, name, mirror)
            if mirror.state == ADOPTED and config.discards(mirror.source_topic):
                _discard(builder, name)
            moved(builder, name, _WISHES[config.wish(mirror.source_topic)])
            yield


def _discard(builder: ImageBuilder, name: str) -> None:
    """Have cut what the source lacks, once that is known of each partition.

    What it was stays in the record: groups that have read it go back to where it began.
    """
    mirror, topic = builder.view().mirrors[name], builder.view().topics_by_name[name]
    if len(_ended(topic, mirror)) + len(mirror.partings) == len(topic.partitions):
        moved(builder, name, DISCARD)


def follow_source(
    builder: ImageBuilder, config: LinkConfig, source: SourceCluster, rules: TopicRules
) -> Generator[None, None, None]:
    """Have a link's topics as the source has them: made, grown, with its settings, or stopped."""
    link = config.link
    known = builder.view().links.get(link, LinkState())
    problem = _problem_of(builder, known, source)
    if problem:
        note_problem(builder, link, problem)
        return
    refused, before = dict(source.refused), dict(known.refused)
    for topic in source.topics.values():
        if config.mirrors(topic.name):
            reason = yield from _follow_topic(builder, config, source, topic, rules)
            if reason == _SETTINGS_UNKNOWN:
                reason = before.get(topic.name, reason)
            if reason is not None:
                refused.setdefault(topic.name, reason)
        yield
    for name in _named_and_not_seen(builder, config, source):
        refused.setdefault(name, _NOT_SEEN)
    for name, mirror in list(builder.view().mirrors.items()):
        if mirror.link == link and not mirror.is_writable:
            _look_for_lost(builder, config, name, mirror, source)
            yield
    yield from take_wishes(builder, config)
    # What two links with prefixes see of each other is no fault, and keeps no other from being named; nor does a reason
    # that had no room before, and is not asked for at this look.
    named = sorted(refused.items(), key=lambda item: item[1] in (_MIRRORED_THERE, _SETTINGS_UNKNOWN))
    after = known._replace(
        source_cluster_id=source.cluster_id,
        problem="",
        refused=tuple(named[:REFUSED_MAX]),
        refused_more=max(len(named) - REFUSED_MAX, 0),
    )
    if after != builder.view().links.get(link):
        builder.put_link(link, after)


def _named_and_not_seen(builder: ImageBuilder, config: LinkConfig, source: SourceCluster) -> list[str]:
    """Topics that the link names, which are not mirrored, and which the source does not show."""
    mirrors, prefix = builder.view().mirrors, config.get("prefix")
    missing = (name for name in config.get("topics") if "*" not in name and name not in source.topics)
    return [name for name in missing if config.mirrors(name) and prefix + name not in mirrors]


def _problem_of(builder: ImageBuilder, known: LinkState, source: SourceCluster) -> str:
    if source.cluster_id == builder.view().cluster_id:
        return "its source is this cluster itself"
    if known.source_cluster_id not in ("", source.cluster_id):
        return f"its source is the cluster {source.cluster_id}, and was {known.source_cluster_id}"
    return ""


def _follow_topic(
    builder: ImageBuilder, config: LinkConfig, source: SourceCluster, topic: SourceTopic, rules: TopicRules
) -> Generator[None, None, str | None]:
    """Have one topic here as it is at the source; why that cannot be, where there is no state of its own to say so."""
    name = config.get("prefix") + topic.name
    if name in INTERNAL_TOPICS:
        return f"{name} is a topic of this cluster's coordinators"
    image = builder.view()
    mirror = image.mirrors.get(name)
    is_free = mirror is None or mirror.is_writable or _is_left(builder, config, mirror)
    if name in image.topics_by_name and is_free and config.adopts(topic.name):
        return _adopt(builder, config, name, topic)
    if topic.topic_id == ZERO_UUID and (mirror is None or mirror.state in FETCHED):
        return _WITHOUT_ID
    if mirror is None:
        if name in image.topics_by_name:
            return _IS_HERE.format(name)
        return (yield from _begin(builder, config, name, topic, rules))
    if mirror.link != config.link:
        if _is_left(builder, config, mirror):
            return f"{name} was mirrored by the link {mirror.link}, which is deleted: `adopt` has it by this one"
        return _IS_HERE.format(name) if mirror.is_writable else f"{name} is mirrored by the link {mirror.link}"
    if mirror.reason == _LINK_GONE.format(mirror.link) and mirror.source_topic_id == topic.topic_id:
        # The operator has made a link of that name again.  Of a topic with another id the reason stays.
        for by in (PAUSE, RESUME):
            moved(builder, name, by)
        mirror = builder.view().mirrors[name]
    if mirror.state not in FETCHED:
        return None
    if mirror.source_topic_id not in (ZERO_UUID, topic.topic_id):
        return moved(builder, name, STOP, "at the source it was deleted and made anew")
    here = image.topics_by_name[name]
    if len(topic.leader_epochs) < len(here.partitions):
        if topic.name in source.unsure:
            return None
        return moved(builder, name, STOP, f"at the source it has {len(topic.leader_epochs)} partitions alone")
    if not topic.takes_writes and topic.mirrors(here.topic_id):
        return moved(builder, name, STOP, "at the source it is mirrored from here, so that neither takes writes")
    yield from _keep_up(builder, name, topic, rules)
    return None


def _is_left(builder: ImageBuilder, config: LinkConfig, mirror: MirroredTopic) -> bool:
    """Whether another link, which is deleted, has left it read-only."""
    return not mirror.is_writable and mirror.link != config.link and mirror.link not in builder.view().links


def _begin(
    builder: ImageBuilder, config: LinkConfig, name: str, topic: SourceTopic, rules: TopicRules
) -> Generator[None, None, str | None]:
    """Make a topic with its record; why it cannot be made."""
    if topic.configs is None:
        return _SETTINGS_UNKNOWN
    if not topic.takes_writes and not config.names_topic(topic.name):
        return _MIRRORED_THERE
    settings = tuple(followed_settings(topic, rules.config).items())
    factor = config.get("replication.factor")
    wanted = NewTopic(name, len(topic.leader_epochs), factor or -1, (), settings)
    (creation,) = yield from create_topics(builder, [wanted], rules)
    if creation.error_code:
        return creation.error_message or f"error {creation.error_code}"
    builder.put_mirror(name, MirroredTopic(config.link, topic.name, topic.topic_id))
    image = builder.view()
    builder.set_next_producer_id(max(image.next_producer_id, own_producer_ids(image.cluster_id)))
    _raise_epochs(builder, builder.view().topics_by_name[name], topic)
    return None


def _adopt(builder: ImageBuilder, config: LinkConfig, name: str, topic: SourceTopic) -> str | None:
    """Have a topic mirrored that is here already, and takes no writes from now on; why that cannot be."""
    here = builder.view().topics_by_name[name]
    if len(topic.leader_epochs) < len(here.partitions):
        return f"{_IS_HERE.format(name)}, with more partitions"
    if topic.configs is None:
        return _SETTINGS_UNKNOWN
    if not topic.takes_writes:
        return "it is mirrored at the source: it has to take writes there before it is mirrored here"
    if not topic.has_history_of(here.topic_id, builder.view().mirrors.get(name)):
        return f"{_IS_HERE.format(name)}, and neither was mirrored from the other: delete it, and it is made anew"
    mirror = MirroredTopic(config.link, topic.name, topic.topic_id, ADOPTED)
    builder.put_mirror(name, mirror._replace(reason=_lacking(mirror, len(here.partitions))))
    image = builder.view()
    builder.set_next_producer_id(max(image.next_producer_id, own_producer_ids(image.cluster_id)))
    # Each partition begins an epoch: what is appended here of a transaction that was open is cut by it, too.
    partitions = tuple(
        _in_epoch(partition, max(partition.leader_epoch + 1, epoch + EPOCHS_AHEAD))
        for partition, epoch in zip(here.partitions, topic.leader_epochs, strict=False)
    )
    builder.put_topic(here._replace(partitions=partitions))
    return None


def _keep_up(builder: ImageBuilder, name: str, topic: SourceTopic, rules: TopicRules) -> Generator[None, None, None]:
    here = builder.view().topics_by_name[name]
    count = len(topic.leader_epochs)
    if count > len(here.partitions):
        try:
            yield from grow_topic(builder, MorePartitions(name, count), rules.random)
        except Refused as refused:
            moved(builder, name, STOP, f"it cannot have {count} partitions: {refused.message}")
            return
    _raise_epochs(builder, builder.view().topics_by_name[name], topic)
    if topic.configs is not None:
        _follow_settings(builder, name, topic, rules)


def _raise_epochs(builder: ImageBuilder, here: TopicImage, topic: SourceTopic) -> None:
    """Have no leader epoch below the source's, and those of new partitions above it at once."""
    partitions = tuple(
        _at_least(partition, epoch) for partition, epoch in zip(here.partitions, topic.leader_epochs, strict=True)
    )
    if any(after is not before for after, before in zip(partitions, here.partitions, strict=True)):
        builder.put_topic(here._replace(partitions=partitions))


def _at_least(partition: PartitionImage, source_epoch: int) -> PartitionImage:
    if partition.leader_epoch and source_epoch <= partition.leader_epoch:
        return partition
    return _in_epoch(partition, source_epoch + EPOCHS_AHEAD)


def _follow_settings(builder: ImageBuilder, name: str, topic: SourceTopic, rules: TopicRules) -> None:
    """Take over what has changed at the source; what cannot be here stops the topic."""
    before = builder.view().overrides(TOPIC, name)
    own = {setting: text for setting, text in before.items() if setting not in FOLLOWED_SETTINGS}
    after = {**own, **followed_settings(topic, rules.config)}
    if after == before:
        return
    message = rules.config_error(dict(after), rules.config)
    if message is not None:
        moved(builder, name, STOP, f"its settings at the source cannot be here: {message}")
        return
    builder.put_overrides((TOPIC, name), after)


def _look_for_lost(
    builder: ImageBuilder,
    config: LinkConfig,
    name: str,
    mirror: MirroredTopic,
    source: SourceCluster,
) -> None:
    if mirror.state in _WITH_REASON:
        return
    if name != config.get("prefix") + mirror.source_topic or not config.mirrors(mirror.source_topic):
        moved(builder, name, STOP, f"the link {config.link} does not mirror it any more")
    elif mirror.source_topic not in source.topics and mirror.source_topic not in source.unsure:
        reason = source.refused.get(mirror.source_topic, _NOT_SEEN)
        moved(builder, name, STOP, reason)


# --- what leaders find -----------------------------------------------------------------------------------------------


def take_reports(builder: ImageBuilder, broker_id: int, reports: Sequence[MirrorReport]) -> None:
    """Do what follows from what a broker has found in partitions that it leads; what is out of date says nothing."""
    ended: dict[str, set[int]] = {}
    for report in reports:
        topic = builder.view().topics_by_id.get(report.topic_id)
        mirror = None if topic is None else builder.view().mirrors.get(topic.name)
        if topic is None or mirror is None or not 0 <= report.partition < len(topic.partitions):
            continue
        if report.kind in SETTLED:
            take_settled(builder, broker_id, topic.name, report)
            continue
        partition = topic.partitions[report.partition]
        if (partition.leader, partition.leader_epoch) != (broker_id, report.leader_epoch):
            continue
        if report.kind == ENDED:
            ended.setdefault(topic.name, set()).add(report.partition)
        elif mirror.state in ASKED_FOR:
            _take_report(builder, topic, mirror, report)
    for name, partitions in ended.items():
        _take_ends(builder, name, partitions)


def _ended(topic: TopicImage, mirror: MirroredTopic) -> set[int]:
    """Partitions of which the leaders that they have now say so: the log of a later one may lack what a former had."""
    return {index for index, epoch in mirror.ended if topic.partitions[index].leader_epoch == epoch}


def _ask_for_ends(builder: ImageBuilder, name: str, mirror: MirroredTopic) -> None:
    """Have leaders tell again, in another epoch, what an older version has kept without the epoch."""
    if any(epoch == UNKNOWN_EPOCH for _, epoch in mirror.ended):
        _begin_epochs(builder, name)
        builder.put_mirror(name, mirror._replace(ended=()))


def _take_ends(builder: ImageBuilder, name: str, partitions: set[int]) -> None:
    """Leaders have found nothing more at the source: of all partitions at once, because a topic has thousands."""
    mirror, topic = builder.view().mirrors[name], builder.view().topics_by_name[name]
    if mirror.state != PROMOTING:
        return
    after = mirror._replace(ended=_in_their_epochs(topic, partitions | _ended(topic, mirror)))
    if after != mirror:
        builder.put_mirror(name, after)
        if len(after.ended) == len(topic.partitions):
            moved(builder, name, CAUGHT_UP)


def _in_their_epochs(topic: TopicImage, ended: set[int]) -> tuple[tuple[int, int], ...]:
    return tuple((index, topic.partitions[index].leader_epoch) for index in sorted(ended))


def _take_report(builder: ImageBuilder, topic: TopicImage, mirror: MirroredTopic, report: MirrorReport) -> None:
    index = report.partition
    if report.kind == DIVERGED:
        partitions = list(topic.partitions)
        partitions[index] = _in_epoch(partitions[index], partitions[index].leader_epoch + 1)
        builder.put_topic(topic._replace(partitions=tuple(partitions)))
    elif report.kind == PARTED:
        if mirror.state == ADOPTED:
            _take_parting(builder, topic, mirror, index, report.reason)
    else:
        moved(builder, topic.name, STOP, f"partition {index}: {report.reason}")


def _take_parting(builder: ImageBuilder, topic: TopicImage, mirror: MirroredTopic, index: int, lost: str) -> None:
    """A leader has found what the source lacks of its partition: an offset and a number of records, "" for nothing."""
    partings = [each for each in mirror.partings if each[0] != index]
    ended = _ended(topic, mirror) - {index}
    numbers = [int(digits) for digits in re.findall(r"\d+", lost)]
    if numbers:
        offset, count = numbers
        partings.append((index, offset, count))
    else:
        ended.add(index)
    after = mirror._replace(ended=_in_their_epochs(topic, ended), partings=tuple(sorted(partings)))
    after = after._replace(reason=_lacking(after, len(topic.partitions)))
    if after != mirror:
        builder.put_mirror(topic.name, after)
    if len(ended) == len(topic.partitions):
        moved(builder, topic.name, ALIKE)


def _lacking(mirror: MirroredTopic, partitions: int) -> str:
    """What the source lacks of an adopted topic, in words."""
    looked_at = len(mirror.ended) + len(mirror.partings)
    parts = [] if looked_at == partitions else [f"{looked_at} of {partitions} partitions are looked at"]
    if mirror.partings:
        named = ", ".join(
            f"partition {index} from offset {offset} ({count})" for index, offset, count in mirror.partings[:PARTED_MAX]
        )
        more = len(mirror.partings) - PARTED_MAX
        total = sum(count for _, _, count in mirror.partings)
        parts.append(
            f"the source lacks {total} record{'' if total == 1 else 's'}: {named}"
            + (f", and {more} more partition{'' if more == 1 else 's'}" if more > 0 else "")
        )
    return ", ".join(parts)
