"""What the options of a read say: which partitions, from where to where, how much at a time.

Owns names, defaults and contradictions, which are those of Spark's Kafka connector (its class KafkaSourceProvider), but
for the level of isolation; owns nothing that asks the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX, ClientSettings, client_settings
from pybroker.pipeline.topics.option_values import OptionValues
from pybroker.pipeline.topics.topic_partitions import Offsets, TopicPartition, offsets_of_json, partitions_of_json
from pybroker.pipeline.topics.topic_patterns import translated

# As partitions' offsets in ``startingOffsets`` and ``endingOffsets``.
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

# Kafka's consumers have ``read_uncommitted``: the folder's README has what is lost by either.
ISOLATION_LEVEL_DEFAULT = "read_committed"

# Behind what has been lost, for a query whose options are its owner's.
LOSS_ADVICE = "; with failOnDataLoss=false the query goes on with what is there"

MAX_TRIGGER_DELAY_DEFAULT_MS = 15 * 60 * 1000
POLL_TIMEOUT_DEFAULT_MS = 120_000

_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
OPTIONS = (
    *_SUBSCRIPTIONS,
    *_ENDS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
)
_WITHOUT_EFFECT = (
    # Of the connector's own way to ask for offsets.
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    # Spark's own, of ``load(path)``.
    "path",
)


class Edge(Enum):
    """One end of what a partition has."""

    EARLIEST = EARLIEST_OFFSET
    LATEST = LATEST_OFFSET


@dataclass(frozen=True, slots=True)
class ByOffset:
    """Each partition's own offset; `LATEST_OFFSET` and `EARLIEST_OFFSET` stand for the edges."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The first record at or behind a time (ms since 1970), a partition's own or the one for all."""

    partition_ms: Offsets
    everywhere_ms: int | None = None


Bound = Edge | ByOffset | ByTimestamp


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions are read; exactly one of the three is set.

    ``pattern`` is Python's, and finds a topic where it is found anywhere in its name.
    """

    assigned: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read.  ``client`` are librdkafka's settings; limits count offsets, not rows."""

    client: ClientSettings
    subscription: Subscription
    starting: Bound
    ending: Bound
    latest_without_timestamp: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    records_per_partition_max: int | None
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_max_ms: int
    poll_timeout_ms: int


def read_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a batch or a stream; raises ValueError, naming the option, for what cannot be meant."""
    values = OptionValues(options)
    values.refuse_unknown((*OPTIONS, *_WITHOUT_EFFECT), (CLIENT_PREFIX,))
    for name in _ENDS:
        if streaming and values.text(name) is not None:
            raise ValueError(f"option {name} is not valid in streaming queries")
    starting = _bound(values, "starting", Edge.LATEST if streaming else Edge.EARLIEST)
    ending = _bound(values, "ending", Edge.LATEST)
    if not streaming:
        _check_batch(starting, ending)
    strategy = (values.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in {"error", "latest"}:
        raise ValueError(f"option startingOffsetsByTimestampStrategy must be error or latest, is {strategy}")
    least, most = values.positive("minOffsetsPerTrigger"), values.positive("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ValueError(f"option minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}")
    return SourceOptions(
        client=_consumer_settings(values),
        subscription=_subscription(values),
        starting=starting,
        ending=ending,
        latest_without_timestamp=strategy == "latest",
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        include_headers=values.flag("includeHeaders", False),
        min_partitions=values.positive("minPartitions"),
        records_per_partition_max=values.positive("maxRecordsPerPartition"),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_max_ms=values.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_DEFAULT_MS),
        poll_timeout_ms=values.duration_ms("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_DEFAULT_MS),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the table has a column of headers."""
    return OptionValues(options).flag("includeHeaders", False)


def _consumer_settings(values: OptionValues) -> ClientSettings:
    given = client_settings(values.prefixed(CLIENT_PREFIX))
    # librdkafka wants a group, though none is joined.
    group = f"{values.text('groupIdPrefix') or 'pybroker-spark'}-source"
    return ClientSettings({"group.id": group, "isolation.level": ISOLATION_LEVEL_DEFAULT, **given})


def _subscription(values: OptionValues) -> Subscription:
    named = [name for name in _SUBSCRIPTIONS if values.text(name) is not None]
    if len(named) != 1:
        raise ValueError(f"exactly one of the options {', '.join(_SUBSCRIPTIONS)} must be set")
    (name,) = named
    text = values.text(name) or ""
    if name == "assign":
        found = Subscription(assigned=values.parsed(name, partitions_of_json) or frozenset())
    elif name == "subscribe":
        found = Subscription(topics=tuple(topic for part in text.split(",") if (topic := part.strip())))
    else:
        found = Subscription(pattern=values.parsed(name, translated) or "")
    if found == Subscription():
        raise ValueError(f"option {name} names nothing: {text!r}")
    return found


def _bound(values: OptionValues, side: str, default: Edge) -> Bound:
    """The first of the three that is set counts, in the connector's order."""
    everywhere_ms = values.parsed(f"{side}Timestamp", int)
    if everywhere_ms is not None:
        return ByTimestamp({}, everywhere_ms)
    partition_ms = values.parsed(f"{side}OffsetsByTimestamp", offsets_of_json)
    if partition_ms is not None:
        return ByTimestamp(partition_ms)
    text = values.text(f"{side}Offsets")
    if text is None:
        return default
    if text.upper() in Edge.__members__:
        return Edge[text.upper()]
    return ByOffset(values.parsed(f"{side}Offsets", offsets_of_json) or {})


def _check_batch(starting: Bound, ending: Bound) -> None:
    if starting is Edge.LATEST or (isinstance(starting, ByOffset) and LATEST_OFFSET in starting.offsets.values()):
        raise ValueError("option startingOffsets cannot be latest in a batch")
    if ending is Edge.EARLIEST or (isinstance(ending, ByOffset) and EARLIEST_OFFSET in ending.offsets.values()):
        raise ValueError("option endingOffsets cannot be earliest in a batch")
