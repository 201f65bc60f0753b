"""Marks that an earlier version has left, in a group for each task, are taken over; without Spark, by a real broker.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

import json
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest

from pybroker.testing import Broker
from tests.pipeline.topics.test_epochs import QUERY, Sink

pytestmark = pytest.mark.jvm(needs="spark")


class Former(Sink):
    """A write whose first run was an earlier version's."""

    def commit(self, group: str, offset: int, said: str) -> None:
        """Commit an offset of the topic that the run wrote to first."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(self.topic, 0, offset, metadata=said)], asynchronous=False)
        consumer.close()

    def claim_as_before(self, slots: int) -> None:
        self.commit(f"{self.group}-claim", 2, json.dumps([True, "first", QUERY, slots, -1, "0"]))
        self.commit(f"{self.group}-decisions", 0, '["first", true]')

    def write_as_before(self, task: int, epoch: int, values: list[str], query: str = QUERY) -> None:
        """The rows of a task and its mark."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.topic, value, value)
        assert producer.flush(30) == 0
        keys = sum(crc32(value.encode()) for value in values) & 0xFFFF_FFFF
        self.commit(f"{self.group}-{task}", epoch, json.dumps([len(values), keys, "first", query]))

    def groups(self) -> list[str]:
        """Those that there are of the query."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        known = [each.group_id for each in admin.list_consumer_groups().result(30).valid]
        return sorted(name for name in known if name.startswith(self.group))


@pytest.fixture
def former(pybroker: Broker) -> Iterator[Former]:
    from pybroker.pipeline.topics import epoch_transactions

    sink = Former(pybroker.bootstrap)
    pybroker.create_topic(sink.topic, partitions=1)
    yield sink
    epoch_transactions.close_idle()


@pytest.mark.parametrize("is_claimed", [True, False], ids=["claimed", "claim has expired"])
def test_a_micro_batch_that_an_earlier_version_has_half_written_is_finished(former: Former, is_claimed: bool) -> None:
    if is_claimed:
        former.claim_as_before(4)
    former.write_as_before(0, 0, ["a"])
    former.write_as_before(1, 1, ["c"])
    assert former.run_epoch(1, [["b"], ["c"]], run="second") == ["held", "found"]
    assert former.run_epoch(2, [["d"], []], run="second") == ["written", "empty"]
    assert sorted(former.committed()) == ["a", "b", "c", "d"]
    assert former.groups() == [f"{former.group}-marks"]


def test_a_micro_batch_that_an_earlier_version_has_written_is_not_written_again_by_any_later_run(
    former: Former,
) -> None:
    from pybroker.pipeline.topics.claims import NameTaken

    former.claim_as_before(4)
    former.write_as_before(2, 5, ["a"])
    for run in ("second", "third"):
        assert former.run_epoch(5, [[], [], ["a"]], run=run, anew=True) == ["empty", "empty", "found"]
    with pytest.raises(NameTaken, match="has committed micro-batch 5, and this is 4"):
        former.write(4, ["b"], run="fourth", anew=True)
    assert former.committed() == ["a"]


def test_another_query_of_a_name_that_an_earlier_version_has_written_by_is_told(former: Former) -> None:
    from pybroker.pipeline.topics.claims import NameTaken

    former.write_as_before(0, 3, ["a"], query="another")
    before = former.groups()
    with pytest.raises(NameTaken, match=f"another query, another, has written by the name {former.group}"):
        former.write(4, ["b"])
    assert (former.committed(), former.groups()) == (["a"], before)


def test_tasks_of_an_earlier_version_are_fenced_as_far_as_its_claim_tells(former: Former) -> None:
    from confluent_kafka import KafkaException, Producer

    former.claim_as_before(16)
    zombie = Producer({"bootstrap.servers": former.bootstrap, "transactional.id": f"{former.group}-15"})
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(former.topic, "zombie")
    zombie.flush(30)
    assert former.write(0, ["a"], run="second") == 1
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    assert former.committed() == ["a"]


def test_its_claim_goes_before_its_tasks_are_fenced(former: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that registers behind the fence looks for it, and stops."""
    from pybroker.pipeline.topics import claims

    former.claim_as_before(4)
    seen: list[list[str]] = []
    real = claims._fence

    def fence(*given: Any) -> None:
        seen.append(former.groups())
        real(*given)

    monkeypatch.setattr(claims, "_fence", fence)
    former.write(0, ["a"], run="second")
    assert seen == [[f"{former.group}-marks"]]


def test_groups_of_other_programs_that_have_such_names_stay(former: Former) -> None:
    names = [f"{former.group}-{name}" for name in ("0", "2000000", "claim", "x")]
    for name in names:
        former.commit(name, 3, "")
    assert former.write(0, ["a"]) == 1
    assert former.groups() == sorted([*names, f"{former.group}-marks"])
