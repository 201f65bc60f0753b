"""The controller over a real store: commits, answers, deadlines, failures, restarts."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.controller import write_queue
from pybroker.cluster.controller.controller import PRODUCER_ID_BLOCK_SIZE, PRODUCER_ID_MAX
from pybroker.cluster.decisions.operations import (
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    ProducerIdAllocation,
    ProducerIdBlock,
    TopicCreation,
)
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, ImageDelta, PartitionImage, TopicImage
from pybroker.cluster.image.supported_features import SUPPORTED, VersionRange
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.initial_metadata import InitialMetadata, new_cluster
from pybroker.cluster.store.metadata_store import (
    CommitResult,
    SessionExpiredError,
    StoreError,
    StoreUnavailableError,
    Transaction,
)
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore
from pybroker.config.resources import ConfigChange
from pybroker.handlers import allocate_producer_ids
from pybroker_protocol.data_records import encode_metadata_record
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import records_metadata as kraft
from pybroker_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pybroker_protocol.primitives import uvarint

from .fakes import CLUSTER_ID, FakeCluster


def create(cluster: FakeCluster, *names: str, **options: Any) -> list[int]:
    topics = [NewTopic(name, 1, 1) for name in names]
    return [result.error_code for result in cluster.ask(cluster.controller.create_topics, topics, **options)]


def allocated(cluster: FakeCluster, broker_id: int = 1, *, epoch: int | None = None) -> ProducerIdAllocation:
    """What a broker is answered that asks for producer ids, by default under its present epoch."""
    epoch = cluster.cache.image.brokers[broker_id].epoch if epoch is None else epoch
    answer: ProducerIdAllocation = cluster.ask(cluster.controller.allocate_producer_ids, broker_id, epoch)
    return answer


def fail(*_: object) -> None:
    raise ZeroDivisionError


def reopened(cluster: FakeCluster, folder: Path, *, clean_shutdown: bool = True) -> FakeCluster:
    cluster.close()
    return FakeCluster(folder).start(clean_shutdown=clean_shutdown)


def test_first_start_registers_the_broker_as_controller(cluster: FakeCluster) -> None:
    image = cluster.cache.image
    assert (image.cluster_id, image.controller_id, list(image.brokers)) == (CLUSTER_ID, 1, [1])
    assert image.features == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 33,
        "transaction.version": 2,
    }
    assert image.epoch > 0


def test_the_epoch_of_a_controller_is_that_of_the_key_that_it_has_taken(cluster: FakeCluster, tmp_path: Path) -> None:
    key = store_codec.encode_controller(store_codec.ControllerKey(1, 1, 40))
    cluster.store.commit_at_start(Transaction(puts={store_codec.CONTROLLER: key}))
    again = reopened(cluster, tmp_path)
    assert again.controller.epoch == 41
    again.close()


def test_a_start_ends_where_another_broker_has_become_the_controller_since_the_metadata_were_read(
    tmp_path: Path,
) -> None:
    FakeCluster(tmp_path).start().close()
    cluster = FakeCluster(tmp_path)
    cluster.standalone.load()
    key = store_codec.encode_controller(store_codec.ControllerKey(2, 1, 40))
    cluster.store.commit_at_start(Transaction(puts={store_codec.CONTROLLER: key}))
    with pytest.raises(StoreError, match="another broker has just become the controller"):
        cluster.standalone.register(cluster.endpoints, None, [bytes(16)])
    cluster.close()


def test_change_is_in_the_image_before_it_is_answered(cluster: FakeCluster) -> None:
    seen = []
    cluster.controller.create_topics(
        [NewTopic("a", 1, 1)], lambda results: seen.append("a" in cluster.cache.image.topics_by_name)
    )
    assert "a" not in cluster.cache.image.topics_by_name
    cluster.world.run()
    assert seen == [True]


def test_everything_is_there_after_a_restart(cluster: FakeCluster, tmp_path: Path) -> None:
    controller = cluster.controller
    cluster.ask(controller.create_topics, [NewTopic("a", 2, 1, (), (("retention.ms", "5"),)), NewTopic("b", 1, 1)])
    cluster.ask(controller.delete_topics, ["b"])
    cluster.ask(controller.create_partitions, [MorePartitions("a", 3)])
    cluster.ask(controller.alter_configs, [ConfigChange(4, "", {"num.partitions": "2"})])
    cluster.ask(controller.alter_configs, [ConfigChange(32, "group/ü %", {"consumer.session.timeout.ms": "50000"})])
    allocated(cluster)
    cluster.ask(controller.update_features, [FeatureUpdate("kraft.version", 1)])
    before = cluster.cache.image
    again = reopened(cluster, tmp_path)
    after = again.cache.image
    for field in ("cluster_id", "topics_by_name", "topics_by_id", "configs", "features", "next_producer_id"):
        assert getattr(after, field) == getattr(before, field), field
    assert after.epoch > before.epoch
    assert after.brokers[1].epoch == before.brokers[1].epoch + 1
    again.close()


def test_committed_topics_survive_kill_9(cluster: FakeCluster, tmp_path: Path) -> None:
    create(cluster, "a")
    dead = tmp_path / "dead"
    dead.mkdir()
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        shutil.copy(path, dead)
    again = FakeCluster(dead).start(clean_shutdown=False)
    assert set(again.cache.image.topics_by_name) == {"a"}
    again.close()


@pytest.mark.parametrize(("clean_shutdown", "leader_epoch"), [(True, 0), (False, 1)])
def test_leader_epochs_grow_after_an_unclean_shutdown_only(
    cluster: FakeCluster, tmp_path: Path, clean_shutdown: bool, leader_epoch: int
) -> None:
    create(cluster, "a")
    again = reopened(cluster, tmp_path, clean_shutdown=clean_shutdown)
    (partition,) = again.cache.image.topics_by_name["a"].partitions
    assert (partition.leader, partition.leader_epoch) == (1, leader_epoch)
    again.close()


class SlowBuilder(ImageBuilder):
    """Each change takes some time."""

    world: VirtualWorld

    def put_topic(self, topic: TopicImage) -> None:
        self.world.clock.pass_ms(2)
        super().put_topic(topic)


@pytest.fixture
def slow(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[ImageDelta]:
    """The deltas that follow, now that a slice is over after three changes."""
    monkeypatch.setattr(SlowBuilder, "world", cluster.world, raising=False)
    monkeypatch.setattr(write_queue, "ImageBuilder", SlowBuilder)
    deltas: list[ImageDelta] = []
    cluster.cache.subscribe(lambda image, delta: deltas.append(delta))
    return deltas


def count_turns_until_the_store_is_asked(cluster: FakeCluster) -> Callable[[], int]:
    turns, store = 0, cluster.world.thread("metadata-store")
    before = store.portions

    def other() -> None:
        nonlocal turns
        turns += 1
        if store.portions == before:  # the transaction is not written yet
            cluster.world.timers.call_soon(other)

    other()
    return lambda: turns


def test_others_have_a_turn_while_much_is_decided_which_commits_together(
    cluster: FakeCluster, slow: list[ImageDelta]
) -> None:
    answers: list[str] = []
    for name in "abcdefgh":
        cluster.controller.create_topics([NewTopic(name, 1, 1)], lambda results: answers.append(results[0].name))
    turns = count_turns_until_the_store_is_asked(cluster)
    cluster.world.run()
    assert "".join(answers) == "abcdefgh"
    assert turns() > len("abcdefgh") / 3
    assert [[topic.name for topic in delta.topics_created] for delta in slow] == [list("abcdefgh")]


@pytest.mark.parametrize("topics", [[NewTopic(name, 1, 1) for name in "abcdefgh"], [NewTopic("a", 8, 1)]])
def test_others_have_a_turn_while_one_request_that_makes_much_is_decided_and_written_down(
    cluster: FakeCluster, slow: list[ImageDelta], monkeypatch: pytest.MonkeyPatch, topics: list[NewTopic]
) -> None:
    def slow_fields(partition: PartitionImage) -> dict[str, Any]:
        cluster.world.clock.pass_ms(2)
        return fields_of(partition)

    fields_of = store_codec._partition_fields
    monkeypatch.setattr(store_codec, "_partition_fields", slow_fields)
    answers: list[Any] = []
    cluster.controller.create_topics(topics, answers.append)
    turns = count_turns_until_the_store_is_asked(cluster)
    cluster.world.run()
    assert [answer.error_code for answer in answers[0]] == [0] * len(topics)
    assert turns() > 8 / 3, "each slice is over after three partitions"
    assert len(slow) == 1, "and yet all is committed together"


def test_stop_in_the_middle_of_deciding_commits_nothing(cluster: FakeCluster, slow: list[ImageDelta]) -> None:
    answers: list[Any] = []
    for name in "abcdefgh":
        cluster.controller.create_topics([NewTopic(name, 1, 1)], answers.append)
    cluster.world.step()
    assert not answers
    cluster.controller.close()
    cluster.world.run()
    assert answers == slow == []


def test_operations_that_come_together_are_decided_in_order_and_commit_together(cluster: FakeCluster) -> None:
    images: list[ImageDelta] = []
    cluster.cache.subscribe(lambda image, delta: images.append(delta))
    answers: list[Any] = []
    for number in range(5):
        cluster.controller.create_topics([NewTopic(f"t{number}", 1, 1)], answers.append)
    cluster.controller.create_topics([NewTopic("t0", 1, 1)], answers.append)
    cluster.controller.delete_topics(["t1"], answers.append)
    cluster.world.run()
    assert [answer[0].error_code for answer in answers] == [0, 0, 0, 0, 0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    assert len(images) == 1
    assert set(cluster.cache.image.topics_by_name) == {"t0", "t2", "t3", "t4"}


def test_operations_that_come_while_the_store_is_busy_wait_for_the_next_transaction(cluster: FakeCluster) -> None:
    answers: list[Any] = []
    cluster.world.thread("metadata-store").is_stuck = True
    cluster.controller.create_topics([NewTopic("a", 1, 1)], answers.append)
    cluster.world.run()
    cluster.controller.create_topics([NewTopic("a", 1, 1)], answers.append)
    cluster.controller.create_topics([NewTopic("b", 1, 1)], answers.append)
    cluster.world.run()
    assert not answers
    cluster.world.thread("metadata-store").is_stuck = False
    cluster.world.run()
    assert [answer[0].error_code for answer in answers] == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]


def test_large_bursts_are_cut_into_transactions(cluster: FakeCluster) -> None:
    epochs: list[int] = []
    cluster.cache.subscribe(lambda image, delta: epochs.append(image.epoch))
    answers: list[Any] = []
    for number in range(3_000):
        cluster.controller.create_topics([NewTopic(f"t{number}", 1, 1)], answers.append)
    cluster.world.run()
    assert len(answers) == 3_000
    assert len(cluster.cache.image.topics_by_name) == 3_000
    assert 2 <= len(epochs) <= 10


def test_operation_whose_time_is_up_before_it_is_decided_changes_nothing(cluster: FakeCluster) -> None:
    answers: list[Any] = []
    cluster.world.thread("metadata-store").is_stuck = True
    cluster.controller.create_topics([NewTopic("first", 1, 1)], answers.append)
    cluster.world.run()
    cluster.controller.create_topics([NewTopic("late", 1, 1)], answers.append, timeout_ms=100)
    cluster.world.advance(100)
    cluster.world.thread("metadata-store").is_stuck = False
    cluster.world.run()
    assert [answer[0].error_code for answer in answers] == [0, ErrorCode.REQUEST_TIMED_OUT]
    assert set(cluster.cache.image.topics_by_name) == {"first"}


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_timeout_of_nothing_is_timed_out_as_in_kafka(cluster: FakeCluster, timeout_ms: int) -> None:
    assert create(cluster, "a", timeout_ms=timeout_ms) == [ErrorCode.REQUEST_TIMED_OUT]
    assert not cluster.cache.image.topics_by_name


def test_validate_only_answers_and_changes_nothing(cluster: FakeCluster) -> None:
    epoch = cluster.cache.image.epoch
    assert create(cluster, "a", "a b", validate_only=True) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert cluster.cache.image.epoch == epoch
    assert create(cluster, "a") == [0]


class FailingStore:
    """A store whose commits fail when told; everything else is the real one's."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.outcome: CommitResult | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, transaction: Transaction, done: Any) -> None:
        if self.outcome is None:
            self._store.commit(transaction, done)
        else:
            self._store._env.timers.call_soon(done, self.outcome)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (CommitResult(error=StoreError("the disk is full")), ErrorCode.KAFKA_STORAGE_ERROR),
        (CommitResult(error=StoreUnavailableError("nobody answers")), ErrorCode.REQUEST_TIMED_OUT),
        (CommitResult(error=SessionExpiredError("silent for too long")), ErrorCode.NOT_CONTROLLER),
        (CommitResult(conflict=store_codec.CONTROLLER), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_failed_commit_changes_nothing_and_the_next_one_works(
    tmp_path: Path, outcome: CommitResult, error: ErrorCode
) -> None:
    failing = FailingStore(SqliteStore(str(tmp_path / FILE_NAME), VirtualWorld().env, fsync=False))
    cluster = FakeCluster(tmp_path, store=failing)
    failing._store._env = cluster.env
    cluster.start()
    failing.outcome = outcome
    assert create(cluster, "a") == [error]
    assert allocated(cluster) == ProducerIdAllocation(error)
    assert not cluster.cache.image.topics_by_name
    failing.outcome = None
    assert create(cluster, "a") == [0]
    cluster.close()


def test_store_that_fails_and_fails_is_told_once_then_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing = FailingStore(SqliteStore(str(tmp_path / FILE_NAME), VirtualWorld().env, fsync=False))
    cluster = FakeCluster(tmp_path, store=failing)
    failing._store._env = cluster.env
    cluster.start()
    failing.outcome = CommitResult(error=StoreError("the disk is full"))
    for number in range(20):
        assert create(cluster, f"a{number}") != [0]
    assert caplog.text.count("the disk is full") == 1
    cluster.close()
    assert "19 more of metadata changes that failed" in caplog.text


def test_controller_that_was_replaced_changes_nothing_and_warns_of_nothing(
    cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usurper = FakeCluster(tmp_path, node_id=2).start()
    assert create(cluster, "a") == [ErrorCode.NOT_CONTROLLER]
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    assert create(usurper, "b") == [0]
    usurper.close()
    again = reopened(cluster, tmp_path)
    assert set(again.cache.image.topics_by_name) == {"b"}
    again.close()


def test_fault_of_a_listener_does_not_keep_the_answer_back(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(image: ClusterImage, delta: ImageDelta) -> None:
        raise RuntimeError("bug")

    cluster.cache.subscribe(fail)
    assert create(cluster, "a") == [0]
    assert "a listener failed" in caplog.text


def test_fault_while_an_answer_is_delivered_is_followed_by_a_refusal(cluster: FakeCluster) -> None:
    codes: list[int] = []

    def deliver(results: list[TopicCreation]) -> None:
        codes.extend(result.error_code for result in results)
        if codes == [ErrorCode.NONE]:
            raise RuntimeError("the first answer cannot be shaped")

    cluster.controller.create_topics([NewTopic("t")], deliver)
    cluster.world.run()
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_operation_that_fails_half_way_leaves_no_trace_and_the_others_are_done(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def half(builder: ImageBuilder, topics: Any) -> Any:
        builder.remove_topic(next(iter(builder.view().topics_by_id)))
        raise RuntimeError("bug")

    monkeypatch.setattr("pybroker.cluster.controller.controller.delete_topics", half)
    answers: list[Any] = []
    cluster.controller.create_topics([NewTopic("a", 1, 1)], answers.append)
    cluster.controller.delete_topics(["a"], answers.append)
    cluster.controller.create_topics([NewTopic("b", 1, 1)], answers.append)
    cluster.world.run()
    codes = [answer[0].error_code for answer in answers]
    assert sorted(codes) == [ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0]
    assert set(cluster.cache.image.topics_by_name) == {"a", "b"}
    assert "an operation of the controller failed" in caplog.text


@pytest.mark.parametrize(
    "broken",
    ["pybroker.cluster.store.store_codec.encode_in_steps", "pybroker.cluster.image.cluster_image.ImageBuilder.build"],
)
def test_change_that_cannot_be_written_down_or_shown_is_refused_and_the_next_one_works(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    answers: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(broken, lambda *_: 1 / 0)
        for name in "ab":
            cluster.controller.create_topics([NewTopic(name, 1, 1)], answers.append)
        cluster.world.run()
        assert [answer[0].error_code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert "ZeroDivisionError" in caplog.text
    assert create(cluster, "c") == [0]


def test_closed_controller_drops_what_waits(cluster: FakeCluster) -> None:
    answers: list[Any] = []
    cluster.close()
    cluster.controller.create_topics([NewTopic("a", 1, 1)], answers.append)
    cluster.world.run()
    assert not answers


# ------------------------------------------------------------------ configs, producer ids, features


def test_overrides_are_merged_removed_and_replaced(cluster: FakeCluster) -> None:
    create(cluster, "a")

    def alter(**change: Any) -> dict[str, str]:
        (result,) = cluster.ask(cluster.controller.alter_configs, [ConfigChange(2, "a", **change)])
        assert result.error_code == 0
        return dict(cluster.cache.image.overrides(2, "a"))

    assert alter(updates={"x": "1", "y": "2"}) == {"x": "1", "y": "2"}
    assert alter(updates={"y": None, "z": "3"}) == {"x": "1", "z": "3"}
    assert alter(updates={"q": "4"}, replace=True) == {"q": "4"}
    assert alter(updates={}, replace=True) == {}
    assert (2, "a") not in cluster.cache.image.configs


def test_delta_names_the_resources_whose_overrides_changed(cluster: FakeCluster) -> None:
    deltas: list[ImageDelta] = []
    cluster.cache.subscribe(lambda image, delta: deltas.append(delta))
    changes = [ConfigChange(4, "", {"a": "1"}), ConfigChange(4, "1", {}), ConfigChange(2, "nope", {"a": "1"})]
    results = cluster.ask(cluster.controller.alter_configs, changes)
    assert [result.error_code for result in results] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [delta.configs_changed for delta in deltas] == [((4, ""),)]


def test_producer_id_blocks_never_overlap_not_even_over_a_restart(cluster: FakeCluster, tmp_path: Path) -> None:
    size = PRODUCER_ID_BLOCK_SIZE
    assert allocated(cluster) == ProducerIdAllocation(0, ProducerIdBlock(0, size))
    assert allocated(cluster) == ProducerIdAllocation(0, ProducerIdBlock(size, size))
    again = reopened(cluster, tmp_path)
    assert allocated(again) == ProducerIdAllocation(0, ProducerIdBlock(2 * size, size))
    again.close()


def test_producer_ids_that_are_used_up_are_refused(tmp_path: Path) -> None:
    initial_metadata = InitialMetadata(ClusterImage(cluster_id=CLUSTER_ID, next_producer_id=PRODUCER_ID_MAX - 5))
    cluster = FakeCluster(tmp_path, initial_metadata=initial_metadata).start()
    assert allocated(cluster) == ProducerIdAllocation(ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.close()


def test_producer_ids_are_for_brokers_under_their_present_epoch(cluster: FakeCluster) -> None:
    stale = ProducerIdAllocation(ErrorCode.STALE_BROKER_EPOCH)
    epoch = cluster.cache.image.brokers[1].epoch
    assert [allocated(cluster, epoch=epoch + 1), allocated(cluster, 7, epoch=epoch)] == [stale, stale]
    assert cluster.cache.image.next_producer_id == 0
    assert allocated(cluster).block is not None


def test_a_controller_that_is_not_active_says_so_before_it_judges_who_asks_for_producer_ids(
    cluster: FakeCluster,
) -> None:
    cluster.controller.deactivate()
    request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=1)
    response = cluster.handle(allocate_producer_ids, request, 0)
    assert (response.error_code, response.producer_id_len) == (ErrorCode.NOT_CONTROLLER, 0)


def test_a_refusal_of_producer_ids_tells_its_reason(cluster: FakeCluster) -> None:
    request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=1)
    assert cluster.handle(allocate_producer_ids, request, 0).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("is_active", [True, False])
def test_who_fails_to_hear_that_a_controller_decides_or_does_not_keeps_nobody_from_hearing_it(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, is_active: bool
) -> None:
    controller, heard = cluster.controller, list[bool]()
    if is_active:
        controller.deactivate()
    controller.activity_listeners += [fail, heard.append]
    controller.activate(0, 1) if is_active else controller.deactivate()
    assert heard == [is_active]
    assert "a listener of whether the controller is active failed" in caplog.text


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (FeatureUpdate("nope", 1), "does not support this feature"),
        (FeatureUpdate("metadata.version", 34), "only supports versions 7-33"),
        (FeatureUpdate("metadata.version", 5, 2), "only supports versions 7-33"),
        (FeatureUpdate("metadata.version", 20), "without setting the upgrade type"),
        (FeatureUpdate("metadata.version", 31, 2), "might delete metadata"),
        (FeatureUpdate("metadata.version", 31, 3), "Unsafe metadata downgrade"),
        (FeatureUpdate("metadata.version", -1), "cannot be less than 0"),
        (FeatureUpdate("metadata.version", 33, 0), "does not support the given upgrade type"),
        (FeatureUpdate("kraft.version", 1, 2), "Can't downgrade to a newer version"),
    ],
)
def test_refused_feature_update_refuses_the_whole_request(
    cluster: FakeCluster, update: FeatureUpdate, says: str
) -> None:
    updates = [FeatureUpdate("kraft.version", 1), update]
    (result,) = cluster.ask(cluster.controller.update_features, updates)
    assert (result.name, result.error_code) == (update.name, ErrorCode.INVALID_UPDATE_VERSION)
    assert says in result.error_message
    assert "kraft.version" not in cluster.cache.image.features


def test_feature_update_is_finalized_and_cannot_be_taken_back(cluster: FakeCluster) -> None:
    cluster.ask(cluster.controller.update_features, [FeatureUpdate("kraft.version", 1)])
    assert cluster.cache.image.features["kraft.version"] == 1
    (result,) = cluster.ask(cluster.controller.update_features, [FeatureUpdate("kraft.version", 0, 2)])
    assert result.error_code == ErrorCode.INVALID_UPDATE_VERSION


# ------------------------------------------------------------------ founding


def retained_feature(name: str, level: int) -> bytes:
    return encode_metadata_record(kraft.FeatureLevelRecord(name=name, feature_level=level), 0)


def test_retained_records_are_kept_as_they_are(tmp_path: Path) -> None:
    unknown = uvarint(1) + uvarint(99) + uvarint(0) + b"whatever"
    records = (retained_feature("share.version", 1), unknown, unknown)
    cluster = FakeCluster(tmp_path, initial_metadata=new_cluster(CLUSTER_ID)._replace(retained_records=records)).start()
    create(cluster, "a")
    again = reopened(cluster, tmp_path)
    assert tuple(store_codec.retained(again.store.load("/")).values()) == records
    assert again.cache.image.features == cluster.cache.image.features
    again.close()


def test_retained_record_whose_kind_is_served_by_now_is_applied_and_removed_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = (retained_feature("share.version", 1), retained_feature("streams.version", 1))
    cluster = FakeCluster(tmp_path, initial_metadata=new_cluster(CLUSTER_ID)._replace(retained_records=records)).start()
    before = cluster.cache.image
    served_by_now = {**SUPPORTED, "share.version": VersionRange(0, 1)}
    for module in ("kraft.kraft_takeover", "image.supported_features"):
        monkeypatch.setattr(f"pybroker.cluster.{module}.SUPPORTED", served_by_now)
    for _ in range(2):
        cluster = reopened(cluster, tmp_path)
        assert cluster.cache.image.features == {**before.features, "share.version": 1}
        assert cluster.cache.image.next_producer_id == before.next_producer_id
        assert tuple(store_codec.retained(cluster.store.load("/")).values()) == records[1:]
    cluster.close()


def test_retained_record_that_cannot_be_read_is_a_store_error_that_names_the_key(tmp_path: Path) -> None:
    initial_metadata = new_cluster(CLUSTER_ID)._replace(retained_records=(b"\x01\x02",))
    cluster = FakeCluster(tmp_path, initial_metadata=initial_metadata).start()
    with pytest.raises(StoreError, match="/retained/00000000"):
        reopened(cluster, tmp_path)


def test_nothing_is_written_before_the_broker_registers(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    cluster.standalone.load()
    assert cluster.standalone.cluster_id == CLUSTER_ID
    assert cluster.store.load("/") == {}
    cluster.close()


def test_nonsense_in_the_store_is_a_store_error_that_names_the_key(cluster: FakeCluster, tmp_path: Path) -> None:
    create(cluster, "a")
    key = next(iter(cluster.store.load(store_codec.PARTITIONS)))
    cluster.store.commit(Transaction(puts={key: b"{}"}), lambda result: None)
    cluster.world.run()
    cluster.close()
    again = FakeCluster(tmp_path)
    with pytest.raises(StoreError, match=key):
        again.standalone.load()
    again.close()
