"""The process of a stream's source ends without a word where Spark has hung up, and only then.

Needs PySpark: marked like what starts a JVM.  Spark's own module is run, with a socket in place of the JVM.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

# What the module reads before it makes the reader is passed over.
SOURCE = """
import socket
import sys
from unittest import mock

from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import StructType

from pybroker.pipeline.topics.data_source import TopicDataSource
from pybroker.pipeline.topics.readers import StreamReader
from pybroker.pipeline.topics.source_options import read_source_options

given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
reader = StreamReader(read_source_options(given, streaming=True), StructType())
jvm, ours = socket.socketpair()
read_int, numbers = runner.read_int, iter([1_000])


def first_a_number(infile):
    for number in numbers:
        return number
    jvm.close()
    if "broken" in sys.argv:
        infile.write(b"what could not be said")
        infile.flush()
    return read_int(infile) if "other" not in sys.argv else reader.no_such_call()


with (
    mock.patch.object(runner, "check_python_version"),
    mock.patch.object(runner, "setup_spark_files"),
    mock.patch.object(runner, "setup_memory_limits"),
    mock.patch.object(runner, "read_command", return_value=TopicDataSource(given)),
    mock.patch.object(runner.utf8_deserializer, "loads"),
    mock.patch.object(runner, "_parse_datatype_json_string", return_value=StructType()),
    mock.patch.object(runner, "_streamReader", return_value=reader),
    mock.patch.object(runner, "read_int", first_a_number),
    ours.makefile("rwb", 65536) as file,
):
    runner.main(file, file)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SOURCE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("before", [(), ("broken",)], ids=["between two calls", "in a call"])
def test_a_source_whose_query_has_ended_leaves_no_traceback(before: tuple[str, ...]) -> None:
    done = run(*before)
    assert done.returncode != 0, "Spark's module has failed, as it does"
    assert done.stderr == ""


def test_a_source_that_fails_by_itself_shows_its_traceback() -> None:
    assert "no_such_call" in run("other").stderr


# As ``pyspark.daemon`` ends a task's process, behind the reading of a task.
TASK = """
import sys
import traceback

from pyspark.sql.types import StructType

from pybroker.pipeline.topics.ranges import OffsetRange
from pybroker.pipeline.topics.readers import BatchReader, RangePartition
from pybroker.pipeline.topics.source_options import read_source_options
from pybroker.pipeline.topics.topic_partitions import TopicPartition

given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
reader = BatchReader(read_source_options(given, streaming=False), StructType())
for _ in range(2):
    list(reader.read(RangePartition(OffsetRange(TopicPartition("", 0), 0, 0))))
try:
    raise {"hung up": BrokenPipeError, "other": ValueError}[sys.argv[1]]
except BaseException:
    traceback.print_exc()
"""


@pytest.mark.parametrize(("end", "is_shown"), [("hung up", False), ("other", True)])
def test_a_task_leaves_no_traceback_of_a_socket_that_spark_has_closed(end: str, is_shown: bool) -> None:
    command = [sys.executable, "-c", TASK, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ("Traceback" in done.stderr) is is_shown
