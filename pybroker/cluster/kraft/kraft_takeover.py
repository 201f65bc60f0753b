"""Taking over the metadata of an Apache Kafka node (KRaft, one node, broker and controller in one).

Owns: replaying Kafka's metadata records into a ``InitialMetadata``: topics with their ids, partitions, configs, the
next producer id, finalized features, ACLs, users of SCRAM, delegation tokens, quotas of clients.  What is not served
yet (features, kinds of records of the future) is kept as it is framed in the log, the newest record of each thing, none
dropped.  The first start of a version that serves it applies it (``apply_retained``).  Not owned: reading the files
(``kraft_log``), and the partitions' logs, which are Kafka's own format anyway.

Invariants: records of a transaction count when its end is there (KIP-868); a record that refers to something unknown
is an error, never guessed at.

Counterpart in Kafka: ``org.apache.kafka.image.MetadataDelta.replay``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pybroker.cluster.image.cluster_image import (
    NO_BROKER,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    ScramKey,
    TopicImage,
)
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.image.quota_entities import ENTITY_TYPES, QuotaEntity, entity_of
from pybroker.cluster.image.supported_features import METADATA_VERSION, SUPPORTED
from pybroker.cluster.kraft.kraft_log import read_values
from pybroker.cluster.store.initial_metadata import InitialMetadata
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.config.resources import TOPIC
from pybroker.security.acl_bindings import Acl
from pybroker.security.delegation_tokens import DelegationToken
from pybroker.security.scram import ScramCredential
from pybroker_protocol.data_records import decode_metadata_record
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages import records_metadata as kraft
from pybroker_protocol.schema import DataRecord

log = logging.getLogger(__name__)

_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_STATE_CHANGE: Final = -1

# What says nothing to a cluster without a KRaft quorum: the controllers' own registrations, migration from ZooKeeper.
_MEANINGLESS: Final = (
    kraft.NoOpRecord,
    kraft.ZkMigrationStateRecord,
    kraft.RegisterControllerRecord,
    kraft.UnregisterControllerRecord,
)


def read_kraft_metadata(log_dir: str, cluster_id: str, node_id: int) -> InitialMetadata:
    """What ``__cluster_metadata-0`` says about the cluster of one node; StoreError when it cannot be taken over."""
    replay = KraftReplay(cluster_id, node_id)
    try:
        for value in committed(read_values(log_dir)):
            replay.apply(value)
    except ProtocolError as error:
        raise StoreError(f"the metadata log in {log_dir} cannot be read: {error}") from error
    initial_metadata = replay.finish()
    topics = len(initial_metadata.image.topics_by_name)
    log.info("taking over cluster %s of Apache Kafka: %d topics", cluster_id, topics)
    return initial_metadata


def apply_retained(builder: ImageBuilder, retained: Mapping[str, bytes]) -> tuple[str, ...]:
    """Change the image by the records that an earlier takeover kept, as far as their kinds are served by now.

    Returns the keys of those that are applied, which need not be kept any longer.  StoreError when one cannot be read,
    or asks for what is not supported.
    """
    replay = KraftReplay(builder.view().cluster_id, NO_BROKER)
    for key, value in retained.items():
        try:
            replay.apply(value)
        except ProtocolError as error:
            raise StoreError(f"the metadata store holds nonsense at {key}: {error}") from error
    replay.put_into(builder)
    kept = set(replay.retained)
    return tuple(key for key, value in retained.items() if value not in kept)


def committed(values: Iterable[bytes]) -> Iterator[bytes]:
    """The records that count: those outside of transactions, and those of transactions that were ended."""
    transaction: list[bytes] | None = None
    for value in values:
        record, _ = decode_metadata_record(value)
        if isinstance(record, kraft.BeginTransactionRecord):
            transaction = []
        elif isinstance(record, kraft.EndTransactionRecord):
            yield from transaction or ()
            transaction = None
        elif isinstance(record, kraft.AbortTransactionRecord):
            transaction = None
        elif transaction is not None:
            transaction.append(value)
        else:
            yield value


class KraftReplay:
    """Applies metadata records one by one; ``finish`` gives what they amount to."""

    def __init__(self, cluster_id: str, node_id: int) -> None:
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._names: dict[bytes, str] = {}
        self._partitions: dict[bytes, dict[int, PartitionImage]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._acls: dict[bytes, Acl] = {}  # by Kafka's own ids
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._registration: BrokerRegistration | None = None
        self._next_producer_id = 0
        self._scram: dict[ScramKey, ScramCredential] = {}
        self._tokens: dict[str, DelegationToken] = {}
        self._retained: dict[Any, bytes] = {}
        self._unknown_count = 0
        self._apply: dict[type[DataRecord], Callable[[Any], None]] = {
            kraft.TopicRecord: self._topic,
            kraft.RemoveTopicRecord: self._remove_topic,
            kraft.PartitionRecord: self._partition,
            kraft.PartitionChangeRecord: self._partition_change,
            kraft.ClearElrRecord: self._clear_elr,
            kraft.ConfigRecord: self._config,
            kraft.ProducerIdsRecord: self._producer_ids,
            kraft.RegisterBrokerRecord: self._register_broker,
            kraft.AccessControlEntryRecord: self._acl,
            kraft.RemoveAccessControlEntryRecord: self._remove_acl,
            kraft.UserScramCredentialRecord: self._scram_credential,
            kraft.RemoveUserScramCredentialRecord: self._remove_scram_credential,
            kraft.DelegationTokenRecord: self._token,
            kraft.RemoveDelegationTokenRecord: self._remove_token,
        }

    def apply(self, value: bytes) -> None:
        """Apply one record, given as it is framed in the log."""
        record, _ = decode_metadata_record(value)
        if isinstance(record, kraft.FeatureLevelRecord):
            self._feature(record, value)
        elif isinstance(record, kraft.ClientQuotaRecord):
            self._quota(record, value)
        elif (apply := self._apply.get(type(record))) is not None:  # type: ignore[arg-type]
            apply(record)
        elif not isinstance(record, (*_MEANINGLESS, *_OF_BROKERS)):
            self._retain(record, value)

    def finish(self) -> InitialMetadata:
        """The cluster that was replayed; StoreError when it is not one of this node alone."""
        builder = ImageBuilder(ClusterImage(cluster_id=self._cluster_id))
        self.put_into(builder)
        return InitialMetadata(builder.view(), self.retained)

    @property
    def retained(self) -> tuple[bytes, ...]:
        """The records that are kept as they are."""
        return tuple(self._retained.values())

    def put_into(self, builder: ImageBuilder) -> None:
        """Put what the records said into an image."""
        for topic_id, name in self._names.items():
            builder.put_topic(self._topic_image(name, topic_id))
        for resource, overrides in self._configs.items():
            builder.put_overrides(resource, overrides)
        for acl in self._acls.values():
            builder.put_acl(acl)
        for entity, quotas in self._quotas.items():
            builder.put_quotas(entity, quotas)
        for feature, level in self._features.items():
            builder.put_feature(feature, level)
        if self._registration is not None:
            builder.put_broker(self._registration)
        for key, credential in self._scram.items():
            builder.put_scram_credential(key, credential)
        for token in self._tokens.values():
            builder.put_delegation_token(token)
        if self._next_producer_id:
            builder.set_next_producer_id(self._next_producer_id)

    def _topic_image(self, name: str, topic_id: bytes) -> TopicImage:
        by_index = self._partitions[topic_id]
        if sorted(by_index) != list(range(len(by_index))):
            raise StoreError(f"the metadata log misses partitions of topic {name}")
        for index, partition in by_index.items():
            if self._node_id not in partition.replicas or len(partition.replicas) != 1:
                raise StoreError(
                    f"partition {name}-{index} lies on the brokers {list(partition.replicas)}: only a cluster of one "
                    f"node can be taken over, and this is node {self._node_id}"
                )
        in_order = tuple(by_index[index] for index in range(len(by_index)))
        return TopicImage(name, topic_id, in_order, name in INTERNAL_TOPICS)

    # ------------------------------------------------------------------ topics

    def _topic(self, record: kraft.TopicRecord) -> None:
        self._names[record.topic_id] = record.name
        self._partitions[record.topic_id] = {}

    def _remove_topic(self, record: kraft.RemoveTopicRecord) -> None:
        name = self._names.pop(record.topic_id, None)
        if name is None:
            raise StoreError("the metadata log removes a topic that is not there")
        del self._partitions[record.topic_id]
        self._configs.pop((TOPIC, name), None)

    def _partition(self, record: kraft.PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = PartitionImage(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            record.leader_recovery_state,
        )

    def _partition_change(self, record: kraft.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        before = partitions.get(record.partition_id)
        if before is None:
            raise StoreError("the metadata log changes a partition that is not there")
        changes: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
        for field, value in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("removing_replicas", record.removing_replicas),
            ("adding_replicas", record.adding_replicas),
            ("directories", record.directories),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        ):
            if value is not None:
                changes[field] = tuple(value)
        if record.leader != _NO_LEADER_CHANGE:
            changes.update(leader=record.leader, leader_epoch=before.leader_epoch + 1)
        if record.leader_recovery_state != _NO_RECOVERY_STATE_CHANGE:
            changes["leader_recovery_state"] = record.leader_recovery_state
        partitions[record.partition_id] = before._replace(**changes)

    def _clear_elr(self, record: kraft.ClearElrRecord) -> None:
        """Of one topic, or of all for the empty name."""
        for topic_id, name in self._names.items():
            if record.topic_name in ("", name):
                partitions = self._partitions[topic_id]
                for index, partition in partitions.items():
                    partitions[index] = partition._replace(elr=(), last_known_elr=())

    def _partitions_of(self, topic_id: bytes) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            raise StoreError("the metadata log has a partition of a topic that is not there")
        return partitions

    # ------------------------------------------------------------------ everything else

    def _config(self, record: kraft.ConfigRecord) -> None:
        overrides = self._configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            overrides.pop(record.name, None)
        else:
            overrides[record.name] = record.value

    def _acl(self, record: kraft.AccessControlEntryRecord) -> None:
        self._acls[record.id] = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def _remove_acl(self, record: kraft.RemoveAccessControlEntryRecord) -> None:
        if self._acls.pop(record.id, None) is None:
            raise StoreError("the metadata log removes an ACL that is not there")

    def _quota(self, record: kraft.ClientQuotaRecord, value: bytes) -> None:
        """One of an unknown type of entity is kept as it is."""
        if any(part.entity_type not in ENTITY_TYPES for part in record.entity):
            self._retain(record, value)
            return
        quotas = self._quotas.setdefault(entity_of((part.entity_type, part.entity_name) for part in record.entity), {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value

    def _producer_ids(self, record: kraft.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _scram_credential(self, record: kraft.UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._scram[record.mechanism, record.name] = credential

    def _remove_scram_credential(self, record: kraft.RemoveUserScramCredentialRecord) -> None:
        self._scram.pop((record.mechanism, record.name), None)

    def _token(self, record: kraft.DelegationTokenRecord) -> None:
        """Its holder logs in here where ``delegation.token.secret.key`` is the same as there."""
        self._tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.expiration_timestamp,
            record.max_timestamp,
        )

    def _remove_token(self, record: kraft.RemoveDelegationTokenRecord) -> None:
        self._tokens.pop(record.token_id, None)

    def _register_broker(self, record: kraft.RegisterBrokerRecord) -> None:
        """Only this node's epoch counts: it registers anew in a moment, under the next one."""
        if record.broker_id == self._node_id:
            self._registration = BrokerRegistration(
                record.broker_id, record.broker_epoch, record.incarnation_id, {}, record.rack, fenced=True
            )

    def _feature(self, record: kraft.FeatureLevelRecord, value: bytes) -> None:
        """A feature that is not served must not be announced, but its level is kept."""
        name, level = record.name, record.feature_level
        supported = SUPPORTED.get(name)
        if supported is None:
            self._retain(record, value)
        elif level > supported.max_version or (name == METADATA_VERSION and level < supported.min_version):
            raise StoreError(f"{name} is {level}, which is outside of {supported.min_version}-{supported.max_version}")
        elif level == 0:
            self._features.pop(name, None)
        else:
            self._features[name] = level

    def _retain(self, record: DataRecord | None, value: bytes) -> None:
        """Keep the newest record of each thing; what is not known here is kept one by one."""
        identity, removed = _identity(record)
        if identity is None:
            self._unknown_count += 1
            identity = ("unknown", self._unknown_count)
        self._retained.pop(identity, None)
        if not removed:
            self._retained[identity] = value


_OF_BROKERS: Final = (
    kraft.UnregisterBrokerRecord,
    kraft.FenceBrokerRecord,
    kraft.UnfenceBrokerRecord,
    kraft.BrokerRegistrationChangeRecord,
)


def _identity(record: DataRecord | None) -> tuple[Any, bool]:
    """What a retained record is about, and whether it says that the thing is gone."""
    match record:
        case kraft.ClientQuotaRecord():
            entity = tuple(
                sorted((part.entity_type, part.entity_name is None, part.entity_name or "") for part in record.entity)
            )
            return ("quota", entity, record.key), record.remove
        case kraft.FeatureLevelRecord():
            return ("feature", record.name), record.feature_level == 0
        case _:
            return None, False
