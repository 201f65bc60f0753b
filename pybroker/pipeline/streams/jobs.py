"""What a job is: a function from topics to topics, which runs on a broker or in the test driver unchanged.

Owns the form of a job, and its start on real topics; one streaming query per output topic, as Spark wants it.  The test
driver (``pybroker.pipeline.testing``) is the other place where a job runs.

Counterparts: Kafka Streams' Topology, and KafkaStreams.start.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pybroker.pipeline.progress import mirror_progress
from pybroker.pipeline.spark_python import refuse_connect
from pybroker.pipeline.spark_session import ADAPTIVE_SETTING
from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX, without_prefix
from pybroker.pipeline.topics.rows import check_columns
from pybroker.pipeline.topics.sink_options import read_sink_options
from pybroker.pipeline.topics.topic_partitions import OffsetTree, offsets_of_json, tree_of_offsets
from pybroker.pipeline.topics.writers import QUERY_PROPERTY, default_group

_TOPIC = "topic"
_BOOTSTRAP = f"{CLIENT_PREFIX}bootstrap.servers"
_GROUP = "transactionGroup"
_EPOCH = "epoch"
# What `start` says itself, by names in lower case.
_OWN_SINK_OPTIONS = frozenset({_TOPIC, _EPOCH, "checkpointlocation", "queryname", "path"})
# Of options of the source: which part of a topic a stream reads, and how fast.
_OF_A_STREAM = re.compile(r"starting|ending|m(in|ax)offsetspertrigger|maxtriggerdelay", re.IGNORECASE)
# Of those, by names in lower case, what tells topics apart.
_BY_TOPIC = frozenset({"startingoffsets", "startingoffsetsbytimestamp"})
_SECURITY_PREFIXES = tuple(f"{CLIENT_PREFIX}{name}." for name in ("security", "sasl", "ssl"))

OutputMode: TypeAlias = Literal["append", "update", "complete"]

STATE_STORE_SETTING = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Topics(Protocol):
    """Where a job reads.  Rows have the columns of Spark's Kafka connector, ``headers`` included."""

    def stream(self, topic: str) -> DataFrame:
        """The records of ``topic`` from its beginning on, as a streaming DataFrame."""
        ...

    def batch(self, topic: str) -> DataFrame:
        """What ``topic`` holds, read anew in each micro-batch."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """What goes to a topic, where Spark's output mode is not ``append``.

    ``rows`` has ``value`` (string or binary) and, where they matter, ``key``, ``partition``, ``headers``, ``timestamp``
    and ``topic``: a row that names a topic goes there, others to the output's own.
    """

    rows: DataFrame
    mode: OutputMode = "append"


Outputs: TypeAlias = Mapping[str, DataFrame | Output]
Job: TypeAlias = Callable[[Topics], Outputs]


def outputs_of(job: Job, topics: Topics) -> dict[str, Output]:
    """What ``job`` writes, by topic.  Where rows have a column ``topic``, each has one."""
    made = job(topics).items()
    return {topic: _with_topics(rows if isinstance(rows, Output) else Output(rows), topic) for topic, rows in made}


def _with_topics(output: Output, topic: str) -> Output:
    if _TOPIC not in output.rows.columns:
        return output
    return replace(output, rows=output.rows.withColumn(_TOPIC, F.coalesce(_TOPIC, F.lit(topic))))


def keep_state_in_rocksdb(spark: SparkSession) -> None:
    """Have the session's queries keep their state as ``transformWithState`` demands, unless a provider was chosen."""
    if spark.conf.get(STATE_STORE_SETTING, None) in (None, _HDFS_PROVIDER):
        spark.conf.set(STATE_STORE_SETTING, ROCKSDB_PROVIDER)


_HDFS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """Topics of a broker, by ``format("pybroker")``.

    ``options`` are further ones of the source; those of security (``kafka.sasl.…``) are the sink's as well.  A
    ``batch`` is all that a topic holds: those that say where a stream begins and ends, and how fast it goes, leave it
    alone.  Of those that name topics (``startingOffsets`` as JSON) a stream takes what is said of its own; a topic that
    is not named is read from its beginning on.

    Committed records alone are read unless ``kafka.isolation.level`` says otherwise: with the sink's transactions that
    makes a job from topics to topics exactly-once.
    """

    spark: SparkSession
    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    # Of which topics there is a stream, so that `start` knows names that are nobody's.
    _streams: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises RuntimeError for a session of Spark Connect."""
        refuse_connect(self.spark)

    def stream(self, topic: str) -> DataFrame:
        """See `Topics`."""
        self._streams.add(topic)
        reader = self.spark.readStream.format("pybroker").option("startingOffsets", "earliest")
        return reader.options(**self._options(topic)).load()

    def batch(self, topic: str) -> DataFrame:
        """See `Topics`."""
        options = {name: value for name, value in self._options(topic).items() if not _OF_A_STREAM.match(name)}
        return self.spark.read.format("pybroker").options(**options).load()

    @property
    def connection(self) -> dict[str, str]:
        """The options by which any client reaches this broker: its address, and those of security."""
        given = {name: value for name, value in self.options.items() if name.lower().startswith(_SECURITY_PREFIXES)}
        return {_BOOTSTRAP: self.bootstrap, **given}

    def check_named(self) -> None:
        """Raise ValueError where an option names a topic of which no stream was asked for: it would say nothing."""
        for name, value in self.options.items():
            if strange := _by_topic(name, value).keys() - self._streams:
                raise ValueError(f"option {name} names {', '.join(sorted(strange))}, of which the job reads no stream")

    def _options(self, topic: str) -> dict[str, str]:
        options = {
            _BOOTSTRAP: self.bootstrap,
            "subscribe": topic,
            "includeHeaders": "true",
        }
        for name, value in self.options.items():
            if not (named := _by_topic(name, value)):
                options[name] = value
            elif topic in named:
                options[name] = json.dumps({topic: named[topic]})
        return options


def _by_topic(option: str, value: str) -> OffsetTree:
    """What an option says of each topic that it names; nothing where it says the same of all, or is wrong anyway."""
    if option.lower() not in _BY_TOPIC:
        return {}
    try:
        return tree_of_offsets(offsets_of_json(value))
    except ValueError:  # ``latest``; and what is wrong the source tells
        return {}


def start(
    job: Job,
    topics: BrokerTopics,
    checkpoints_dir: Path | str,
    *,
    until_done: bool = False,
    interval: str = "0 seconds",
    group: str | None = None,
    sink_options: Mapping[str, str] | None = None,
) -> list[StreamingQuery]:
    """Start ``job`` on real topics, or go on where it stopped; returns a query per output topic.

    ``checkpoints_dir``, a path or URI, keeps progress and state, a folder per output topic.  With ``until_done`` the
    queries end when they have processed what the topics hold now; otherwise they look for news every ``interval``.

    How far each query has read is committed for the group GROUP-TOPIC, or ``pybroker-spark-QUERY`` without a name, so
    that tools show its lag.

    ``sink_options`` are those of a write with ``format("pybroker")``, such as ``deterministic`` or
    ``kafka.transaction.timeout.ms``, for all outputs; of a ``transactionGroup`` NAME each has NAME-TOPIC.

    Raises ValueError for options and columns that cannot be meant, before any query is started.  Where one cannot be
    started, those before it are stopped.
    """
    topics = replace(topics)  # which streams there are is this job's alone
    outputs = outputs_of(job, topics)
    topics.check_named()
    sinks = {topic: sink_of(topics, sink_options or {}, topic, output) for topic, output in outputs.items()}
    queries: list[StreamingQuery] = []
    try:
        for topic, output in outputs.items():
            checkpoint = f"{str(checkpoints_dir).rstrip('/')}/{topic}"
            shown = None if group is None else f"{group}-{topic}"
            trigger = {"availableNow": True} if until_done else {"processingTime": interval}
            queries.append(start_output(topics, topic, output, sinks[topic], checkpoint, trigger=trigger, group=shown))
    except BaseException:
        for query in queries:
            query.stop()
        raise
    return queries


def start_output(
    topics: BrokerTopics,
    name: str,
    output: Output,
    sink: Mapping[str, str],
    checkpoint: str,
    *,
    trigger: Mapping[str, Any],
    group: str | None,
) -> StreamingQuery:
    """Start the query of one output by its own name, with the sink of `sink_of`; ``group`` shows its progress."""
    keep_state_in_rocksdb(topics.spark)
    topics.spark.conf.set(ADAPTIVE_SETTING, "false")
    writer = _writer(output, sink).queryName(name).option("checkpointLocation", checkpoint)
    query = writer.trigger(**trigger).start()
    client = without_prefix(topics.connection)
    try:
        mirror_progress(topics.spark, query, group or default_group(str(query.id)), client)
    except BaseException:
        query.stop()
        raise
    return query


def sink_of(topics: BrokerTopics, given: Mapping[str, str], topic: str, output: Output) -> dict[str, str]:
    """The options of one output's sink, beside those ``given``; raises ValueError for what cannot be meant."""
    for name in given:
        if name.lower() in _OWN_SINK_OPTIONS:
            raise ValueError(f"sink option {name} is set by start itself")
    sink = topics.connection
    sink |= {name: f"{value}-{topic}" if name.lower() == _GROUP.lower() else value for name, value in given.items()}
    names_topics = _TOPIC in output.rows.columns
    if not names_topics:
        sink[_TOPIC] = topic
    read_sink_options(sink)
    try:
        check_columns(output.rows.schema, None if names_topics else topic)
    except ValueError as error:
        raise ValueError(f"output {topic}: {error}") from error
    return sink


def _writer(output: Output, sink: Mapping[str, str]) -> DataStreamWriter:
    writer = output.rows.writeStream.outputMode(output.mode)
    if output.mode == "append":
        return writer.format("pybroker").options(**sink)
    return writer.foreachBatch(partial(_write_changes, sink))


def _write_changes(sink: Mapping[str, str], batch: DataFrame, epoch: int) -> None:
    """Write a micro-batch exactly once: to Spark a sink in Python has no output mode but ``append``."""
    query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    marks = {_EPOCH: str(epoch)}
    if _GROUP.lower() not in map(str.lower, sink):
        marks[_GROUP] = default_group(query)
    batch.write.format("pybroker").options(**sink, **marks).mode("append").save()
