"""Subscriptions by regular expression (KIP-848): which topics they name.

Owns: when a group's regular expressions are resolved, and what follows. All of a group are resolved together, so that
they make it assign once. That is done behind the heartbeat that asks for it, in slices of the loop's time, so that a
costly expression over many topics holds up no request. The groups take turns (``round_robin_work``).

The slices go by the clock that pure parts are handed (``ConsumerGroupContext.monotonic_ms``); where that stands still
(simulation, tests) the count of matches alone ends a slice.

Counterpart in Kafka: ``TopicRegexResolver``, and ``maybeUpdateRegularExpressions`` and
``handleRegularExpressionsResult`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer.consumer_records import (
    REGULAR_EXPRESSION,
    ResolvedRegex,
    group_metadata_record,
    regular_expression_record,
    tombstone,
)
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.regular_expressions import InvalidRegularExpression, compile_regex
from pybroker.coordinators.result import Record, Result
from pybroker_protocol.errors import ErrorCode

# A slice of resolving a group's regular expressions holds the loop for about this long, and a match or a compilation;
# and how often it matches one of them against one topic's name, where they are ordinary ones, in that time.
REGEX_SLICE_MS = 2
REGEX_MATCHES_PER_SLICE = 2_000

logger = logging.getLogger(__name__)

# No group is resolved again sooner than this, as in Kafka.
REFRESH_INTERVAL_MIN_MS = 10_000
NEVER_MS = -1_000_000_000_000
NO_VERSION = -1
# Compiling an ordinary expression takes about as long as so many matches.
MATCHES_PER_COMPILATION = 50


# Whether whoever asks may know of a topic.
MayDescribe = Callable[[str], bool]


class RegexChange(Enum):
    """What a member's request does to its subscription by regular expression."""

    NONE = "none"
    UPDATED = "updated"
    # The topics are known already, so the group can assign now.
    UPDATED_AND_RESOLVED = "updated and resolved"


def check_regex(pattern: str) -> None:
    """Raise GroupFailure unless RE2 takes the expression."""
    try:
        compile_regex(pattern)
    except InvalidRegularExpression as error:
        raise GroupFailure(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {error}") from None


def update_regex(
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, records: list[Record]
) -> RegexChange:
    """A member may have changed its expression: check the new one, forget the old one if it was the last with it."""
    old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
    if old == new:
        return RegexChange.NONE
    if old and group.regex_counts.get(old, 0) == 1:
        records.append(tombstone(REGULAR_EXPRESSION, group.group_id, old))
    if not new:
        return RegexChange.UPDATED_AND_RESOLVED
    if new not in group.regex_counts:
        check_regex(new)
    elif new in group.resolved:
        return RegexChange.UPDATED_AND_RESOLVED
    return RegexChange.UPDATED


def regexes_to_resolve(
    group: ConsumerGroup,
    settings: ConsumerSettings,
    topics: Topics,
    before: ConsumerMember,
    after: ConsumerMember,
    now_ms: int,
) -> list[str]:
    """The expressions of the group as it is about to be, if it is time to resolve them; else none."""
    new = after.subscribed_topic_regex
    is_new = bool(new) and new != before.subscribed_topic_regex and new not in group.regex_counts
    if not is_new and not group.regex_counts:
        return []
    last_ms = min((resolved.timestamp_ms for resolved in group.resolved.values()), default=NEVER_MS)
    if now_ms <= last_ms + REFRESH_INTERVAL_MIN_MS:
        return []
    counts = dict(group.regex_counts)
    for regex, by in ((before.subscribed_topic_regex, -1), (new, 1)):
        if regex:
            counts[regex] = counts.get(regex, 0) + by
    wanted = [regex for regex, count in counts.items() if count > 0]
    version = min((_version(resolved, topics) for resolved in group.resolved.values()), default=NO_VERSION)
    is_due = (
        is_new
        or len(wanted) != len(group.resolved)
        or version < topics.version_with_new_topics
        or now_ms > last_ms + settings.regex_refresh_ms
    )
    return wanted if is_due else []


def _version(resolved: ResolvedRegex, topics: Topics) -> int:
    """A version that is yet to come was counted by a Kafka whose directory was taken over: it says nothing here."""
    return resolved.version if resolved.version <= topics.image.epoch else NO_VERSION


class Resolution:
    """One resolution on its way: expressions against the topics of the image in which it began, as far as the member
    may know of them whose heartbeat began it.

    One expression at a time is compiled and matched, and given up then: a group may have thousands of them.
    """

    __slots__ = ("_steps", "_version", "matches")

    def __init__(self, regexes: Iterable[str], topics: Topics, may_describe: MayDescribe) -> None:
        self._version = topics.image.epoch
        self.matches: dict[str, set[str]] = {regex: set() for regex in regexes}
        self._steps = _resolve(list(topics.image.topics_by_name), self.matches, may_describe)

    def advance(self, monotonic_ms: Callable[[], int]) -> bool:
        """Work on it for a slice of the loop's time, by that clock; True when it is done."""
        end_ms = monotonic_ms() + REGEX_SLICE_MS
        left = REGEX_MATCHES_PER_SLICE
        for matched in self._steps:
            left -= matched
            if left <= 0 or monotonic_ms() >= end_ms:
                return False
        return True

    def resolved(self, now_ms: int) -> dict[str, ResolvedRegex]:
        return {regex: ResolvedRegex(frozenset(names), self._version, now_ms) for regex, names in self.matches.items()}


def _resolve(names: Sequence[str], matches: Mapping[str, set[str]], may_describe: MayDescribe) -> Iterator[int]:
    """Pauses after each compilation and each match, with the number of matches that would have taken as long.

    A costly match takes some milliseconds, so the clock is to be read after each: that is cheap beside any match.
    """
    for regex, found in matches.items():
        try:
            compiled = compile_regex(regex)
        except InvalidRegularExpression as error:
            # It was accepted once; it matches nothing until it is accepted again.
            logger.error("SubscribedTopicRegex %s", error)
            yield MATCHES_PER_COMPILATION
            continue
        yield MATCHES_PER_COMPILATION
        for name in names:
            if compiled.is_match(name) and may_describe(name):
                found.add(name)
            yield 1


def take_over(group: ConsumerGroup, topics: Topics, resolved: dict[str, ResolvedRegex]) -> Result:
    """Write what was resolved; the group assigns anew if an expression names other topics than before."""
    result = Result()
    records = result.records
    changed = False
    after = dict(group.resolved)
    for regex, found in resolved.items():
        if regex not in group.regex_counts:
            continue  # nobody subscribes to it any more
        known = group.resolved.get(regex)
        changed = changed or found.topics != (known.topics if known is not None else frozenset())
        after[regex] = found
        records.append(regular_expression_record(group.group_id, regex, found))
    names = set(group.topic_counts)
    for regex in group.regex_counts:
        names |= after[regex].topics if regex in after else frozenset()
    metadata_hash = topics.metadata_hash(names)
    if changed or metadata_hash != group.metadata_hash:
        epoch = group.group_epoch + 1
        records.append(group_metadata_record(group.group_id, epoch, metadata_hash))
        logger.debug("group %s: epoch %d", group.group_id, epoch)
        group.metadata_checked = (topics.version, epoch)
    return result
