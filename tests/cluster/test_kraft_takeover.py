"""Taking over Kafka's metadata: logs and snapshots made by our own encoder, damaged in every way that happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, PartitionImage
from pybroker.cluster.kraft.kraft_takeover import apply_retained, read_kraft_metadata
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.security.acl_bindings import Acl
from pybroker.security.delegation_tokens import DelegationToken
from pybroker.security.scram import ScramCredential
from pybroker_protocol.data_records import decode_metadata_record, encode_metadata_record
from pybroker_protocol.messages import records_metadata as kraft
from pybroker_protocol.primitives import uvarint
from pybroker_protocol.record_codec import ControlRecordType, NewRecord, build_batch, control_key
from pybroker_protocol.schema import DataRecord

CLUSTER_ID = "abcdefghijklmnopqrstuv"
TOPIC_ID = b"t" * 16
OTHER_ID = b"o" * 16
DIRECTORY = b"d" * 16

# Versions in which Kafka 4.4 writes the records that have several.
VERSIONS = {kraft.PartitionRecord: 2, kraft.PartitionChangeRecord: 2, kraft.RegisterBrokerRecord: 3}


def framed(*records: DataRecord | bytes) -> list[bytes]:
    return [
        record if isinstance(record, bytes) else encode_metadata_record(record, VERSIONS.get(type(record), 0))
        for record in records
    ]


def batch(base_offset: int, *records: DataRecord | bytes) -> bytes:
    new = [NewRecord(None, value) for value in framed(*records)]
    return build_batch(new, base_offset=base_offset, timestamp_ms=1)


def control(base_offset: int, kind: ControlRecordType) -> bytes:
    record = NewRecord(control_key(kind), b"\x00\x00")
    return build_batch([record], base_offset=base_offset, timestamp_ms=1, is_control=True)


def topic(name: str = "a", topic_id: bytes = TOPIC_ID) -> kraft.TopicRecord:
    return kraft.TopicRecord(name=name, topic_id=topic_id)


def partition(index: int = 0, topic_id: bytes = TOPIC_ID, replicas: Sequence[int] = (1,)) -> kraft.PartitionRecord:
    return kraft.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0],
        leader_epoch=3,
        partition_epoch=5,
        directories=[DIRECTORY] * len(replicas),
    )


def config(resource_type: int, resource: str, name: str, value: str | None) -> kraft.ConfigRecord:
    return kraft.ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


def feature(name: str, level: int) -> kraft.FeatureLevelRecord:
    return kraft.FeatureLevelRecord(name=name, feature_level=level)


def take_over(folder: Path, *batches: bytes):  # type: ignore[no-untyped-def]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return read_kraft_metadata(str(folder), CLUSTER_ID, 1)


def test_topics_configs_features_and_producer_ids_are_taken_over(tmp_path: Path) -> None:
    initial_metadata = take_over(
        tmp_path,
        control(0, ControlRecordType.LEADER_CHANGE),
        batch(1, feature("metadata.version", 25), kraft.NoOpRecord()),
        batch(3, topic(), config(2, "a", "retention.ms", "7"), partition(0), partition(1)),
        batch(7, config(4, "", "num.partitions", "3"), config(4, "1", "x", "1"), config(4, "1", "x", None)),
        batch(10, kraft.ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=9000)),
    )
    image = initial_metadata.image
    assert image.cluster_id == CLUSTER_ID
    taken = image.topics_by_name["a"]
    assert taken.topic_id == TOPIC_ID
    expected = PartitionImage((1,), (1,), 1, leader_epoch=3, partition_epoch=5, directories=(DIRECTORY,))
    assert taken.partitions == (expected, expected)
    assert image.configs == {(2, "a"): {"retention.ms": "7"}, (4, ""): {"num.partitions": "3"}}
    assert image.features == {"metadata.version": 25}
    assert image.next_producer_id == 9000
    assert initial_metadata.retained_records == ()


def test_topic_that_was_removed_is_gone_with_its_configs(tmp_path: Path) -> None:
    removed = kraft.RemoveTopicRecord(topic_id=TOPIC_ID)
    records = (topic(), config(2, "a", "retention.ms", "7"), partition(), removed)
    initial_metadata = take_over(tmp_path, batch(0, *records, topic(topic_id=OTHER_ID), partition(topic_id=OTHER_ID)))
    assert set(initial_metadata.image.topics_by_id) == {OTHER_ID}
    assert initial_metadata.image.configs == {}


def test_partition_changes_are_merged(tmp_path: Path) -> None:
    change = kraft.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
    )
    quiet = kraft.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=[OTHER_ID])
    initial_metadata = take_over(tmp_path, batch(0, topic(), partition(), change, quiet))
    (taken,) = initial_metadata.image.topics_by_name["a"].partitions
    assert (taken.leader, taken.leader_epoch, taken.partition_epoch) == (-1, 4, 7)
    assert (taken.isr, taken.elr, taken.last_known_elr) == ((), (1,), (1,))
    assert taken.directories == (OTHER_ID,)


def test_elr_is_cleared_of_one_topic_or_of_all(tmp_path: Path) -> None:
    change = kraft.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[1])
    for name, left in (("a", ()), ("", ()), ("b", (1,))):
        cleared = kraft.ClearElrRecord(topic_name=name)
        initial_metadata = take_over(tmp_path, batch(0, topic(), partition(), change, cleared))
        assert initial_metadata.image.topics_by_name["a"].partitions[0].elr == left


def test_log_behind_the_newest_snapshot_counts(tmp_path: Path) -> None:
    old = batch(0, topic("old"), partition())
    (tmp_path / f"{2:020}-{1:010}.checkpoint").write_bytes(old)
    snapshot = [
        control(0, ControlRecordType.SNAPSHOT_HEADER),
        batch(1, topic("new"), partition()),
        control(3, ControlRecordType.SNAPSHOT_FOOTER),
    ]
    (tmp_path / f"{10:020}-{2:010}.checkpoint").write_bytes(b"".join(snapshot))
    (tmp_path / f"{8:020}.log").write_bytes(batch(8, topic("never", OTHER_ID), partition(topic_id=OTHER_ID)))
    (tmp_path / f"{10:020}.log").write_bytes(batch(10, topic("b", OTHER_ID), partition(topic_id=OTHER_ID)))
    initial_metadata = read_kraft_metadata(str(tmp_path), CLUSTER_ID, 1)
    assert set(initial_metadata.image.topics_by_name) == {"new", "b"}


def test_log_of_several_segments_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / f"{2:020}.log").write_bytes(batch(2, partition(1)))
    (tmp_path / f"{0:020}.log").write_bytes(batch(0, topic(), partition(0)))
    initial_metadata = read_kraft_metadata(str(tmp_path), CLUSTER_ID, 1)
    assert len(initial_metadata.image.topics_by_name["a"].partitions) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "zeros"])
def test_torn_end_of_the_log_is_left_out(tmp_path: Path, damage: str) -> None:
    whole, torn = batch(0, topic(), partition()), bytearray(batch(2, topic("b", OTHER_ID)))
    if damage == "cut":
        torn = torn[:-3]
    elif damage == "flipped":
        torn[-1] ^= 0xFF
    else:
        torn[:] = bytes(len(torn))
    assert set(take_over(tmp_path, whole, bytes(torn)).image.topics_by_name) == {"a"}


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damage_before_the_end_is_an_error(tmp_path: Path, damage: str) -> None:
    first = bytearray(batch(0, topic(), partition()))
    if damage == "cut":
        first = first[:-3]
    else:
        first[-1] ^= 0xFF
    (tmp_path / f"{2:020}.log").write_bytes(batch(2, topic("b", OTHER_ID)))
    with pytest.raises(StoreError, match="damaged"):
        take_over(tmp_path, bytes(first))


def test_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    whole = batch(0, topic(), partition())
    for damaged in (whole[:-3], whole[:-1] + bytes([whole[-1] ^ 1]), bytes(len(whole))):
        (tmp_path / f"{9:020}-{1:010}.checkpoint").write_bytes(damaged)
        with pytest.raises(StoreError, match="snapshot"):
            read_kraft_metadata(str(tmp_path), CLUSTER_ID, 1)


def test_records_that_are_missing_between_snapshot_and_log_are_an_error(tmp_path: Path) -> None:
    (tmp_path / f"{2:020}-{1:010}.checkpoint").write_bytes(batch(0, topic(), partition()))
    (tmp_path / f"{5:020}.log").write_bytes(batch(5, topic("b", OTHER_ID)))
    with pytest.raises(StoreError, match="misses the records from offset 2"):
        read_kraft_metadata(str(tmp_path), CLUSTER_ID, 1)


def test_only_transactions_that_were_ended_count(tmp_path: Path) -> None:
    begin = kraft.BeginTransactionRecord(name="bootstrap")
    initial_metadata = take_over(
        tmp_path,
        batch(0, begin, topic("a"), partition(), kraft.EndTransactionRecord()),
        batch(4, begin, topic("aborted", OTHER_ID), kraft.AbortTransactionRecord(reason="no")),
        batch(7, begin, topic("open", OTHER_ID)),
    )
    assert set(initial_metadata.image.topics_by_name) == {"a"}


def test_what_is_not_served_is_kept_as_it_is_framed(tmp_path: Path) -> None:
    entity = [kraft.EntityData(entity_type="tenant", entity_name="of the future")]
    strange = kraft.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0, remove=False)
    gone = kraft.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=2.0, remove=False)
    removal = kraft.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=0.0, remove=True)
    scram = kraft.UserScramCredentialRecord(
        name="x", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )
    unknown = uvarint(1) + uvarint(99) + uvarint(0) + b"whatever"
    no_scram = kraft.RemoveUserScramCredentialRecord(name="y", mechanism=2)
    records = (gone, feature("share.version", 1), unknown, strange, removal, scram, unknown, no_scram)
    initial_metadata = take_over(tmp_path, batch(0, *records))
    kept = framed(feature("share.version", 1), unknown, strange, unknown)
    assert sorted(initial_metadata.retained_records) == sorted(kept)
    assert initial_metadata.image.scram_credentials == {(1, "x"): ScramCredential(b"s", b"k", b"k", 4096)}
    # A feature that is not served must not be announced: clients would switch on it.
    assert initial_metadata.image.features == {}


def test_delegation_tokens_are_taken_over_but_for_those_that_are_gone(tmp_path: Path) -> None:
    def token(token_id: str, expires_ms: int) -> kraft.DelegationTokenRecord:
        return kraft.DelegationTokenRecord(
            owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1, max_timestamp=9,
            expiration_timestamp=expires_ms, token_id=token_id,
        )  # fmt: skip

    gone = kraft.RemoveDelegationTokenRecord(token_id="gone")
    initial_metadata = take_over(tmp_path, batch(0, token("kept", 5), token("gone", 5), token("kept", 7), gone))
    expected = DelegationToken("kept", "User:a", "User:b", ("User:c",), 1, 7, 9)
    assert initial_metadata.image.delegation_tokens == {"kept": expected}
    assert initial_metadata.retained_records == ()


def acl_record(acl_id: bytes, topic_name: str) -> kraft.AccessControlEntryRecord:
    return kraft.AccessControlEntryRecord(
        id=acl_id, resource_type=2, resource_name=topic_name, pattern_type=4, principal="User:x", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip


def test_acls_are_taken_over(tmp_path: Path) -> None:
    removal = kraft.RemoveAccessControlEntryRecord(id=b"2" * 16)
    initial_metadata = take_over(tmp_path, batch(0, acl_record(b"1" * 16, "a"), acl_record(b"2" * 16, "b"), removal))
    assert list(initial_metadata.image.acls.values()) == [Acl(2, "a", 4, "User:x", "*", 3, 3)]
    assert initial_metadata.retained_records == ()


def test_acls_that_an_older_version_kept_are_applied() -> None:
    builder = ImageBuilder(ClusterImage())
    retained = {"/retained/1": framed(acl_record(b"1" * 16, "a"))[0]}
    assert apply_retained(builder, retained) == ("/retained/1",)
    assert list(builder.view().acls.values()) == [Acl(2, "a", 4, "User:x", "*", 3, 3)]


def test_quotas_of_clients_are_taken_over_as_the_last_record_of_each_leaves_them(tmp_path: Path) -> None:
    def quota(key: str, value: float, *entity: tuple[str, str | None], remove: bool = False) -> kraft.ClientQuotaRecord:
        parts = [kraft.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        return kraft.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)

    both, default = (("user", "u"), ("client-id", "c")), (("client-id", None),)
    initial_metadata = take_over(
        tmp_path,
        batch(
            0,
            quota("producer_byte_rate", 1.0, *both),
            quota("consumer_byte_rate", 5.0, *both),
            quota("producer_byte_rate", 2.0, *both),
            quota("request_percentage", 9.5, *default),
            quota("consumer_byte_rate", 0.0, *both, remove=True),
            quota("connection_creation_rate", 7.0, ("ip", "10.0.0.1")),
            quota("connection_creation_rate", 0.0, ("ip", "10.0.0.1"), remove=True),
        ),
    )
    assert initial_metadata.image.quotas == {
        (("client-id", "c"), ("user", "u")): {"producer_byte_rate": 2.0},
        (("client-id", None),): {"request_percentage": 9.5},
    }
    assert initial_metadata.retained_records == ()


def test_records_of_the_quorum_and_of_brokers_are_not_kept(tmp_path: Path) -> None:
    registration = kraft.RegisterBrokerRecord(
        broker_id=1, incarnation_id=b"i" * 16, broker_epoch=40, end_points=[], features=[], rack="r", log_dirs=[]
    )
    change = kraft.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=40, fenced=-1)
    controller = kraft.RegisterControllerRecord(
        controller_id=1, incarnation_id=b"i" * 16, zk_migration_ready=False, end_points=[], features=[]
    )
    initial_metadata = take_over(tmp_path, batch(0, registration, change, controller, kraft.NoOpRecord()))
    assert initial_metadata.retained_records == ()
    assert initial_metadata.image.brokers[1].epoch == 40
    assert initial_metadata.image.brokers[1].fenced


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ((topic(), partition(replicas=(1, 2))), "only a cluster of one node"),
        ((topic(), partition(replicas=(2,))), "only a cluster of one node"),
        ((topic(), partition(1)), "misses partitions"),
        ((partition(),), "topic that is not there"),
        ((kraft.RemoveAccessControlEntryRecord(id=TOPIC_ID),), "removes an ACL that is not there"),
        ((kraft.RemoveTopicRecord(topic_id=TOPIC_ID),), "removes a topic that is not there"),
        ((topic(), kraft.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)), "changes a partition"),
        ((feature("metadata.version", 34),), "outside of 7-33"),
        ((b"\x05\x00\x00",), "cannot be read"),
        ((b"\x01\x02\x09",), "cannot be read"),
        ((b"\x01\x02\x00\x7f",), "cannot be read"),
    ],
)
def test_metadata_that_cannot_be_taken_over_is_refused(
    tmp_path: Path, records: tuple[DataRecord | bytes, ...], says: str
) -> None:
    with pytest.raises(StoreError, match=says):
        take_over(tmp_path, batch(0, *records))


def test_directory_stays_as_kafka_left_it(tmp_path: Path) -> None:
    log = batch(0, topic(), partition())
    take_over(tmp_path, log)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {f"{0:020}.log": log}


def test_retained_records_can_be_decoded_again(tmp_path: Path) -> None:
    initial_metadata = take_over(tmp_path, batch(0, feature("share.version", 1)))
    (value,) = initial_metadata.retained_records
    record, version = decode_metadata_record(value)
    assert isinstance(record, kraft.FeatureLevelRecord)
    assert (record.name, record.feature_level, version) == ("share.version", 1, 0)
