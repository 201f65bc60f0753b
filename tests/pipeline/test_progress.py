"""A query's progress as a group's offsets: never back, and no longer than the query.  By a real broker, without a JVM.

Needs PySpark, whose classes the mirror extends: marked like what starts a JVM.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from harness.waiting import wait_until

from pybroker.testing import Broker

pytestmark = pytest.mark.jvm(needs="spark")

QUERY = "5d2c6e0a"

# A process of its own, since librdkafka may end it.
OUTAGE = """
import json, sys
from types import SimpleNamespace
from pybroker.pipeline import progress
from pybroker.testing import Broker

broker = Broker(data_dir=sys.argv[1]).start()
client = {"bootstrap.servers": broker.bootstrap}
broker.create_topic("t", partitions=1)
mirror = progress.ProgressMirror(None, "q", "g", client)

def tell(batch):
    sources = [SimpleNamespace(endOffset=json.dumps({"t": {"0": batch}}))]
    mirror.tell(SimpleNamespace(id="q", batchId=batch, sources=sources, numInputRows=1))

def shown():
    return json.loads(progress.group_offsets("g", ["t"], client))["t"]["0"]

tell(1)
print(shown())
progress.COMMIT_TIMEOUT_S = 0.3
broker.stop()
for batch in range(2, 6):
    tell(batch)
with Broker(data_dir=sys.argv[1], listen=client["bootstrap.servers"]):
    while shown() != batch:
        batch += 1
        tell(batch)
"""


class Listeners:
    """Stands for a session: who listens to its queries."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.all.append, removeListener=self.all.remove)


class Mirrored:
    """A query that is told of by hand, and the group that shows it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.group = f"g-{uuid4()}"
        self.listeners = Listeners()
        self.bootstrap = bootstrap
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap}

    def mirror(self, last: Any = None, *, is_active: bool = True) -> Any:
        from pybroker.pipeline.progress import mirror_progress

        query = SimpleNamespace(id=QUERY, lastProgress=last, isActive=is_active)
        return mirror_progress(cast(Any, self.listeners), cast(Any, query), self.group, self._settings)

    def progress(self, batch: int, *offsets: int) -> Any:
        """Of a query that reads the topic's only partition so often."""
        ends = [json.dumps({self.topic: {"0": offset}}) for offset in offsets]
        sources = [SimpleNamespace(endOffset=end) for end in (*ends, '{"path": 1}', None)]
        return SimpleNamespace(id=QUERY, batchId=batch, sources=sources, numInputRows=1)

    def committed(self) -> int | None:
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka.admin import AdminClient

        asked = [ConsumerGroupTopicPartitions(self.group)]
        admin = AdminClient(self._settings)
        (future,) = admin.list_consumer_group_offsets(asked).values()
        return next((at.offset for at in future.result(30).topic_partitions), None)


@pytest.fixture
def mirrored(pybroker: Broker) -> Mirrored:
    topic = f"t-{uuid4()}"
    pybroker.create_topic(topic, partitions=1)
    return Mirrored(pybroker.bootstrap, topic)


def heard(mirror: Any, progress: Any) -> None:
    mirror.onQueryProgress(SimpleNamespace(progress=progress))


def test_a_micro_batch_that_is_told_late_moves_nothing_back(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror()
    heard(mirror, mirrored.progress(4, 40))
    mirror.tell(mirrored.progress(3, 30))
    assert mirrored.committed() == 40
    heard(mirror, mirrored.progress(5, 50))
    assert mirrored.committed() == 50


def test_the_same_offsets_of_a_topic_that_was_made_anew_are_committed_again(mirrored: Mirrored) -> None:
    """With a topic a group's offsets in it go; a query that reads it to the same offset stops one before that."""
    from confluent_kafka.admin import AdminClient, NewTopic

    mirror = mirrored.mirror()
    heard(mirror, mirrored.progress(1, 7))
    assert mirrored.committed() == 7
    admin = AdminClient({"bootstrap.servers": mirrored.bootstrap})
    admin.delete_topics([mirrored.topic])[mirrored.topic].result(30)
    wait_until(lambda: mirrored.committed() is None, "a group without offsets", 30)
    admin.create_topics([NewTopic(mirrored.topic, 1)])[mirrored.topic].result(30)
    for batch, offset in ((2, 6), (3, 7)):
        heard(mirror, mirrored.progress(batch, offset))
    assert mirrored.committed() == 7


def test_where_a_query_reads_a_topic_twice_what_both_have_read_is_shown(mirrored: Mirrored) -> None:
    heard(mirrored.mirror(), mirrored.progress(1, 7, 3))
    assert mirrored.committed() == 3


def test_nobody_listens_when_the_query_has_ended(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror()
    assert mirrored.listeners.all == [mirror]
    mirror.onQueryTerminated(SimpleNamespace(id="another"))
    assert mirrored.listeners.all == [mirror]
    heard(mirror, mirrored.progress(1, 10))
    mirror.onQueryTerminated(SimpleNamespace(id=QUERY))
    mirror.close()
    assert mirrored.listeners.all == []
    heard(mirror, mirrored.progress(2, 20))
    assert mirrored.committed() == 10


def test_a_query_that_has_ended_before_is_shown_and_not_listened_to(mirrored: Mirrored) -> None:
    mirrored.mirror(mirrored.progress(1, 10), is_active=False)
    assert (mirrored.committed(), mirrored.listeners.all) == (10, [])


def test_what_a_query_does_while_its_mirror_begins_is_shown(mirrored: Mirrored) -> None:
    """It ends before the listener has heard of its last micro-batch."""
    from pybroker.pipeline.progress import mirror_progress

    told = iter([mirrored.progress(1, 10)] * 2 + [mirrored.progress(2, 20)] * 2)

    class Query:
        id = QUERY
        isActive = False

        @property
        def lastProgress(self) -> Any:
            return next(told)

    settings = {"bootstrap.servers": mirrored.bootstrap}
    mirror_progress(cast(Any, mirrored.listeners), cast(Any, Query()), mirrored.group, settings)
    assert mirrored.committed() == 20


def librdkafkas_threads() -> int:
    """Those of this process; its names for them begin so."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("rdk:") for name in names)


def test_a_mirror_that_has_ended_leaves_no_client(mirrored: Mirrored) -> None:
    """Also where a commit was refused, and whoever heard for it is still known to the JVM."""
    before = librdkafkas_threads()
    mirrors = [mirrored.mirror() for _ in range(3)]
    for batch, mirror in enumerate(mirrors):
        heard(mirror, mirrored.progress(batch + 1, 10))
        mirror._jlistenerobj = mirror
    mirrored.topic = "no topic has such a name"
    heard(mirrors[-1], mirrored.progress(9, 90))
    assert librdkafkas_threads() > before
    for mirror in mirrors:
        mirror.onQueryTerminated(SimpleNamespace(id=QUERY))
    wait_until(lambda: librdkafkas_threads() <= before, "the end of the clients' threads", 10)
    assert not any(hasattr(mirror, "_jlistenerobj") for mirror in mirrors)


def test_a_commit_that_is_refused_is_a_warning(mirrored: Mirrored, caplog: pytest.LogCaptureFixture) -> None:
    mirror = mirrored.mirror()
    mirrored.topic = "no topic has such a name"
    heard(mirror, mirrored.progress(1, 10))
    assert f"offsets of group {mirrored.group}: " in caplog.text


def test_a_broker_that_dies_and_comes_back_ends_no_process_that_shows_lag(tmp_path: Path) -> None:
    """An admin client of librdkafka would end it, once a request had timed out (its issues 3663 and 4605)."""
    command = [sys.executable, "-c", OUTAGE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert "offsets of group g: " in done.stderr


def test_a_query_that_falls_behind_is_a_warning_and_so_is_that_it_has_caught_up(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import Producer

    from pybroker.pipeline import lag_watch, progress

    monkeypatch.setattr(progress, "LOOKED_EVERY_S", 0)
    monkeypatch.setattr(lag_watch, "GROWING_S", 0)
    mirror = mirrored.mirror()
    producer = Producer({"bootstrap.servers": mirrored.bootstrap})
    for batch, produced in enumerate((10, 20)):
        for _ in range(produced):
            producer.produce(mirrored.topic, b"x")
        producer.flush()
        heard(mirror, mirrored.progress(batch, batch))
    heard(mirror, mirrored.progress(2, 30))
    said = [record.getMessage() for record in caplog.records if record.name == progress.__name__]
    assert said == [
        f"{mirrored.group} is 29 records behind, growing for 0 s",
        f"{mirrored.group} has caught up",
    ]
