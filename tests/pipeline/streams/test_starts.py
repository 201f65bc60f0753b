"""How a job is started: which options go where, and what is stopped when it fails; without Spark's JVM.

Needs PySpark: marked like what starts a JVM.
"""

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


@dataclass
class Call:
    """Stands for Spark's readers and writers: remembers what it is given."""

    schema: Any = None
    fails: bool = False
    options_given: dict[str, str] = field(default_factory=dict)
    batch_function: Any = None
    started: list[Any] = field(default_factory=list)
    stopped: list[Any] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def itself(self) -> "Call":
        return self

    writeStream = readStream = read = write = itself

    def same(self, *_given: Any, **_named: Any) -> "Call":
        return self

    outputMode = format = queryName = trigger = mode = save = same

    def load(self) -> dict[str, str]:
        return self.options_given

    def foreachBatch(self, function: Any) -> "Call":
        self.batch_function = function
        return self

    def option(self, name: str, value: str) -> "Call":
        return self.options(**{name: value})

    def options(self, **given: str) -> "Call":
        self.options_given |= given
        return self

    def start(self) -> Any:
        if self.fails:
            raise RuntimeError("no such checkpoint")
        query = SimpleNamespace(id=len(self.started))
        query.stop = lambda: self.stopped.append(query)
        self.started.append(query)
        return query


def frame(*columns: str, **given: Any) -> Call:
    from pyspark.sql.types import StringType, StructField, StructType

    return Call(StructType([StructField(name, StringType()) for name in columns or ("key", "value")]), **given)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`start` of outputs, at an address where nobody listens."""
    from pybroker.pipeline.streams import jobs

    monkeypatch.setattr(jobs, "mirror_progress", lambda *_given: None)
    conf = SimpleNamespace(get=lambda *_given: "chosen", set=lambda *_given: None)

    def begin(outputs: Any, **given: Any) -> Any:
        topics = jobs.BrokerTopics(SimpleNamespace(conf=conf), "127.0.0.1:1")  # type: ignore[arg-type,unused-ignore]
        return jobs.start(lambda _topics: outputs, topics, "/checkpoints", **given)

    return begin


def test_options_of_the_sink_go_to_every_output(start: Any) -> None:
    from pybroker.pipeline.streams.jobs import Output

    appended, changed = frame(), frame()
    given = {"kafka.transaction.timeout.ms": "600000", "deterministic": "false", "transactionGroup": "mine"}
    start({"a": appended, "b": Output(changed, "update")}, sink_options=given)  # type: ignore[arg-type,unused-ignore]
    wanted = {"kafka.bootstrap.servers": "127.0.0.1:1", **given, "transactionGroup": "mine-a", "topic": "a"}
    assert appended.options_given == {**wanted, "checkpointLocation": "/checkpoints/a"}
    batch: Any = frame()
    batch.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda _name: "q1"))
    changed.batch_function(batch, 7)
    assert batch.options_given == {**wanted, "transactionGroup": "mine-b", "topic": "b", "epoch": "7"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Topic", "sink option Topic is set by start itself"),
        ("epoch", "sink option epoch is set by start itself"),
        ("determinstic", "unknown option determinstic; did you mean deterministic?"),
    ],
)
def test_options_of_the_sink_that_cannot_be_meant_are_refused_before_a_query_starts(
    start: Any, name: str, reason: str
) -> None:
    rows = frame()
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        start({"a": rows}, sink_options={name: "x"})
    assert rows.started == []


def test_the_columns_of_all_outputs_are_looked_at_before_a_query_starts(start: Any) -> None:
    first = frame()
    with pytest.raises(ValueError, match="output b: column count has no meaning in a topic"):
        start({"a": first, "b": frame("value", "count")})
    assert first.started == []


def test_what_was_started_is_stopped_when_a_later_output_cannot_be_started(start: Any) -> None:
    first = frame()
    with pytest.raises(RuntimeError, match="no such checkpoint"):
        start({"a": first, "b": frame(fails=True)})
    assert first.started == first.stopped != []


def test_a_batch_is_the_whole_topic_wherever_the_streams_begin() -> None:
    from pybroker.pipeline.streams.jobs import BrokerTopics

    of_streams = {
        "startingOffsets": "latest",
        "startingtimestamp": "1",
        "endingOffsetsByTimestamp": "{}",
        "maxOffsetsPerTrigger": "5",
        "minOffsetsPerTrigger": "1",
        "maxTriggerDelay": "1m",
    }
    of_both = {"kafka.sasl.mechanism": "PLAIN", "failOnDataLoss": "false"}
    spark: Any = SimpleNamespace(read=Call(), readStream=Call())
    topics = BrokerTopics(spark, "127.0.0.1:1", {**of_streams, **of_both})
    common = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "includeHeaders": "true", **of_both}
    found: Any = (topics.batch("t"), topics.stream("t"))
    assert found == (common, common | of_streams)


def test_a_stream_takes_its_own_of_options_that_name_topics() -> None:
    from pybroker.pipeline.streams.jobs import BrokerTopics

    begin = {"STARTINGOFFSETS": '{"a": {"0": 3, "1": -2}, "b": {"0": 5}}'}
    times = {"startingOffsetsByTimestamp": '{"b": {"0": 7}}'}

    def begun(topic: str) -> dict[str, str]:
        topics = BrokerTopics(SimpleNamespace(readStream=Call()), "127.0.0.1:1", begin | times)  # type: ignore[arg-type,unused-ignore]
        found: Any = topics.stream(topic)
        return {name: value for name, value in found.items() if name.lower().startswith("starting")}

    whole = {"startingOffsets": "earliest"}
    assert begun("a") == whole | {"STARTINGOFFSETS": '{"a": {"0": 3, "1": -2}}'}
    assert begun("b") == whole | {
        "STARTINGOFFSETS": '{"b": {"0": 5}}',
        "startingOffsetsByTimestamp": '{"b": {"0": 7}}',
    }
    assert begun("c") == whole


@pytest.mark.parametrize("value", ["latest", '{"a": 3}', "{}"])
def test_an_option_that_names_no_topics_goes_to_every_stream_as_it_is(value: str) -> None:
    from pybroker.pipeline.streams.jobs import BrokerTopics

    spark: Any = SimpleNamespace(readStream=Call())
    found: Any = BrokerTopics(spark, "127.0.0.1:1", {"startingOffsets": value}).stream("t")
    assert found["startingOffsets"] == value


def test_an_option_that_names_a_topic_of_which_the_job_has_no_stream_is_refused_before_a_query_starts() -> None:
    from pybroker.pipeline.streams.jobs import BrokerTopics, start

    spark: Any = SimpleNamespace(readStream=Call())
    topics = BrokerTopics(spark, "127.0.0.1:1", {"startingOffsets": '{"orders": {"0": 3}, "ordres": {"0": 3}}'})
    topics.stream("ordres")  # of another job
    rows = frame()

    def job(given: Any) -> Any:
        given.stream("orders")
        return {"out": rows}

    with pytest.raises(ValueError, match=r"^option startingOffsets names ordres, of which the job reads no stream$"):
        start(job, topics, "/checkpoints")
    assert rows.started == []
