"""Eligible leader replicas (KIP-966): what holds of min.insync.replicas, and who may lead where too few are in sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.cluster.decisions.broker_changes import register_broker, take_directories_offline
from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.decisions.operations import SAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.cluster.store.initial_metadata import InitialMetadata
from pybroker.config.resources import BROKER, TOPIC, ConfigChange
from pybroker_protocol.errors import ErrorCode

from .fakes import CLUSTER_ID, FakeCluster

FEATURE = "eligible.leader.replicas.version"
MIN = "min.insync.replicas"
A, B = b"a" * 16, b"b" * 16
TOPIC_ID = b"t" * 16


def for_all_brokers(cluster: FakeCluster) -> dict[str, str]:
    return dict(cluster.cache.image.overrides(BROKER, ""))


def alter(cluster: FakeCluster, change: ConfigChange, *, validate_only: bool = False) -> tuple[int, str | None]:
    (result,) = cluster.ask(cluster.controller.alter_configs, [change], validate_only=validate_only)
    return result.error_code, result.error_message


def change_level(cluster: FakeCluster, level: int, *, validate_only: bool = False) -> int:
    update = FeatureUpdate(FEATURE, level, UPGRADE if level else SAFE_DOWNGRADE)
    (result,) = cluster.ask(cluster.controller.update_features, [update], validate_only=validate_only)
    code: int = result.error_code
    return code


# ------------------------------------------------------------------ the setting


@pytest.mark.parametrize(("settings", "value"), [({}, "1"), ({MIN: "3"}, "3")])
def test_new_cluster_sets_the_minimum_for_all_brokers_to_what_the_file_says(
    tmp_path: Path, settings: dict[str, str], value: str
) -> None:
    cluster = FakeCluster(tmp_path, settings).start()
    assert for_all_brokers(cluster) == {MIN: value}
    cluster.close()


def test_store_that_lacks_the_setting_gets_it_at_start_and_what_was_set_stays(tmp_path: Path) -> None:
    builder = ImageBuilder(ClusterImage(cluster_id=CLUSTER_ID, features={FEATURE: 1}))
    builder.put_overrides((BROKER, ""), {"num.partitions": "2"})
    builder.put_overrides((BROKER, "1"), {MIN: "2", "log.cleaner.threads": "2"})
    cluster = FakeCluster(tmp_path, initial_metadata=InitialMetadata(builder.view())).start()
    assert for_all_brokers(cluster) == {"num.partitions": "2", MIN: "1"}
    assert dict(cluster.cache.image.overrides(BROKER, "1")) == {"log.cleaner.threads": "2"}
    assert alter(cluster, ConfigChange(BROKER, "", {MIN: "2"})) == (0, None)
    cluster.close()
    again = FakeCluster(tmp_path, {MIN: "3"}).start()
    assert for_all_brokers(again) == {"num.partitions": "2", MIN: "2"}
    again.close()


def test_cluster_without_the_feature_is_left_alone_until_the_feature_is_finalized(tmp_path: Path) -> None:
    initial_metadata = InitialMetadata(ClusterImage(cluster_id=CLUSTER_ID, features={"metadata.version": 30}))
    cluster = FakeCluster(tmp_path, {MIN: "2"}, initial_metadata=initial_metadata).start()
    assert for_all_brokers(cluster) == {}
    assert alter(cluster, ConfigChange(BROKER, "1", {MIN: "3"})) == (0, None)
    assert change_level(cluster, 1, validate_only=True) == 0
    assert for_all_brokers(cluster) == {}
    assert change_level(cluster, 1) == 0
    assert for_all_brokers(cluster) == {MIN: "2"}
    assert dict(cluster.cache.image.overrides(BROKER, "1")) == {}
    assert change_level(cluster, 0) == 0
    assert FEATURE not in cluster.cache.image.features
    assert alter(cluster, ConfigChange(BROKER, "", {MIN: None})) == (0, None)
    cluster.close()


@pytest.mark.parametrize(("metadata_version", "code"), [(22, ErrorCode.INVALID_UPDATE_VERSION), (23, 0)])
def test_feature_takes_a_metadata_version_that_knows_it(tmp_path: Path, metadata_version: int, code: int) -> None:
    initial_metadata = InitialMetadata(
        ClusterImage(cluster_id=CLUSTER_ID, features={"metadata.version": metadata_version})
    )
    cluster = FakeCluster(tmp_path, initial_metadata=initial_metadata).start()
    assert change_level(cluster, 1) == code
    assert for_all_brokers(cluster) == ({} if code else {MIN: "1"})
    both = [FeatureUpdate(FEATURE, 1), FeatureUpdate("metadata.version", 23)]
    assert [result.error_code for result in cluster.ask(cluster.controller.update_features, both)] == [0, 0]
    cluster.close()


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (ConfigChange(BROKER, "1", {MIN: "2"}), "Broker-level min.insync.replicas cannot be altered"),
        (ConfigChange(BROKER, "1", {MIN: None}), "Broker-level min.insync.replicas cannot be altered"),
        (ConfigChange(BROKER, "", {MIN: None}), "Cluster-level min.insync.replicas cannot be removed"),
        (ConfigChange(BROKER, "", {}, replace=True), "Cluster-level min.insync.replicas cannot be removed"),
        (
            ConfigChange(BROKER, "", {"num.partitions": "3"}, replace=True),
            "Cluster-level min.insync.replicas cannot be removed",
        ),
    ],
)
def test_minimum_of_all_brokers_is_not_taken_away_nor_given_to_one(
    cluster: FakeCluster, change: ConfigChange, refusal: str, validate_only: bool
) -> None:
    error_code, message = alter(cluster, change, validate_only=validate_only)
    assert error_code == ErrorCode.INVALID_CONFIG
    assert message == f"{refusal} while ELR is enabled."
    assert for_all_brokers(cluster) == {MIN: "1"}


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange(BROKER, "", {MIN: "2"}),
        ConfigChange(BROKER, "", {MIN: "2", "num.partitions": "3"}, replace=True),
        ConfigChange(BROKER, "1", {"log.cleaner.threads": "2"}, replace=True),
    ],
)
def test_other_changes_of_brokers_are_made(cluster: FakeCluster, change: ConfigChange) -> None:
    assert alter(cluster, change, validate_only=True) == (0, None)
    assert for_all_brokers(cluster) == {MIN: "1"}
    assert alter(cluster, change) == (0, None)
    assert dict(change.updates).items() <= dict(cluster.cache.image.overrides(BROKER, change.resource_name)).items()


# ------------------------------------------------------------------ partitions


def registration(*log_dirs: bytes) -> BrokerRegistration:
    return BrokerRegistration(1, 0, bytes(16), {}, log_dirs=log_dirs)


def image_of(
    partition: PartitionImage, minimum: str = "1", of_topic: str | None = None, level: int = 1
) -> ClusterImage:
    builder = ImageBuilder(ClusterImage(features={FEATURE: level}))
    builder.put_topic(TopicImage("t", TOPIC_ID, (partition,)))
    builder.put_overrides((BROKER, ""), {MIN: minimum})
    if of_topic is not None:
        builder.put_overrides((TOPIC, "t"), {MIN: of_topic})
    register_broker(builder, registration(A, B), {}, clean_shutdown=True)
    return builder.build(1)[0]


def without_dir_a(image: ClusterImage) -> ClusterImage:
    builder = ImageBuilder(image)
    take_directories_offline(builder, 1, (A,))
    return builder.build(image.epoch + 1)[0]


def only(image: ClusterImage) -> PartitionImage:
    (partition,) = image.topics_by_name["t"].partitions
    return partition


ALONE = PartitionImage((1,), (1,), 1, 5, 7, (A,))


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_last_in_sync_replica_is_eligible_while_its_log_dir_is_gone_and_leads_again(clean_shutdown: bool) -> None:
    gone = only(without_dir_a(image_of(ALONE)))
    assert (gone.leader, gone.isr, gone.elr, gone.leader_epoch, gone.partition_epoch) == (NO_LEADER, (), (1,), 6, 8)
    builder = ImageBuilder(without_dir_a(image_of(ALONE)))
    register_broker(builder, registration(A, B), {}, clean_shutdown=clean_shutdown)
    back = only(builder.view())
    assert (back.leader, back.isr, back.elr, back.leader_epoch, back.partition_epoch) == (1, (1,), (), 7, 9)
    assert (gone.last_known_elr, back.last_known_elr) == ((1,), ()), "who led last is told while nobody leads"


def test_log_dir_that_is_missing_at_start_makes_its_replicas_eligible_once() -> None:
    image = image_of(ALONE)
    for _ in range(2):
        builder = ImageBuilder(image)
        register_broker(builder, registration(B), {}, clean_shutdown=True)
        image = builder.build(image.epoch + 1)[0]
        gone = only(image)
        assert (gone.leader, gone.isr, gone.elr, gone.leader_epoch, gone.partition_epoch) == (NO_LEADER, (), (1,), 6, 8)


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_replica_whose_log_dir_is_gone_is_eligible_no_more_where_others_have_it(clean_shutdown: bool) -> None:
    """It begins anew in another log dir."""
    builder = ImageBuilder(image_of(PartitionImage((1, 2), (2,), 2, 5, 7, (A, A), elr=(1,)), "2"))
    register_broker(builder, registration(B), {}, clean_shutdown=clean_shutdown)
    after = only(builder.view())
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())


# Of a partition that nobody leads broker 1 is the last eligible replica, and broker 2 led last.
LEADERLESS = PartitionImage((1, 2), (), NO_LEADER, 5, 7, (A, A), elr=(1,), last_known_elr=(2,))


def test_who_led_last_leads_where_the_last_eligible_replica_lost_its_log_dir() -> None:
    builder = ImageBuilder(ClusterImage(features={FEATURE: 1}))
    builder.put_topic(TopicImage("t", TOPIC_ID, (LEADERLESS,)))
    register_broker(builder, registration(B), {}, clean_shutdown=False)
    waiting = only(builder.view())
    assert (waiting.leader, waiting.elr, waiting.last_known_elr) == (NO_LEADER, (), (2,)), "it is not back yet"
    register_broker(builder, registration(A)._replace(broker_id=2), {}, clean_shutdown=False)
    after = only(builder.view())
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (), ())
    assert (after.leader_epoch, after.leader_recovery_state) == (6, RECOVERING)


def test_who_led_last_leads_at_once_where_it_is_there() -> None:
    builder = ImageBuilder(ClusterImage(features={FEATURE: 1}))
    builder.put_broker(registration(A)._replace(broker_id=2))
    builder.put_topic(TopicImage("t", TOPIC_ID, (LEADERLESS,)))
    register_broker(builder, registration(B), {}, clean_shutdown=False)
    assert (only(builder.view()).leader, only(builder.view()).isr) == (2, (2,))


@pytest.mark.parametrize(("clean_shutdown", "led_last"), [(True, 2), (False, 1)])
def test_last_eligible_replica_stays_so_without_its_log_dir(clean_shutdown: bool, led_last: int) -> None:
    """One that stopped cleanly has everything, and where nobody else led last nobody else has more."""
    builder = ImageBuilder(ClusterImage(features={FEATURE: 1}))
    builder.put_broker(registration(A)._replace(broker_id=2))
    builder.put_topic(TopicImage("t", TOPIC_ID, (LEADERLESS._replace(last_known_elr=(led_last,)),)))
    register_broker(builder, registration(B), {}, clean_shutdown=clean_shutdown)
    assert (only(builder.view()).leader, only(builder.view()).elr) == (NO_LEADER, (1,))


def test_without_the_feature_the_last_in_sync_replica_stays_in_sync() -> None:
    gone = only(without_dir_a(image_of(ALONE, level=0)))
    assert (gone.leader, gone.isr, gone.elr) == (NO_LEADER, (1,), ())


@pytest.mark.parametrize(
    ("minimum", "of_topic", "elr"),
    [("1", None, ()), ("2", None, ()), ("3", None, (1,)), ("1", "3", (1,)), ("3", "2", ()), ("9", None, (1,))],
)
def test_replica_that_goes_is_eligible_only_while_too_few_are_in_sync(
    minimum: str, of_topic: str | None, elr: tuple[int, ...]
) -> None:
    three = PartitionImage((1, 2, 3), (1, 2, 3), 2, 5, 7, (A, B, B))
    gone = only(without_dir_a(image_of(three, minimum, of_topic)))
    assert (gone.leader, gone.isr, gone.elr, gone.leader_epoch, gone.partition_epoch) == (2, (2, 3), elr, 5, 8)


def test_minimum_above_the_number_of_replicas_is_that_number() -> None:
    two = PartitionImage((1, 2), (2,), 2, 5, 7, (A, B), (1,))
    gone = only(without_dir_a(image_of(two, "9")))
    assert (gone.isr, gone.elr) == ((2,), (1,)), "it was not in sync: nothing changes"


@pytest.mark.parametrize(
    ("resource", "elr"), [((TOPIC, "t"), ()), ((BROKER, ""), ()), ((TOPIC, "other"), (1,)), ((BROKER, "1"), (1,))]
)
def test_eligible_replicas_are_forgotten_when_the_minimum_changes(
    resource: tuple[int, str], elr: tuple[int, ...]
) -> None:
    two = PartitionImage((1, 2), (2,), 2, 5, 7, (A, B), (1,), (1,))
    builder = ImageBuilder(image_of(two, "2"))
    builder.put_topic(TopicImage("other", b"o" * 16, (ALONE,)))
    alter_configs(builder, [ConfigChange(*resource, {"retention.ms": "5"}), ConfigChange(*resource, {MIN: "1"})])
    partition = only(builder.view())
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((2,), elr, elr)


def test_last_replica_that_may_lead_stays_eligible_when_the_minimum_changes() -> None:
    builder = ImageBuilder(without_dir_a(image_of(ALONE)))
    alter_configs(builder, [ConfigChange(TOPIC, "t", {MIN: "2"})])
    assert only(builder.view()).elr == (1,)


def test_nobody_stays_eligible_beside_a_new_leader_that_is_enough_by_a_lower_minimum() -> None:
    """It commits alone from now on, and the other lacks that."""
    two = PartitionImage((1, 2), (1,), 1, 5, 7, (A, B), (2,))
    builder = ImageBuilder(without_dir_a(image_of(two, "2")))
    alter_configs(builder, [ConfigChange(TOPIC, "t", {MIN: "1"})])
    assert (only(builder.view()).isr, only(builder.view()).elr) == ((), (2, 1))
    register_broker(builder, registration(A, B), {}, clean_shutdown=True)
    led = only(builder.view())
    assert (led.leader, led.isr, led.elr) == (1, (1,), ())
