"""Rows of an epoch reach their topic once, however often its task runs; without Spark, by a real broker.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

import gc
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from harness.waiting import wait_until

from pybroker.coordinators.group.offsets.offset_operations import offset_fetch_error
from pybroker.handlers import offset_commit, offset_fetch
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode

pytestmark = pytest.mark.jvm(needs="spark")

QUERY = "5d2c6e0a"


@pytest.fixture
def sink(pybroker: Broker) -> Iterator["Sink"]:
    from pybroker.pipeline.topics import epoch_transactions

    yield Sink(pybroker.bootstrap)
    epoch_transactions.close_idle()


class Sink:
    """A write, and what committed readers see of it."""

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None, topic: str | None = None) -> None:
        from pybroker.pipeline.topics.sink_options import read_sink_options

        self.topic = topic or f"out-{uuid4()}"
        self.group = f"query-{uuid4()}"
        self.bootstrap = bootstrap
        self.client = read_sink_options({"kafka.bootstrap.servers": bootstrap, **(options or {})}).client

    def of(self, query: str = QUERY, run: str = "run", *, deterministic: bool = True) -> Any:
        """What tasks of a run have in common."""
        from pybroker.pipeline.topics.epoch_transactions import Write
        from pybroker.pipeline.topics.task_commits import QueryRun

        return Write(self.client, QueryRun(self.group, query, run), self.topic, deterministic)

    def write(
        self,
        epoch: int,
        values: list[str],
        *,
        anew: bool = False,
        query: str = QUERY,
        run: str = "run",
        task: int = 0,
    ) -> int:
        """The task's attempt; ``anew`` as if in another process."""
        return int(self.attempt(epoch, values, anew=anew, query=query, run=run, task=task).rows)

    def attempt(self, epoch: int, values: list[str], *, anew: bool = False, task: int = 0, **of: Any) -> Any:
        """The task's attempt and all that it says."""
        from pybroker.pipeline.topics import epoch_transactions

        if anew:
            epoch_transactions.close_idle()
        return epoch_transactions.write_epoch(self.of(**of), task, epoch, [batch(values)])

    def run_epoch(self, epoch: int, tasks: list[list[str]], *, anew: bool = False, **of: Any) -> list[str]:
        """All tasks of a run and the driver's decision; what became of each."""
        from pybroker.pipeline.topics import epoch_transactions

        written = [self.attempt(epoch, values, anew=anew, task=task, **of) for task, values in enumerate(tasks)]
        epoch_transactions.decide(self.of(**of), written)
        return [str(each.outcome) for each in written]

    def lose_claim(self) -> None:
        """As by its expiration."""
        from pybroker.pipeline.topics import marks_topic

        marks_topic.commit(self.client, self.of().query_run, marks_topic.CLAIM_AT, "")

    def committed(self) -> list[str]:
        """What is in the topic."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[str] = []
        while True:
            message = consumer.poll(30)
            assert message is not None, "the topic's end is told"
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return found


def batch(values: list[str]) -> Any:
    import pyarrow as pa

    columns = {"value": pa.array(values, pa.string()), "key": pa.array(values, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def test_a_query_that_is_started_again_does_not_write_by_a_producer_of_its_former_run(sink: Sink) -> None:
    from pybroker.pipeline.topics import epoch_transactions

    sink.write(0, ["a"], run="first")
    epoch_transactions.SlotWriter(sink.of(run="second"), 0, 1)  # in another process, meanwhile
    sink.write(1, ["b"], run="second")
    assert sink.committed() == ["a", "b"]


def test_the_group_may_show_the_querys_lag_meanwhile(sink: Sink) -> None:
    from confluent_kafka import Consumer, TopicPartition

    sink.write(0, ["a"])
    lag = Consumer({"bootstrap.servers": sink.bootstrap, "group.id": sink.group})
    lag.commit(offsets=[TopicPartition(sink.topic, 0, 7)], asynchronous=False)
    lag.close()
    sink.write(1, ["b"], anew=True, run="another")
    assert sink.committed() == ["a", "b"]


def test_epochs_follow_one_another(sink: Sink) -> None:
    assert [sink.write(epoch, [f"{epoch}-a", f"{epoch}-b"]) for epoch in range(3)] == [2, 2, 2]
    assert sink.committed() == ["0-a", "0-b", "1-a", "1-b", "2-a", "2-b"]


@pytest.mark.parametrize("anew", [False, True])
def test_an_attempt_after_the_commit_writes_nothing(sink: Sink, anew: bool) -> None:
    sink.write(0, ["a"])
    assert sink.write(0, ["a"], anew=anew) == 1
    sink.write(1, ["b"], anew=anew)
    assert sink.committed() == ["a", "b"]


def test_an_attempt_after_a_death_before_the_commit_writes_all(sink: Sink) -> None:
    from pybroker.pipeline.topics import epoch_transactions

    def dies() -> Iterator[Any]:
        yield batch(["a", "b"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        epoch_transactions.write_epoch(sink.of(), 0, 0, dies())
    assert sink.write(0, ["a", "b"], anew=True) == 2
    assert sink.committed() == ["a", "b"]


def test_a_zombie_is_fenced(sink: Sink) -> None:
    from confluent_kafka import KafkaException

    from pybroker.pipeline.topics import epoch_transactions

    def overtaken() -> Iterator[Any]:
        yield batch(["zombie"])
        assert sink.write(0, ["successor"]) == 1
        yield batch(["zombie"])

    with pytest.raises((KafkaException, epoch_transactions.NotDelivered)):
        epoch_transactions.write_epoch(sink.of(), 0, 0, overtaken())
    assert sink.committed() == ["successor"]


def test_other_rows_than_were_committed_are_told(sink: Sink) -> None:
    from pybroker.pipeline.topics.epoch_transactions import RowsChanged

    sink.write(0, ["a", "b"])
    with pytest.raises(RowsChanged, match="has 1 rows and had committed 2"):
        sink.write(0, ["a"], anew=True)
    assert sink.committed() == ["a", "b"]


def test_another_query_of_the_same_name_writes_nothing_and_is_told(sink: Sink) -> None:
    from pybroker.pipeline.topics.claims import NameTaken

    sink.write(0, ["a"])
    for epoch in (0, 1):
        with pytest.raises(NameTaken, match=f"another query, {QUERY}, has written by the name {sink.group}"):
            sink.write(epoch, ["b"], anew=True, query="another")
    assert sink.committed() == ["a"]
    sink.write(1, ["b"], anew=True)
    assert sink.committed() == ["a", "b"]


def test_a_query_that_has_gone_back_is_told_and_loses_nothing(sink: Sink) -> None:
    from pybroker.pipeline.topics.claims import NameTaken

    sink.write(0, ["a"])
    sink.write(1, ["b"])
    with pytest.raises(NameTaken, match="has committed micro-batch 1, and this is 0"):
        sink.write(0, ["c"], anew=True)
    assert sink.committed() == ["a", "b"]


def test_a_refused_record_takes_its_transaction_with_it(sink: Sink) -> None:
    from confluent_kafka import KafkaException

    from pybroker.pipeline.topics.epoch_transactions import NotDelivered

    sink.write(0, ["a"])
    with pytest.raises((NotDelivered, KafkaException)):
        sink.write(1, ["b", "x" * 2_000_000])
    assert sink.committed() == ["a"]
    sink.write(1, ["b", "c"], anew=True)
    assert sink.committed() == ["a", "b", "c"]


def test_a_client_that_does_not_come_back_is_given_up() -> None:
    from threading import Event

    from pybroker.pipeline.topics.client_calls import NoAnswer, answered

    goes_on = Event()

    def commit() -> None:
        goes_on.wait()

    with pytest.raises(NoAnswer, match="commit did not come back within 0 s"):
        answered(commit, within_s=0.05)
    goes_on.set()


@pytest.mark.parametrize("has_answer", [False, True])
def test_a_producer_that_cannot_commit_ends_with_its_task(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, has_answer: bool
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    from pybroker.pipeline.topics import epoch_transactions
    from pybroker.pipeline.topics.client_calls import NoAnswer

    def refuse(*_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED)) if has_answer else NoAnswer("no answer")

    def attempt() -> None:
        with pytest.raises((KafkaException, NoAnswer)):
            sink.write(0, ["a"])

    monkeypatch.setattr(epoch_transactions, "answered", refuse)
    attempt()
    gc.collect()
    writers = [each for each in gc.get_objects() if isinstance(each, epoch_transactions.SlotWriter)]
    assert not [each for each in writers if each._name.startswith(sink.group)]


def test_an_epoch_without_rows_registers_nothing(sink: Sink) -> None:
    assert sink.write(0, []) == 0
    assert sink.write(1, ["a"]) == 1
    assert sink.committed() == ["a"]


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_writes_what_is_not_there(sink: Sink) -> None:
    tasks = [["a", "b"], ["c"], ["d", "e"], []]
    sink.attempt(0, tasks[1], task=1, run="first")
    assert sink.run_epoch(0, tasks, run="second", anew=True) == ["held", "found", "held", "empty"]
    assert sink.run_epoch(1, [["f"]], run="second") == ["written"]
    assert sorted(sink.committed()) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    "tasks", [[["a", "b"], ["c", "d"]], [["a"], ["b"], ["c"], [], ["d"]], [["c"], ["a"], ["b", "d"]]]
)
def test_a_run_that_divides_a_half_written_epoch_otherwise_is_told_and_writes_nothing(
    sink: Sink, tasks: list[list[str]]
) -> None:
    from pybroker.pipeline.topics.epoch_transactions import RowsChanged

    sink.attempt(0, ["d"], task=3, run="first")
    for run in ("second", "third"):
        with pytest.raises(RowsChanged, match=r"micro-batch 0 .*divided into tasks in another way before"):
            sink.run_epoch(0, tasks, run=run, anew=True)
    assert sink.committed() == ["d"]
    assert sink.run_epoch(0, [["a"], ["b"], ["c"], ["d"]], run="fourth", anew=True)[3] == "found"
    assert sorted(sink.committed()) == ["a", "b", "c", "d"]


def test_an_epoch_may_be_divided_otherwise_where_nothing_of_it_was_committed(sink: Sink) -> None:
    sink.run_epoch(0, [["a"], ["b"], ["c"]], run="first")
    assert sink.run_epoch(1, [["d", "e"]], run="second", anew=True) == ["written"]
    assert sorted(sink.committed()) == ["a", "b", "c", "d", "e"]


def test_a_task_of_an_earlier_run_is_fenced_though_the_new_one_has_no_such_task(sink: Sink) -> None:
    from confluent_kafka import KafkaException

    from pybroker.pipeline.topics import epoch_transactions

    def overtaken() -> Iterator[Any]:
        yield batch(["a"])
        assert sink.run_epoch(0, [["a", "b"]], run="second") == ["written"]
        yield batch(["b"])

    with pytest.raises((KafkaException, epoch_transactions.NotDelivered)):
        epoch_transactions.write_epoch(sink.of(run="first"), 9, 0, overtaken())
    assert sorted(sink.committed()) == ["a", "b"]


def test_a_task_that_registers_behind_a_new_claim_writes_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker.pipeline.topics import epoch_transactions
    from pybroker.pipeline.topics.claims import Overtaken, claimed

    def overtaken(*asked: Any) -> Any:
        monkeypatch.undo()
        found = claimed(*asked)
        sink.run_epoch(0, [["a"]], run="second")
        return found

    monkeypatch.setattr(epoch_transactions, "claimed", overtaken)
    with pytest.raises(Overtaken):
        sink.attempt(0, ["a"], task=1, run="first")
    assert sink.committed() == ["a"]


def test_a_claim_that_was_announced_by_a_task_that_died_is_made_by_another(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import claims

    sink.attempt(0, ["a"], run="first")

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "_fence", dies)
    with pytest.raises(KeyboardInterrupt):
        sink.attempt(1, ["b"], run="second", anew=True)
    monkeypatch.undo()
    assert sink.run_epoch(1, [["b"]], run="second", anew=True) == ["written"]
    assert sink.committed() == ["a", "b"]


def test_a_run_whose_claim_has_expired_is_told_from_the_marks_of_its_tasks(sink: Sink) -> None:
    """A claim is committed at a run's start, and marks with each epoch; tasks without rows have none."""
    from pybroker.pipeline.topics.epoch_transactions import RowsChanged

    sink.attempt(0, ["d"], task=9, run="first")
    sink.lose_claim()
    with pytest.raises(RowsChanged, match=r"rows of task 9 of micro-batch 0 are committed"):
        sink.run_epoch(0, [["a"], ["b", "d"]], run="second", anew=True)
    assert sink.committed() == ["d"]


def test_a_run_whose_own_claim_has_expired_renews_it_and_fences_none_of_its_tasks(sink: Sink) -> None:
    sink.attempt(0, ["a"])
    sink.lose_claim()
    sink.attempt(1, ["b"], task=1)
    assert str(sink.attempt(1, ["c"]).outcome) == "written"
    assert sink.run_epoch(1, [["c"], ["b"]], run="next", anew=True) == ["found", "found"]
    assert sorted(sink.committed()) == ["a", "b", "c"]


def test_one_group_has_all_marks_of_a_query_and_no_lag(sink: Sink) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient, OffsetSpec

    sink.attempt(0, ["b"], task=1, run="first")
    sink.run_epoch(0, [["a"], ["b"], ["c"]], run="second", anew=True)
    for epoch in range(1, 4):
        sink.run_epoch(epoch, [["d", "e"], ["f"], []], run="second")
    admin = AdminClient({"bootstrap.servers": sink.bootstrap})
    groups = [each.group_id for each in admin.list_consumer_groups().result(30).valid]
    assert [name for name in groups if name.startswith(sink.group)] == [f"{sink.group}-marks"]
    asked = [ConsumerGroupTopicPartitions(f"{sink.group}-marks")]
    (future,) = admin.list_consumer_group_offsets(asked).values()
    offsets = {(at.topic, at.partition): at.offset for at in future.result(30).topic_partitions}
    latest: Any = OffsetSpec.latest
    ends = admin.list_offsets({at: latest() for at in future.result(30).topic_partitions})
    assert len(offsets) == 5  # the claim, the decision and three tasks
    assert offsets == {(at.topic, at.partition): end.result(30).offset for at, end in ends.items()}


def test_a_task_number_that_has_no_partition_is_given_one(sink: Sink) -> None:
    sink.attempt(0, ["a"])
    sink.attempt(0, ["b"], task=130)
    assert sink.run_epoch(0, [["a"]] + [[]] * 129 + [["b"]], run="next", anew=True)[::130] == ["found", "found"]
    assert sorted(sink.committed()) == ["a", "b"]


@pytest.mark.parametrize("slow", ["_fence", "read_marks"])
def test_tasks_of_a_run_leave_each_other_the_time_that_a_claim_of_many_slots_takes(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """Who takes the claim from a task that is about to be done with it loses it in the same way."""
    from pybroker.pipeline.topics import claims

    real = getattr(claims, slow)

    def slowly(*given: Any, **of: Any) -> Any:
        found = real(*given, **of)
        time.sleep(2)
        return found

    sink.attempt(0, ["a"], task=31, run="first")
    monkeypatch.setattr(claims, slow, slowly)
    # 32 slots have 16.5 s, so that a busy machine is no task of another run; one slot alone would have 1 s.
    monkeypatch.setattr(claims, "_ANNOUNCED_FOR_S", 0.5)
    monkeypatch.setattr(claims, "_ANNOUNCED_FOR_EACH_SLOT_S", 0.5)
    query_run = sink.of(run="second").query_run
    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(claims.claimed, sink.client, query_run, task, 1) for task in range(5)]
    assert {each.result().run for each in tasks} == {"second"}


def test_rows_that_were_held_back_by_a_process_that_died_are_written_by_the_next_run(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import epoch_transactions
    from pybroker.pipeline.topics.client_calls import NoAnswer
    from pybroker.pipeline.topics.record_refusals import forget_records

    def lose(held: epoch_transactions.SlotWriter, _epoch: int) -> None:
        forget_records(held._producer)

    tasks = [["a"], ["b"]]
    sink.attempt(0, tasks[1], task=1, run="first")
    monkeypatch.setattr(epoch_transactions, "DECIDED_WITHIN_S", 0.2)
    monkeypatch.setattr(epoch_transactions.SlotWriter, "_await_decision", lose)
    with pytest.raises(NoAnswer, match=r"tasks \[0\] of micro-batch 0 were held back, and lost"):
        sink.run_epoch(0, tasks, run="second", anew=True)
    monkeypatch.undo()
    assert sink.run_epoch(0, tasks, run="third", anew=True) == ["held", "found"]
    assert sorted(sink.committed()) == ["a", "b"]


def test_a_decision_of_another_run_decides_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker.pipeline.topics import epoch_transactions, marks_topic

    sink.attempt(0, ["b"], task=1, run="first")
    decided = '[0, "third", false]'
    marks_topic.commit(sink.client, sink.of().query_run, marks_topic.DECISION_AT, decided)
    monkeypatch.setattr(epoch_transactions, "DECIDED_WITHIN_S", 5.0)
    assert sink.run_epoch(0, [["a"], ["b"]], run="second", anew=True) == ["held", "found"]
    assert sorted(sink.committed()) == ["a", "b"]


def test_rows_that_differ_by_themselves_stay_as_they_were_committed(sink: Sink) -> None:
    sink.attempt(0, ["a", "b"], task=1, run="first")
    changed = [["c"], ["b"]]
    assert sink.run_epoch(0, changed, run="second", anew=True, deterministic=False) == ["held", "found"]
    assert sorted(sink.committed()) == ["a", "b", "c"]


def test_as_many_rows_of_other_keys_are_told(sink: Sink) -> None:
    from pybroker.pipeline.topics.epoch_transactions import RowsChanged

    sink.write(0, ["a", "b"])
    with pytest.raises(RowsChanged, match="has 2 rows and other keys"):
        sink.write(0, ["a", "c"], anew=True)
    assert sink.committed() == ["a", "b"]


def test_a_mark_that_cannot_be_read_is_not_taken_for_none(sink: Sink) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer

    from pybroker.pipeline.topics import marks_topic

    sink.write(0, ["a"])
    query_run, at = sink.of().query_run, marks_topic.slot_at(0)
    other = Producer({"bootstrap.servers": sink.bootstrap, "transactional.id": f"other-{uuid4()}"})
    other.init_transactions(30)
    other.begin_transaction()
    group = marks_topic.group_metadata(sink.client, query_run)
    marks_topic.send(other, group, query_run, {at: '[7,1,0,"r","q"]'})
    with pytest.raises(KafkaException) as found:
        marks_topic.read(sink.client, query_run, [at], within_s=0.1)
    assert found.value.args[0].code() == KafkaError._TIMED_OUT
    other.abort_transaction(30)
    assert marks_topic.read(sink.client, query_run, [at])[at].startswith("[0,")


def test_a_mark_is_read_though_its_coordinator_is_elsewhere_now(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin client of librdkafka would end this process (its issue 5315)."""
    asked: list[str] = []
    real = offset_fetch._fetch_group

    def refuse_first(ctx: Any, group: Any, require_stable: bool, done: Any) -> None:
        asked.append(group.group_id)
        if asked.count(group.group_id) == 1:
            done(offset_fetch_error(group.group_id, ErrorCode.NOT_COORDINATOR))
        else:
            real(ctx, group, require_stable, done)

    sink.write(0, ["a"])
    monkeypatch.setattr(offset_fetch, "_fetch_group", refuse_first)
    sink.write(1, ["b"], anew=True)
    assert asked.count(f"{sink.group}-marks") > 1
    assert sink.committed() == ["a", "b"]


def test_a_decision_is_committed_though_its_coordinator_is_elsewhere_now(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import marks_topic

    real, refusals = offset_commit._refusal_of_group, [ErrorCode.NOT_COORDINATOR]
    monkeypatch.setattr(offset_commit, "_refusal_of_group", lambda *at: refusals.pop() if refusals else real(*at))
    sink.write(0, ["a"])
    query_run, at = sink.of().query_run, marks_topic.DECISION_AT
    marks_topic.commit(sink.client, query_run, at, "said")
    assert not refusals
    assert marks_topic.read(sink.client, query_run, [at]) == {at: "said"}


def test_a_decision_that_no_broker_takes_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pybroker.pipeline.topics import client_calls, marks_topic
    from pybroker.pipeline.topics.task_commits import QueryRun

    with Broker() as broker:
        client = {"bootstrap.servers": broker.bootstrap}
    monkeypatch.setattr(marks_topic, "REQUEST_TIMEOUT_S", 0.2)
    with pytest.raises(client_calls.NoAnswer, match="commit did not come back within 0 s"):
        marks_topic.commit(client, QueryRun("g", "q", "r"), marks_topic.DECISION_AT, "said")


def test_a_transaction_that_the_broker_ended_names_the_setting_that_bounds_it() -> None:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

    from pybroker.pipeline.topics import epoch_transactions

    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as broker:
        sink = Sink(broker.bootstrap)
        sink.client.update({"transaction.timeout.ms": "1000", "linger.ms": "0"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(sink.topic, 1)])[sink.topic].result(30)

        def has_ended() -> bool:
            latest: Any = OffsetSpec.latest
            asked = {TopicPartition(sink.topic, 0): latest()}
            (found,) = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED).values()
            return bool(found.result(30).offset > 0)

        def slow() -> Iterator[Any]:
            yield batch(["a"])
            wait_until(has_ended, "the end of the transaction")
            yield batch(["b"])

        with pytest.raises(epoch_transactions.TransactionTimedOut, match=r"kafka\.transaction\.timeout\.ms"):
            epoch_transactions.write_epoch(sink.of(), 0, 0, slow())
        assert sink.committed() == []
        epoch_transactions.close_idle()


def test_a_task_asks_for_its_claim_and_its_mark_at_once(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is a client's of its own."""
    from pybroker.pipeline.topics import marks_topic

    asked: list[list[int]] = []
    real = marks_topic.read

    def listen(client: Any, query_run: Any, partitions: Any, *given: Any, **of: Any) -> Any:
        asked.append(list(partitions))
        return real(client, query_run, asked[-1], *given, **of)

    sink.write(0, ["a"])
    monkeypatch.setattr(marks_topic, "read", listen)
    sink.write(1, ["b"], anew=True)
    assert asked == [[marks_topic.CLAIM_AT], [marks_topic.CLAIM_AT, marks_topic.slot_at(0)]]


def test_a_producer_registers_as_soon_as_it_has_a_connection(sink: Sink) -> None:
    """Asked before that, librdkafka looks for a coordinator half a second later, and says so."""
    import logging

    from pybroker.pipeline.topics.claims import fenced

    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logger = logging.Logger("client")
    logger.addFilter(keep)
    client: Any = {**sink.client, "debug": "eos", "logger": logger}
    for number in range(6):
        fenced(client, f"{sink.group}-{number}", sink.topic).poll(0)
    assert any("Querying for transaction coordinator" in line for line in said)
    assert not any("Unable to query for transaction coordinator" in line for line in said)
