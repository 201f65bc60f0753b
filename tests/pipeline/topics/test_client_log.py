"""librdkafka's remarks stay off the terminal: what goes wrong is said once, by who made the call.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

import subprocess
import sys

import pytest

from pybroker.testing import Broker

pytestmark = pytest.mark.jvm(needs="spark")

FENCED = """
import sys
from confluent_kafka import KafkaException
from pybroker.pipeline.topics.claims import fenced

client = {"bootstrap.servers": sys.argv[1]}
first = fenced(client, "twice", "rows")
second = fenced(client, "twice", "rows")
first.begin_transaction()
try:
    first.produce("rows", b"late")
    first.flush(20)
    first.commit_transaction(20)
except KafkaException as error:
    print(error.args[0].name())
first.poll(0)
"""

GONE = """
import sys
import time
from confluent_kafka import KafkaException
from pybroker.pipeline.topics.client_calls import admin, offsets_of
from pybroker.pipeline.topics.claims import fenced
from pybroker.testing import Broker

with Broker() as broker:
    client = {"bootstrap.servers": broker.bootstrap}
    producer, asked = fenced(client, "idle", "rows"), admin(client)
for _ in range(20):
    producer.poll(0.1)
try:
    asked.list_topics(timeout=1)
except KafkaException as error:
    print(error.args[0].name())
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )


def test_a_producer_that_another_attempt_fenced_fails_a_call_and_says_nothing_beside_it(pybroker: Broker) -> None:
    done = run(FENCED, pybroker.bootstrap)
    assert done.stdout == "_FENCED\n"
    assert done.stderr == ""


def test_clients_of_a_broker_that_has_ended_say_nothing_beside_the_error_of_a_call() -> None:
    done = run(GONE)
    assert done.stdout == "_TRANSPORT\n"
    assert done.stderr == ""


def test_who_debugs_a_client_reads_its_lines_on_standard_error(pybroker: Broker) -> None:
    done = run(FENCED.replace('{"boot', '{"debug": "eos", "boot'), pybroker.bootstrap)
    assert "fenced" in done.stderr
