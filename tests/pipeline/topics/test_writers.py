"""What Spark hands to the sink's tasks and its driver; the sink as Spark calls it, without Spark.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import pytest

from pybroker.testing import Broker

pytestmark = pytest.mark.jvm(needs="spark")

RUNS = [str(uuid4()) for _ in range(4)]


@pytest.fixture
def as_task() -> Iterator[Any]:
    from pyspark import TaskContext

    from pybroker.pipeline.topics import epoch_transactions

    def be(number: int, **properties: str | None) -> None:
        names = {"query": "sql.streaming.queryId", "run": "spark.jobGroup.id", "epoch": "streaming.sql.batchId"}
        given = {names[name]: value for name, value in properties.items() if value is not None}
        stated: dict[str, Any] = {"partitionId": number, "localProperties": given}
        TaskContext._setTaskContext(TaskContext(**stated))

    yield be
    nobody: Any = None  # its stubs ask for a context, and are there only where Spark is
    TaskContext._setTaskContext(nobody)
    epoch_transactions.close_idle()


def write(writer: Any, value: str) -> Any:
    import pyarrow as pa

    columns = {"key": pa.array([value]), "value": pa.array([value])}
    sent = pickle.loads(pickle.dumps(writer))
    return pickle.loads(pickle.dumps(sent.write(iter([pa.RecordBatch.from_pydict(columns)]))))


def sink(broker: Broker, streaming: bool = False, **options: Any) -> Any:
    from pyspark.sql.types import StringType, StructType

    from pybroker.pipeline.topics.data_source import TopicDataSource

    schema = StructType().add("key", StringType()).add("value", StringType())
    source = TopicDataSource({"kafka.bootstrap.servers": broker.bootstrap, "topic": f"to-{uuid4()}", **options})
    return source.streamWriter(schema, False) if streaming else source.writer(schema, False)


def test_a_micro_batch_of_another_query_is_told_though_the_group_is_the_same(pybroker: Broker, as_task: Any) -> None:
    from pybroker.pipeline.topics.claims import NameTaken

    options: dict[str, Any] = {"transactionGroup": f"g-{uuid4()}", "epoch": "0", "topic": f"to-{uuid4()}"}
    as_task(0, query="q1", run=RUNS[1])
    first = sink(pybroker, **options)
    first.commit([write(first, "a")])
    as_task(0, query="q2", run=RUNS[2])
    with pytest.raises(NameTaken, match="another query, q1, has written by the name"):
        write(sink(pybroker, **options), "a")


def test_a_batch_by_an_epoch_outside_of_a_query_is_written_once(pybroker: Broker, as_task: Any) -> None:
    options: dict[str, Any] = {"transactionGroup": f"g-{uuid4()}", "epoch": "7", "topic": f"to-{uuid4()}"}
    as_task(0)
    outcomes = []
    for _ in range(2):
        writer = sink(pybroker, **options)
        message = write(writer, "a")
        writer.commit([message])
        outcomes.append(str(message.written.outcome))
    assert outcomes == ["written", "found"]


def test_a_task_that_runs_again_finds_what_it_wrote_by_a_producer_of_the_micro_batch_before(
    pybroker: Broker, as_task: Any
) -> None:
    """Each micro-batch of ``foreachBatch`` is a write of its own."""
    from pybroker.pipeline.topics import epoch_transactions

    options: dict[str, Any] = {"transactionGroup": f"g-{uuid4()}", "topic": f"to-{uuid4()}"}
    as_task(0, query="q", run=str(uuid4()))
    first = sink(pybroker, **options, epoch="0")
    first.commit([write(first, "a")])
    second = sink(pybroker, **options, epoch="1")
    outcomes = [str(write(second, "b").written.outcome)]
    epoch_transactions.close_idle()
    outcomes.append(str(write(second, "b").written.outcome))
    assert outcomes == ["written", "found"]


def test_a_batch_without_an_epoch_leaves_no_marks(pybroker: Broker, as_task: Any) -> None:
    from confluent_kafka.admin import AdminClient

    as_task(0)
    writer = sink(pybroker)
    message = write(writer, "a")
    writer.commit([message, None])
    groups = AdminClient({"bootstrap.servers": pybroker.bootstrap}).list_consumer_groups().result(30).valid
    assert message.written.query_run.marks not in [group.group_id for group in groups]


def test_a_batch_is_written_though_nobody_answers_for_its_marks(
    pybroker: Broker, as_task: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pybroker.pipeline.topics import client_calls

    class Silent:
        def delete_consumer_groups(self, names: list[str]) -> dict[str, Future[None]]:
            return {name: Future() for name in names}

    as_task(0)
    writer = sink(pybroker)
    message = write(writer, "a")
    monkeypatch.setattr(client_calls, "admin", lambda client: Silent())
    monkeypatch.setattr(client_calls, "REQUEST_TIMEOUT_S", 0.01)
    writer.commit([message])
    (told,) = caplog.messages
    assert told.startswith(f"the marks of group {message.written.query_run.marks} stay until they expire")


def test_a_half_written_micro_batch_of_a_stream_needs_processes_that_go_on(
    pybroker: Broker, as_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = sink(pybroker, streaming=True)
    query = str(uuid4())
    as_task(1, query=query, run=RUNS[1], epoch="0")
    write(writer, "b")
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    as_task(0, query=query, run=RUNS[2], epoch="0")
    with pytest.raises(RuntimeError, match=r"set spark\.python\.worker\.reuse to true"):
        write(writer, "a")
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    written = []
    for number, value in enumerate("ab"):
        as_task(number, query=query, run=RUNS[3], epoch="0")
        written.append(write(writer, value))
    writer.commit(written, 0)
    assert [str(each.written.outcome) for each in written] == ["held", "found"]


def test_a_stream_of_which_spark_tells_nothing_is_refused(pybroker: Broker, as_task: Any) -> None:
    as_task(0)
    with pytest.raises(RuntimeError, match="Spark does not tell which query"):
        write(sink(pybroker, streaming=True), "a")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_job_group_that_stands_in_the_place_of_a_querys_run_is_refused(
    pybroker: Broker, as_task: Any, streaming: bool
) -> None:
    as_task(0, query="q", run="etl", epoch="0")
    options = {} if streaming else {"transactionGroup": f"g-{uuid4()}", "epoch": "0"}
    with pytest.raises(RuntimeError, match="the job group 'etl' hides the run of the query"):
        write(sink(pybroker, streaming, **options), "a")


@pytest.mark.parametrize("query", ["q", None])
def test_a_job_group_of_a_batch_without_an_epoch_is_the_users(
    pybroker: Broker, as_task: Any, query: str | None
) -> None:
    as_task(0, query=query, run="etl")
    assert str(write(sink(pybroker), "a").written.outcome) == "written"


COMMITS = """
import sys
from pyspark.sql.types import StringType, StructType
from pybroker.pipeline.topics.task_commits import Outcome, QueryRun, Written
from pybroker.pipeline.topics.data_source import TopicDataSource
from pybroker.pipeline.topics.writers import TaskWritten

source = TopicDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
writer = source.streamWriter(StructType().add("value", StringType()), False)
writer.commit([TaskWritten(Written(0, 1, Outcome.WRITTEN, QueryRun("g", "q", "r"), 0)), None], 0)
sys.exit(", ".join({"pyarrow", "confluent_kafka"} & sys.modules.keys()) or None)
"""


def test_a_commit_that_has_nothing_to_decide_loads_neither_arrow_nor_librdkafka() -> None:
    """Spark starts a process for it, which the end of a query's first micro-batch waits for."""
    subprocess.run([sys.executable, "-c", COMMITS], check=True)


def test_records_have_the_timestamps_of_their_rows(pybroker: Broker, as_task: Any) -> None:
    import pyarrow as pa
    from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
    from pyspark.sql.types import StringType, StructType, TimestampType

    from pybroker.pipeline.topics.data_source import TopicDataSource

    topic = f"to-{uuid4()}"
    as_task(0)
    schema = StructType().add("value", StringType()).add("timestamp", TimestampType())
    writer: Any = TopicDataSource({"kafka.bootstrap.servers": pybroker.bootstrap, "topic": topic}).writer(schema, False)
    times = pa.array([1_356_998_400_123_000, None], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array(["old", "new"]), "timestamp": times})
    began_ms = time.time_ns() // 1_000_000
    writer.commit([writer.write(iter([batch]))])

    consumer = Consumer({"bootstrap.servers": pybroker.bootstrap, "group.id": topic})
    consumer.assign(
        [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, 30).topics[topic].partitions]
    )
    found = {message.value(): message.timestamp() for message in consumer.consume(2, 30)}
    consumer.close()
    assert found[b"old"] == (TIMESTAMP_CREATE_TIME, 1_356_998_400_123)
    assert found[b"new"][1] >= began_ms
