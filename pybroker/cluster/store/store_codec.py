"""How the cluster image lies in the metadata store: which keys, and what their values hold.

Owns: the paths, the JSON of each value, and both directions: ``decode`` (keys to image) and ``encode`` (what changed
between two images to puts and deletes).  Owns no I/O and no decision, and not the values of what says who is who
(``store_security``).

Keys::

    /cluster                          {"clusterId": ...}
    /secret                           {"secret": ...}, by which brokers that share the store know each other
    /controller                       {"brokerId": ..., "brokerEpoch": ..., "controllerEpoch": ...}
    /brokers/<id>                     one registration
    /features                         finalized levels by name
    /producer-ids                     {"next": ...}
    /configs/<resource type>/<name>   overrides by name; names are percent-encoded
    /scram/<mechanism>/<user>         what is known of a user's password; names are percent-encoded
    /tokens/<id>                      one delegation token
    /acls/<id>                        one ACL
    /links/<name>                     what is known of a cluster link beside its settings (``store_links``)
    /mirrors/<topic>                  how a topic that is mirrored stands to its source
    /topics/<name>                    {"id": ...}
    /partitions/<topic id>/<index>    the state of one partition
    /retained/<number>                a record of Kafka's metadata log whose kind is not served yet, framed as there
    /live/<id>                        ephemeral: which process of a broker is alive, and the log dirs that it holds

A partition has a key of its own so that a change of its in-sync replicas writes little.  Only the holder of the
controller key writes; followers apply what was written (``apply_changes``).  Values are JSON, short and readable by
hand, because this is what an operator opens when something is wrong.  Ids are base64 as Kafka prints them.

Counterpart in Kafka: the records of ``common/metadata`` (and, before KRaft, the znodes of ``kafka.zk.ZkData``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pybroker.cluster.image.cluster_image import (
    NO_BROKER,
    BrokerRegistration,
    ClusterImage,
    ConfigKey,
    Endpoint,
    ImageBuilder,
    ImageDelta,
    PartitionImage,
    TopicImage,
    first_delta,
)
from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.cluster.store import store_security
from pybroker.cluster.store.initial_metadata import InitialMetadata
from pybroker.cluster.store.metadata_store import Changes, Entry, StoreError
from pybroker.cluster.store.store_names import LINKS, MIRRORS, QUOTAS, entity_of_key, quota_key, quoted, unquoted
from pybroker.cluster.store.store_security import ACLS, SCRAM, TOKENS
from pybroker_protocol.uuids import uuid_bytes, uuid_text

K = TypeVar("K")
V = TypeVar("V")

CLUSTER: Final = "/cluster"
SECRET: Final = "/secret"
CONTROLLER: Final = "/controller"
BROKERS: Final = "/brokers/"
FEATURES: Final = "/features"
PRODUCER_IDS: Final = "/producer-ids"
CONFIGS: Final = "/configs/"
TOPICS: Final = "/topics/"
PARTITIONS: Final = "/partitions/"
RETAINED: Final = "/retained/"
LIVE: Final = "/live/"
# What an image is made of; other keys of the store are not.
_NO_IMAGE: Final = (RETAINED, LIVE, SECRET)

_to_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_from_json: Final = json.loads


class ControllerKey(NamedTuple):
    """Who decides: the holder's id and epoch, and an epoch that grows with each holder."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int


def next_holder(before: ControllerKey | None, broker_id: int, broker_epoch: int) -> ControllerKey:
    """The key of a broker that takes it from ``before``, or is the first to have it."""
    return ControllerKey(broker_id, broker_epoch, 1 if before is None else before.controller_epoch + 1)


def partition_key(topic_id: bytes, index: int) -> str:
    return f"{PARTITIONS}{uuid_text(topic_id)}/{index}"


def config_key(resource: ConfigKey) -> str:
    resource_type, name = resource
    return f"{CONFIGS}{resource_type}/{quoted(name)}"


def encode_secret(secret: bytes) -> bytes:
    return _to_json({"secret": secret.hex()}).encode()


def decode_secret(value: bytes) -> bytes:
    return bytes.fromhex(_from_json(value)["secret"])


class LiveBroker(NamedTuple):
    """A broker's process that has a session in the store, with the ids of the log dirs that it has locked.

    ``sends_heartbeats``: the active controller may take it for cut off when none comes; older versions send none.
    """

    incarnation_id: bytes
    directories: tuple[bytes, ...]
    sends_heartbeats: bool = False


def live_key(broker_id: int) -> str:
    return f"{LIVE}{broker_id}"


def encode_live(live: LiveBroker) -> bytes:
    directories = [uuid_text(directory) for directory in live.directories]
    fields: dict[str, Any] = {"incarnation": uuid_text(live.incarnation_id), "directories": directories}
    if live.sends_heartbeats:
        fields["heartbeats"] = True
    return _to_json(fields).encode()


def decode_live(entries: Mapping[str, bytes]) -> dict[int, LiveBroker]:
    """The live brokers by id, out of the ephemeral keys."""
    live = {}
    for key, value in entries.items():
        fields = _from_json(value)
        directories = tuple(uuid_bytes(text) for text in fields["directories"])
        incarnation_id, sends_heartbeats = uuid_bytes(fields["incarnation"]), fields.get("heartbeats", False)
        live[int(key[len(LIVE) :])] = LiveBroker(incarnation_id, directories, sends_heartbeats)
    return live


def encode_controller(key: ControllerKey) -> bytes:
    value = {"brokerId": key.broker_id, "brokerEpoch": key.broker_epoch, "controllerEpoch": key.controller_epoch}
    return _to_json(value).encode()


def decode_controller(value: bytes) -> ControllerKey:
    fields = _from_json(value)
    return ControllerKey(fields["brokerId"], fields["brokerEpoch"], fields["controllerEpoch"])


# ---------------------------------------------------------------- image to keys


class Writes(NamedTuple):
    """The puts and deletes of a transaction."""

    puts: dict[str, bytes]
    deletes: tuple[str, ...]


def encode_retained(records: Sequence[bytes]) -> dict[str, bytes]:
    """Puts that keep records of Kafka's metadata log, in their order."""
    return {f"{RETAINED}{number:08}": record for number, record in enumerate(records)}


def retained(entries: Mapping[str, Entry]) -> dict[str, bytes]:
    """The records that ``encode_retained`` put, by their keys, in their order."""
    return {key: entry.value for key, entry in entries.items() if key.startswith(RETAINED)}


def encode_initial_metadata(initial_metadata: InitialMetadata) -> dict[str, bytes]:
    """The first keys of a new store."""
    first = encode(ClusterImage(), initial_metadata.image, first_delta(initial_metadata.image))
    return {**encode_retained(initial_metadata.retained_records), **first.puts}


def encode(before: ClusterImage, after: ClusterImage, delta: ImageDelta) -> Writes:
    """The puts and deletes that turn the keys of ``before`` into those of ``after``."""
    steps = encode_in_steps(before, after, delta)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            writes: Writes = end.value
            return writes


def encode_in_steps(before: ClusterImage, after: ClusterImage, delta: ImageDelta) -> Generator[None, None, Writes]:
    """``encode`` with a pause after each topic, partition and resource."""
    puts: dict[str, bytes] = {}
    deletes: list[str] = []
    for topic in delta.topics_deleted:
        deletes.append(TOPICS + topic.name)
        deletes.extend(partition_key(topic.topic_id, index) for index in range(len(topic.partitions)))
        yield
    for topic in delta.topics_created:
        puts[TOPICS + topic.name] = _to_json({"id": uuid_text(topic.topic_id)}).encode()
        yield from _put_partitions(puts, topic, ())
    for old, new in delta.topics_changed:
        yield from _put_partitions(puts, new, old.partitions)
    for resource in delta.configs_changed:
        _put_changed(puts, deletes, (resource,), after.configs, config_key, dict)
        yield
    _put_others(puts, deletes, before, after, delta)
    # A key that is deleted and put (a topic created anew in the same transaction) is only put.
    return Writes(puts, tuple(key for key in deletes if key not in puts))


def _put_others(
    puts: dict[str, bytes], deletes: list[str], before: ClusterImage, after: ClusterImage, delta: ImageDelta
) -> None:
    """What there is few of."""
    put = partial(_put_changed, puts, deletes)
    put(delta.brokers_changed, after.brokers, lambda broker_id: f"{BROKERS}{broker_id}", _broker_fields)
    put(delta.acls_changed, after.acls, store_security.acl_key, store_security.acl_fields)
    put(delta.scram_changed, after.scram_credentials, store_security.scram_key, store_security.credential_fields)
    put(delta.tokens_changed, after.delegation_tokens, store_security.token_key, store_security.token_fields)
    put(delta.quotas_changed, after.quotas, quota_key, dict)
    if delta.links_changed or delta.mirrors_changed:
        from pybroker.cluster.store import store_links

        put(delta.links_changed, after.links, store_links.link_key, store_links.link_fields)
        put(delta.mirrors_changed, after.mirrors, store_links.mirror_key, store_links.mirror_fields)
    if delta.features_changed:
        puts[FEATURES] = _to_json(dict(after.features)).encode()
    if before.next_producer_id != after.next_producer_id:
        puts[PRODUCER_IDS] = _to_json({"next": after.next_producer_id}).encode()
    if before.cluster_id != after.cluster_id:
        puts[CLUSTER] = _to_json({"clusterId": after.cluster_id}).encode()


def _put_changed(
    puts: dict[str, bytes],
    deletes: list[str],
    changed: Iterable[K],
    after: Mapping[K, V],
    key_of: Callable[[K], str],
    fields_of: Callable[[V], Any],
) -> None:
    """What is there after the change is put, what is not is deleted."""
    for each in changed:
        value = after.get(each)
        if value is None:
            deletes.append(key_of(each))
        else:
            puts[key_of(each)] = _to_json(fields_of(value)).encode()


def _put_partitions(puts: dict[str, bytes], topic: TopicImage, before: tuple[PartitionImage, ...]) -> Iterator[None]:
    prefix = f"{PARTITIONS}{uuid_text(topic.topic_id)}/"
    for index, partition in enumerate(topic.partitions):
        if index >= len(before) or before[index] is not partition:
            puts[f"{prefix}{index}"] = _to_json(_partition_fields(partition)).encode()
            yield


def _partition_fields(partition: PartitionImage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "replicas": partition.replicas,
        "isr": partition.isr,
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
    }
    if partition.directories:
        fields["directories"] = [uuid_text(directory) for directory in partition.directories]
    for name, value in (
        ("elr", partition.elr),
        ("lastKnownElr", partition.last_known_elr),
        ("adding", partition.adding_replicas),
        ("removing", partition.removing_replicas),
        ("recovery", partition.leader_recovery_state),
    ):
        if value:
            fields[name] = value
    return fields


def _broker_fields(broker: BrokerRegistration) -> dict[str, Any]:
    return {
        "epoch": broker.epoch,
        "incarnation": uuid_text(broker.incarnation_id),
        "endpoints": {name: list(endpoint) for name, endpoint in broker.endpoints.items()},
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "logDirs": [uuid_text(log_dir) for log_dir in broker.log_dirs],
        # Left out where there is none, as it was before there were any.
        **({"fullDirs": [uuid_text(log_dir) for log_dir in broker.full_dirs]} if broker.full_dirs else {}),
        **({"cordoned": [uuid_text(each) for each in broker.cordoned_log_dirs]} if broker.cordoned_log_dirs else {}),
    }


# ---------------------------------------------------------------- keys to image


def decode(entries: Mapping[str, Entry]) -> ClusterImage:
    """The image that the keys describe, at epoch 0; StoreError when a value makes no sense."""
    key = ""
    topics: dict[str, bytes] = {}
    partitions: dict[bytes, dict[int, PartitionImage]] = {}
    kinds = ("brokers", "configs", "features", "acls", "scram_credentials", "delegation_tokens", "quotas", "links")
    image: dict[str, Any] = {kind: {} for kind in (*kinds, "mirrors")}
    image["controller_id"] = NO_BROKER
    try:
        for key, entry in entries.items():
            if key.startswith(PARTITIONS):
                topic_id, index = key[len(PARTITIONS) :].split("/")
                partitions.setdefault(uuid_bytes(topic_id), {})[int(index)] = _partition(_from_json(entry.value))
            elif key.startswith(TOPICS):
                topics[key[len(TOPICS) :]] = uuid_bytes(_from_json(entry.value)["id"])
            elif not key.startswith(_NO_IMAGE):
                _decode_other(key, entry.value, image)
        by_name = {name: _topic(name, topic_id, partitions.get(topic_id, {})) for name, topic_id in topics.items()}
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"the metadata store holds nonsense at {key}: {error!r}") from error
    by_id = {topic.topic_id: topic for topic in by_name.values()}
    return ClusterImage(topics_by_name=by_name, topics_by_id=by_id, **image)


def _decode_other(key: str, value: bytes, image: dict[str, Any]) -> None:
    fields = _from_json(value)
    if key.startswith(CONFIGS):
        image["configs"][_resource(key)] = fields
    elif key.startswith(SCRAM):
        image["scram_credentials"][store_security.scram_of_key(key)] = store_security.credential(fields)
    elif key.startswith(TOKENS):
        token = store_security.token(key, fields)
        image["delegation_tokens"][token.token_id] = token
    elif key.startswith(QUOTAS):
        image["quotas"][entity_of_key(key)] = fields
    elif key.startswith(BROKERS):
        broker_id = int(key[len(BROKERS) :])
        image["brokers"][broker_id] = _broker(broker_id, fields)
    elif key.startswith(ACLS):
        acl = store_security.acl(fields)
        image["acls"][acl.acl_id()] = acl
    elif key.startswith((LINKS, MIRRORS)):
        from pybroker.cluster.store import store_links

        kind, name, value_of_link = store_links.decoded(key, fields)
        image[kind][name] = value_of_link
    elif key == FEATURES:
        image["features"] = fields
    elif key == PRODUCER_IDS:
        image["next_producer_id"] = fields["next"]
    elif key == CLUSTER:
        image["cluster_id"] = fields["clusterId"]
    elif key == CONTROLLER:
        image["controller_id"] = fields["brokerId"]


def apply_changes(builder: ImageBuilder, changes: Changes) -> None:
    """Make of the builder's image what the store holds after ``changes``; StoreError when a value makes no sense.

    Changes that the image has already, in whole or in part, may be among them: a put says all of its key.
    """
    key = ""
    partitions: dict[bytes, dict[int, PartitionImage]] = {}
    created: dict[str, bytes] = {}
    try:
        for key in changes.deletes:
            _apply_delete(builder, key)
        for key, value in changes.puts.items():
            if key.startswith(PARTITIONS):
                id_text, index = key[len(PARTITIONS) :].split("/")
                partitions.setdefault(uuid_bytes(id_text), {})[int(index)] = _partition(_from_json(value))
            elif key.startswith(TOPICS):
                created[key[len(TOPICS) :]] = uuid_bytes(_from_json(value)["id"])
            elif not key.startswith(_NO_IMAGE):
                _apply_put(builder, key, value)
        image = builder.view()
        for name, topic_id in created.items():
            if topic_id not in image.topics_by_id:
                builder.put_topic(_topic(name, topic_id, partitions.pop(topic_id, {})))
        for changed_id, changed in partitions.items():
            topic = image.topics_by_id.get(changed_id)
            if topic is not None:  # else it was deleted since, and what was written of it before goes with that
                by_index = {**dict(enumerate(topic.partitions)), **changed}
                builder.put_topic(_topic(topic.name, changed_id, by_index))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"the metadata store was given nonsense at {key}: {error!r}") from error


def _apply_delete(builder: ImageBuilder, key: str) -> None:
    """Partitions go with their topic."""
    if key.startswith(TOPICS):
        topic = builder.view().topics_by_name.get(key[len(TOPICS) :])
        if topic is not None:
            builder.remove_topic(topic.topic_id)
    elif key.startswith(CONFIGS):
        builder.put_overrides(_resource(key), {})
    elif key.startswith(SCRAM):
        builder.remove_scram_credential(store_security.scram_of_key(key))
    elif key.startswith(TOKENS):
        builder.remove_delegation_token(store_security.token_id_of_key(key))
    elif key.startswith(QUOTAS):
        builder.put_quotas(entity_of_key(key), {})
    elif key.startswith(BROKERS):
        builder.remove_broker(int(key[len(BROKERS) :]))
    elif key.startswith(ACLS):
        builder.remove_acl(uuid_bytes(key[len(ACLS) :]))
    elif key.startswith(LINKS):
        builder.remove_link(unquoted(key[len(LINKS) :]))
    elif key.startswith(MIRRORS):
        builder.remove_mirror(key[len(MIRRORS) :])


def _apply_put(builder: ImageBuilder, key: str, value: bytes) -> None:
    fields = _from_json(value)
    if key.startswith(CONFIGS):
        builder.put_overrides(_resource(key), fields)
    elif key.startswith(SCRAM):
        builder.put_scram_credential(store_security.scram_of_key(key), store_security.credential(fields))
    elif key.startswith(TOKENS):
        builder.put_delegation_token(store_security.token(key, fields))
    elif key.startswith(QUOTAS):
        builder.put_quotas(entity_of_key(key), fields)
    elif key.startswith(BROKERS):
        broker_id = int(key[len(BROKERS) :])
        builder.put_broker(_broker(broker_id, fields))
    elif key.startswith(ACLS):
        builder.put_acl(store_security.acl(fields))
    elif key.startswith((LINKS, MIRRORS)):
        from pybroker.cluster.store import store_links

        store_links.put_into(builder, key, fields)
    elif key == FEATURES:
        builder.set_features(fields)
    elif key == PRODUCER_IDS:
        builder.set_next_producer_id(fields["next"])
    elif key == CLUSTER:
        builder.set_cluster_id(fields["clusterId"])
    elif key == CONTROLLER:
        builder.set_controller(fields["brokerId"])


def _resource(key: str) -> ConfigKey:
    resource_type, name = key[len(CONFIGS) :].split("/")
    return int(resource_type), unquoted(name)


def _topic(name: str, topic_id: bytes, partitions: dict[int, PartitionImage]) -> TopicImage:
    in_order = tuple(partitions[index] for index in range(len(partitions)))
    return TopicImage(name, topic_id, in_order, name in INTERNAL_TOPICS)


def _partition(fields: dict[str, Any]) -> PartitionImage:
    return PartitionImage(
        tuple(fields["replicas"]),
        tuple(fields["isr"]),
        fields["leader"],
        fields["leaderEpoch"],
        fields["partitionEpoch"],
        tuple([uuid_bytes(text) for text in fields.get("directories", ())]),
        tuple(fields.get("elr", ())),
        tuple(fields.get("lastKnownElr", ())),
        tuple(fields.get("adding", ())),
        tuple(fields.get("removing", ())),
        fields.get("recovery", 0),
    )


def _broker(broker_id: int, fields: dict[str, Any]) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id,
        fields["epoch"],
        uuid_bytes(fields["incarnation"]),
        {name: Endpoint(*endpoint) for name, endpoint in fields["endpoints"].items()},
        fields["rack"],
        fields["fenced"],
        fields["inControlledShutdown"],
        tuple(uuid_bytes(text) for text in fields["logDirs"]),
        tuple(uuid_bytes(text) for text in fields.get("fullDirs", ())),
        tuple(uuid_bytes(text) for text in fields.get("cordoned", ())),
    )
