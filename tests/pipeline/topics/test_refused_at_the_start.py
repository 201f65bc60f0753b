"""What cannot be is told in one line when a query starts, and what means nothing else is taken.  Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import re
from typing import Any

import pytest

from tests.pipeline.topics.tables import Tables

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"maxOffsetsPerTrigger": "x"}, "option maxOffsetsPerTrigger"),
        ({"endingOffsets": "latest"}, "option endingOffsets is not valid in streaming queries"),
        ({"assign": '{"t": [0]}'}, "exactly one of the options"),
        ({"kafka.ssl.protocol": "SSLv3"}, "option kafka.ssl.protocol must be TLS"),
        ({"kafka.no.such.setting": "1"}, "No such configuration property"),
        ({"startingOffsets": '{"TOPIC": {"0": 9, "1": 0}}'}, "TOPIC-0 would be read from offset 9, which is behind 1"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_streams_options_is_told_in_its_one_line(
    tables: Tables, options: dict[str, str], reason: str
) -> None:
    from pybroker.pipeline import what_ended

    topic = tables.topic()
    tables.fill(topic, [b"a"])
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    query = tables.start(tables.read_stream("pybroker", topic, **given).select("value"), "wrong", topic=topic)
    with pytest.raises(Exception, match=r"STREAM_FAILED|PYTHON"):
        query.awaitTermination(100)
    told = what_ended(query)
    assert told is not None
    assert reason.replace("TOPIC", topic) in told


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kafka.no.such.setting": "1"}, 'No such configuration property: "no.such.setting"'),
        ({"kafka.acks": "1"}, "option kafka.acks must be all, is 1"),
        ({"kafka.enable.idempotence": "false"}, "option kafka.enable.idempotence must be true"),
    ],
)
def test_a_setting_that_no_sink_can_have_ends_a_query_before_any_task(
    tables: Tables, options: dict[str, str], reason: str
) -> None:
    """There is nothing to write: no task begins."""
    from pybroker.pipeline import what_ended

    source, target = tables.topic(), tables.topic()
    query = tables.start(tables.read_stream("pybroker", source).select("value"), "unknown", topic=target, **options)
    with pytest.raises(Exception, match=re.escape(reason)):
        query.awaitTermination(60)
    (line,) = (what_ended(query) or "").splitlines()
    assert reason in line
    with pytest.raises(Exception, match=re.escape(reason)):
        tables.save(tables.spark.createDataFrame([], "value string"), topic=target, **options)


def test_settings_of_javas_clients_that_mean_what_is_so_anyway_are_taken(tables: Tables) -> None:
    source, target = tables.topic(), tables.topic()
    tables.fill(source, [b"a"])
    taken = {"kafka.max.request.size": "2000000", "kafka.enable.idempotence": "true", "kafka.ssl.protocol": "TLSv1.3"}
    rows = tables.read_stream("pybroker", source, **taken).select("value")
    assert tables.start(rows, "taken", topic=target, **taken).awaitTermination(60)
    assert tables.committed(target) == [b"a"]


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [({"continuous": "1 second"}, "continuous"), ({"realTime": "5 minutes"}, "(?i)real.?time")],
    ids=["continuous", "real-time"],
)
def test_a_trigger_that_cannot_be_is_told_when_the_query_starts(
    tables: Tables, trigger: dict[str, str], reason: str
) -> None:
    source, target = tables.topic(), tables.topic()
    writer = tables.read_stream("pybroker", source).select("value").writeStream.format("pybroker")
    writer = writer.options(**{"kafka.bootstrap.servers": tables.bootstrap}, topic=target)
    writer = writer.option("checkpointLocation", str(tables.checkpoint("trigger"))).outputMode(
        "update" if "realTime" in trigger else "append"
    )
    with pytest.raises(Exception, match=reason):
        writer.trigger(**trigger).start().awaitTermination(60)


def test_update_mode_is_refused_when_a_query_starts_and_taken_by_start(tables: Tables) -> None:
    """Spark gives sinks in Python no mode but append; `start` writes the others by foreachBatch, without state, too."""
    from pybroker import pipeline

    source, target = tables.topic(), tables.topic()
    tables.fill(source, [b"a"])
    writer = tables.read_stream("pybroker", source).select("value").writeStream.format("pybroker").outputMode("update")
    writer = writer.options(**{"kafka.bootstrap.servers": tables.bootstrap}, topic=target)
    writer = writer.option("checkpointLocation", str(tables.checkpoint("update")))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="pybroker does not support Update mode"):
        query.awaitTermination(60)
    topics = pipeline.BrokerTopics(tables.spark, tables.bootstrap)

    def copy(topics: Any) -> Any:
        return {target: pipeline.Output(topics.stream(source).select("value"), "update")}

    for started in pipeline.start(copy, topics, tables.checkpoint("job"), until_done=True):
        assert started.awaitTermination(60)
    assert tables.committed(target) == [b"a"]
