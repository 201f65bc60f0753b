"""Takes rows to topics, in batch and in streaming, each epoch of each task exactly once.

Owns what an epoch and a task are called: a stream's query and its micro-batch, as Spark tells its tasks. A batch is one
epoch of a write that gets a name of its own. ``epoch_transactions`` writes.

Marks of a stream stay, for the query may be started again; those of a batch go with its end.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pybroker.pipeline.topics.sink_options import SinkOptions
from pybroker.pipeline.topics.task_commits import QueryRun, Written, is_decided

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from pybroker.pipeline.topics.epoch_transactions import Write

# Spark's MicroBatchExecution and StreamExecution hand these to their tasks.
_EPOCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
_RUN_PROPERTY = "spark.jobGroup.id"

_BATCH_EPOCH = 0
_NO_QUERY = "batch"

# Set by Spark in tasks' processes that serve one task after another.
_REUSED = "SPARK_REUSE_WORKER"


def default_group(query: str | None) -> str:
    """The ``transactionGroup`` of a query that names none; raises RuntimeError where Spark does not tell the query."""
    if query is None:
        raise RuntimeError("Spark does not tell which query this micro-batch belongs to: name a transactionGroup")
    return f"pybroker-spark-{query}"


class TaskWritten(WriterCommitMessage):
    """What a task has committed."""

    def __init__(self, written: Written) -> None:
        self.written = written


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame.  Tasks commit one by one: committed reads may see some before the others.

    With the option ``epoch`` it may be a micro-batch's, written by ``foreachBatch``: its marks stay, as a stream's do.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        from pybroker.pipeline.topics.rows import check_columns

        check_columns(schema, options.topic)
        self._options = options
        self._epoch = _BATCH_EPOCH if options.epoch is None else options.epoch
        self._name = options.save or str(uuid4())
        self._group = options.group or "pybroker-spark-batch"
        if options.epoch is None:
            self._group += f"-{self._name}"
        elif options.topic is not None:
            self._group += f"-{options.topic}"  # a micro-batch may be written to several

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """In a task: its rows."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        # Outside of a query the group alone is who writes, and each write a run of its own, as one without an epoch is.
        query = context.getLocalProperty(QUERY_PROPERTY)
        run = _run(context) if query is not None and self._options.epoch is not None else None
        return _write(self._of(query or _NO_QUERY, run or self._name), context.partitionId(), self._epoch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are done: where there is no next attempt, the marks have done their work."""
        from pybroker.pipeline.topics.epoch_transactions import forget

        _decide(self._options, messages)
        is_written = any(isinstance(each, TaskWritten) and each.written.rows for each in messages)
        if self._options.epoch is None and is_written:
            forget(self._of(_NO_QUERY, self._name))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks had committed stays, as with every write to Kafka that fails."""

    def _of(self, query: str, run: str) -> "Write":
        return _of(self._options, self._group, query, run, "" if self._options.epoch is None else self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    """A query's output."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        from pybroker.pipeline.topics.rows import check_columns

        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """In a task: its rows of one micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        query, epoch = map(context.getLocalProperty, (QUERY_PROPERTY, _EPOCH_PROPERTY))
        run = _run(context)
        if query is None or run is None or epoch is None:
            raise RuntimeError("Spark does not tell which query, run and micro-batch this task belongs to")
        write = _of(self._options, self._options.group or default_group(query), query, run)
        return _write(write, context.partitionId(), int(epoch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tasks have committed, unless they were not sure: then it is decided here."""
        _decide(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the micro-batch runs again, and tasks that have committed find that."""


def _run(context: "TaskContext") -> str | None:
    """The run of the query; raises RuntimeError where a job group of the user's stands in its place.

    By that all runs would have one name, and none would fence the tasks of the one before.
    """
    run: str | None = context.getLocalProperty(_RUN_PROPERTY)
    if run is not None:
        try:
            UUID(run)
        except ValueError:
            raise RuntimeError(
                f"the job group {run!r} hides the run of the query, which Spark tells by it: set no job group in "
                "foreachBatch before its write"
            ) from None
    return run


def _of(options: SinkOptions, group: str, query: str, run: str, save: str = "") -> "Write":
    from pybroker.pipeline.topics.epoch_transactions import Write

    return Write(
        options.client,
        QueryRun(group, query, run, options.marks_topic),
        options.topic,
        is_deterministic=options.is_deterministic,
        is_single=query == _NO_QUERY and options.epoch is None,
        outlives_task=bool(os.environ.get(_REUSED)),
        save=save,
    )


def _write(write: "Write", task: int, epoch: int, rows: "Iterator[pa.RecordBatch]") -> TaskWritten:
    from pybroker.pipeline.topics.epoch_transactions import write_epoch

    return TaskWritten(write_epoch(write, task, epoch, rows))


def _decide(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    written = [each.written if isinstance(each, TaskWritten) else None for each in messages]
    first = next((each for each in written if each is not None), None)
    if first is not None and not is_decided(written):
        from pybroker.pipeline.topics.epoch_transactions import decide

        decide(_of(options, *first.query_run), written)
