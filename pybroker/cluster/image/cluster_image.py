"""The cluster as every broker sees it: one immutable image, and the deltas between images.

Owns: ``ClusterImage`` and the values inside it, ``ImageBuilder`` (makes the next image out of the last and
notes what changed) and ``ImageDelta``.  Owns no decision (``decisions/``) and no I/O (``controller``).

Invariants:
- An image and everything reachable from it never changes after ``ImageBuilder.build``.
- What a change does not touch is shared with the image before: a new topic copies two dicts of references.
- ``epoch`` grows with every change.
- ``topics_by_name`` and ``topics_by_id`` hold the same objects.

Counterpart in Kafka: ``org.apache.kafka.image.MetadataImage`` and ``MetadataDelta``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pybroker.cluster.image.quota_entities import QuotaEntity, QuotaValues

if TYPE_CHECKING:
    from pybroker.cluster.image.link_states import LinkState, MirroredTopic
    from pybroker.security.acl_bindings import Acl
    from pybroker.security.delegation_tokens import DelegationToken
    from pybroker.security.scram import ScramCredential

K = TypeVar("K")
V = TypeVar("V")

NO_LEADER: Final = -1
NO_BROKER: Final = -1

# What a partition's leader has yet to recover from: nothing, or an unclean election (KIP-704).
RECOVERED, RECOVERING = 0, 1

# Kafka's reserved directory ids (KIP-858): nobody has said yet where a replica lies (before and since the broker may be
# asked to choose), and a replica whose log dir is lost for good.
MIGRATING_DIRECTORY: Final = bytes(16)
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
UNCHOSEN_DIRECTORIES: Final = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)
LOST_DIRECTORY: Final = bytes(15) + b"\x02"

# Number of the SCRAM mechanism (``security.scram``) and name of the user.
ScramKey = tuple[int, str]
# Resource type (``config.resources``) and name; the name of the broker default, which holds for all brokers, is "".
ConfigKey = tuple[int, str]
Overrides = Mapping[str, str]
NO_OVERRIDES: Final[Overrides] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Where clients of one listener reach a broker; ``security_protocol`` has Kafka's numbers (0 is PLAINTEXT)."""

    host: str
    port: int
    security_protocol: int = 0


class BrokerRegistration(NamedTuple):
    """One registered broker; ``epoch`` grows with each registration, a fenced broker leads nothing.

    ``log_dirs`` has the ids of its log dirs that work, ``full_dirs`` of those without space, and
    ``cordoned_log_dirs`` of those that take no new replicas.
    """

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    full_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] = ()

    @property
    def has_free_space(self) -> bool:
        """Whether any of its log dirs has."""
        return not self.full_dirs or any(directory not in self.full_dirs for directory in self.log_dirs)

    @property
    def open_log_dirs(self) -> tuple[bytes, ...]:
        """Its log dirs that take new replicas (KIP-1066)."""
        if not self.cordoned_log_dirs:
            return self.log_dirs
        return tuple(each for each in self.log_dirs if each not in self.cordoned_log_dirs)

    @property
    def takes_replicas(self) -> bool:
        """Whether any log dir of its takes new replicas; a broker that named none is trusted, as in Kafka."""
        return not self.log_dirs or bool(self.open_log_dirs)

    @property
    def is_active(self) -> bool:
        """Whether it is alive, and does not want to stop (``ClusterControlManager.isActive``)."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_dir(self, directory: bytes) -> bool:
        """Whether a replica in ``directory`` can be served; a broker that named no log dirs is trusted, as in Kafka."""
        if directory in self.log_dirs or directory in UNCHOSEN_DIRECTORIES:
            return True
        return directory != LOST_DIRECTORY and not self.log_dirs


class PartitionImage(NamedTuple):
    """The state of one partition.  ``leader_epoch`` grows with each leader, ``partition_epoch`` with each change.

    ``directories`` has one log-dir id per replica, in the order of ``replicas``. ``elr`` and ``last_known_elr`` are
    KIP-966's eligible leader replicas; ``adding_replicas`` and ``removing_replicas`` are KIP-455's.
    ``leader_recovery_state`` is KIP-704's: RECOVERING from an unclean election until the leader says RECOVERED.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    @property
    def candidates(self) -> tuple[int, ...]:
        """Who may lead next: those in sync, else those eligible, else who led last (KIP-966)."""
        return self.isr or self.elr or self.last_known_elr

    def directory(self, broker_id: int) -> bytes:
        """The log dir in which a broker's replica lies; ValueError if it has none."""
        index = self.replicas.index(broker_id)
        return self.directories[index] if index < len(self.directories) else UNASSIGNED_DIRECTORY

    def in_directory(self, broker_id: int, directory: bytes) -> PartitionImage:
        """The partition with a broker's replica in ``directory``."""
        directories = tuple(directory if replica == broker_id else self.directory(replica) for replica in self.replicas)
        return self._replace(directories=directories, partition_epoch=self.partition_epoch + 1)


class TopicImage(NamedTuple):
    """One topic; ``partitions[n]`` is partition n."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    is_internal: bool = False


class ClusterImage:
    """The whole cluster at one epoch.  Read it, keep it, never change it."""

    __slots__ = (
        "acls",
        "brokers",
        "cluster_id",
        "configs",
        "controller_id",
        "delegation_tokens",
        "epoch",
        "features",
        "links",
        "mirrors",
        "next_producer_id",
        "quotas",
        "scram_credentials",
        "topics_by_id",
        "topics_by_name",
    )

    def __init__(
        self,
        *,
        epoch: int = 0,
        cluster_id: str = "",
        brokers: Mapping[int, BrokerRegistration] | None = None,
        controller_id: int = NO_BROKER,
        topics_by_name: Mapping[str, TopicImage] | None = None,
        topics_by_id: Mapping[bytes, TopicImage] | None = None,
        configs: Mapping[ConfigKey, Overrides] | None = None,
        features: Mapping[str, int] | None = None,
        next_producer_id: int = 0,
        acls: Mapping[bytes, Acl] | None = None,
        scram_credentials: Mapping[ScramKey, ScramCredential] | None = None,
        delegation_tokens: Mapping[str, DelegationToken] | None = None,
        quotas: Mapping[QuotaEntity, QuotaValues] | None = None,
        links: Mapping[str, LinkState] | None = None,
        mirrors: Mapping[str, MirroredTopic] | None = None,
    ) -> None:
        self.epoch = epoch
        self.cluster_id = cluster_id
        self.brokers: Mapping[int, BrokerRegistration] = {} if brokers is None else brokers
        self.controller_id = controller_id
        self.topics_by_name: Mapping[str, TopicImage] = {} if topics_by_name is None else topics_by_name
        self.topics_by_id: Mapping[bytes, TopicImage] = {} if topics_by_id is None else topics_by_id
        self.configs: Mapping[ConfigKey, Overrides] = {} if configs is None else configs
        self.features: Mapping[str, int] = {} if features is None else features
        self.next_producer_id = next_producer_id
        self.acls: Mapping[bytes, Acl] = {} if acls is None else acls  # by ``Acl.acl_id``
        self.scram_credentials: Mapping[ScramKey, ScramCredential] = scram_credentials or {}
        self.delegation_tokens: Mapping[str, DelegationToken] = delegation_tokens or {}  # by their ids
        self.quotas: Mapping[QuotaEntity, QuotaValues] = {} if quotas is None else quotas
        self.links: Mapping[str, LinkState] = {} if links is None else links
        self.mirrors: Mapping[str, MirroredTopic] = {} if mirrors is None else mirrors  # by their topics' names here

    def overrides(self, resource_type: int, name: str) -> Overrides:
        """The settings overridden for one resource (empty when there are none)."""
        return self.configs.get((resource_type, name), NO_OVERRIDES)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition's state, or None when the topic or the index does not exist."""
        image = self.topics_by_name.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def replica_places(self, broker_id: int) -> Callable[[str, int], tuple[bytes, bytes | None] | None]:
        """Where the broker's replicas lie, as a function from a topic's name and an index.

        It gives the topic's id and the log dir, None before one was chosen; None as a whole for what is no replica.
        """

        def place(topic: str, index: int) -> tuple[bytes, bytes | None] | None:
            image, partition = self.topics_by_name.get(topic), self.partition(topic, index)
            if image is None or partition is None or broker_id not in partition.replicas:
                return None
            directory = partition.directory(broker_id)
            return image.topic_id, None if directory in UNCHOSEN_DIRECTORIES else directory

        return place


class ImageDelta(NamedTuple):
    """What changed from one image to the next; the first image arrives with everything in it as created.

    A topic that was deleted and created anew appears in both ``topics_deleted`` and ``topics_created`` (with
    different ids).  ``topics_changed`` holds pairs (before, after) of the same topic id.
    ``configs_changed`` names resources, ``acls_changed`` and ``tokens_changed`` have ids; read what they are now from
    the image.
    """

    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    topics_changed: tuple[tuple[TopicImage, TopicImage], ...] = ()
    configs_changed: tuple[ConfigKey, ...] = ()
    brokers_changed: tuple[int, ...] = ()
    acls_changed: tuple[bytes, ...] = ()
    features_changed: bool = False
    controller_changed: bool = False
    scram_changed: tuple[ScramKey, ...] = ()
    quotas_changed: tuple[QuotaEntity, ...] = ()
    tokens_changed: tuple[str, ...] = ()
    links_changed: tuple[str, ...] = ()
    mirrors_changed: tuple[str, ...] = ()


def first_delta(image: ClusterImage) -> ImageDelta:
    """The delta from nothing to ``image``."""
    return ImageDelta(
        topics_created=tuple(image.topics_by_name.values()),
        configs_changed=tuple(image.configs),
        brokers_changed=tuple(image.brokers),
        acls_changed=tuple(image.acls),
        features_changed=True,
        controller_changed=True,
        scram_changed=tuple(image.scram_credentials),
        quotas_changed=tuple(image.quotas),
        tokens_changed=tuple(image.delegation_tokens),
        links_changed=tuple(image.links),
        mirrors_changed=tuple(image.mirrors),
    )


def _differences(now: Mapping[K, V], target: Mapping[K, V]) -> Iterator[tuple[K, V | None]]:
    """What has another value in ``target``; None for what is not there."""
    for key in {**now, **target}:
        if now.get(key) != target.get(key):
            yield key, target.get(key)


class ImageBuilder:
    """Makes the next image out of ``base``: dicts are copied at their first change, values are shared.

    ``view()`` is the image so far, for decisions that build on changes that are not committed yet; it is valid
    until the next change.
    """

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._fields: dict[str, Any] = {}
        # Keys written so far, by field and in order: what changed is found without a look at the 10,000 other topics.
        self._touched: dict[str, dict[Any, None]] = {}
        self._replicas_per_directory: Counter[bytes] | None = None

    @property
    def replicas_per_directory(self) -> Counter[bytes]:
        """How many replicas lie in each log dir: counted at first need, and kept up by the code that places more."""
        counts = self._replicas_per_directory
        if counts is None:
            topics = self.view().topics_by_name.values()
            counts = Counter(
                directory for topic in topics for partition in topic.partitions for directory in partition.directories
            )
            self._replicas_per_directory = counts
        return counts

    def _own(self, field: str, key: Any) -> dict[Any, Any]:
        self._touched.setdefault(field, {})[key] = None
        owned: dict[Any, Any] | None = self._fields.get(field)
        if owned is None:
            owned = self._fields[field] = dict(getattr(self._base, field))
        return owned

    def put_topic(self, topic: TopicImage) -> None:
        """Create the topic, or replace the one with its name."""
        by_name = self._own("topics_by_name", topic.name)
        before = by_name.get(topic.name)
        if before is not None and before.topic_id != topic.topic_id:
            del self._own("topics_by_id", before.topic_id)[before.topic_id]
        by_name[topic.name] = self._own("topics_by_id", topic.topic_id)[topic.topic_id] = topic

    def remove_topic(self, topic_id: bytes) -> None:
        """Remove a topic; its overrides go by ``put_overrides``, its record of a link by ``remove_mirror``."""
        topic = self._own("topics_by_id", topic_id).pop(topic_id)
        del self._own("topics_by_name", topic.name)[topic.name]

    def put_overrides(self, resource: ConfigKey, overrides: Overrides) -> None:
        """Set all overrides of one resource; none removes the resource."""
        configs = self._own("configs", resource)
        if overrides:
            configs[resource] = overrides
        else:
            configs.pop(resource, None)

    def put_quotas(self, entity: QuotaEntity, values: QuotaValues) -> None:
        """Set all quotas of one entity; none removes the entity."""
        quotas = self._own("quotas", entity)
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)

    def put_broker(self, broker: BrokerRegistration) -> None:
        self._own("brokers", broker.broker_id)[broker.broker_id] = broker

    def remove_broker(self, broker_id: int) -> None:
        self._own("brokers", broker_id).pop(broker_id, None)

    def put_acl(self, acl: Acl) -> None:
        """Add an ACL, or keep the one that says the same."""
        acl_id = acl.acl_id()
        if acl_id not in self._fields.get("acls", self._base.acls):
            self._own("acls", acl_id)[acl_id] = acl

    def remove_acl(self, acl_id: bytes) -> None:
        self._own("acls", acl_id).pop(acl_id, None)

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Finalize these, and no others."""
        for name in set(self.view().features) - set(levels):
            self.remove_feature(name)
        for name, level in levels.items():
            self.put_feature(name, level)

    def put_feature(self, name: str, level: int) -> None:
        """Finalize a feature at ``level``; level 0 is kept, because 0 may be a finalized level (kraft.version)."""
        self._own("features", name)[name] = level

    def remove_feature(self, name: str) -> None:
        self._own("features", name).pop(name, None)

    def put_scram_credential(self, key: ScramKey, credential: ScramCredential) -> None:
        """Set what one mechanism knows of a user."""
        self._own("scram_credentials", key)[key] = credential

    def remove_scram_credential(self, key: ScramKey) -> None:
        self._own("scram_credentials", key).pop(key, None)

    def put_delegation_token(self, token: DelegationToken) -> None:
        """Add a token, or replace the one with its id."""
        self._own("delegation_tokens", token.token_id)[token.token_id] = token

    def remove_delegation_token(self, token_id: str) -> None:
        self._own("delegation_tokens", token_id).pop(token_id, None)

    def put_link(self, link: str, state: LinkState) -> None:
        self._own("links", link)[link] = state

    def remove_link(self, link: str) -> None:
        self._own("links", link).pop(link, None)

    def put_mirror(self, name: str, mirror: MirroredTopic) -> None:
        """Say how the topic of that name stands to its source."""
        self._own("mirrors", name)[name] = mirror

    def remove_mirror(self, name: str) -> None:
        self._own("mirrors", name).pop(name, None)

    def set_controller(self, controller_id: int) -> None:
        self._fields["controller_id"] = controller_id

    def set_cluster_id(self, cluster_id: str) -> None:
        self._fields["cluster_id"] = cluster_id

    def set_next_producer_id(self, next_producer_id: int) -> None:
        self._fields["next_producer_id"] = next_producer_id

    def become(self, target: ClusterImage) -> None:
        """Change whatever is not as in ``target``; what is equal stays the same object."""
        now = self.view()
        for topic_id in set(now.topics_by_id) - set(target.topics_by_id):
            self.remove_topic(topic_id)
        for name, topic in target.topics_by_name.items():
            if now.topics_by_name.get(name) != topic:
                self.put_topic(topic)
        for resource, overrides in _differences(now.configs, target.configs):
            self.put_overrides(resource, overrides or NO_OVERRIDES)
        for entity, values in _differences(now.quotas, target.quotas):
            self.put_quotas(entity, values or {})
        for broker_id, broker in _differences(now.brokers, target.brokers):
            self.remove_broker(broker_id) if broker is None else self.put_broker(broker)
        for acl_id, acl in _differences(now.acls, target.acls):
            self.remove_acl(acl_id) if acl is None else self.put_acl(acl)
        if now.features != target.features:
            self.set_features(target.features)
        for key, credential in _differences(now.scram_credentials, target.scram_credentials):
            self.remove_scram_credential(key) if credential is None else self.put_scram_credential(key, credential)
        for token_id, token in _differences(now.delegation_tokens, target.delegation_tokens):
            self.remove_delegation_token(token_id) if token is None else self.put_delegation_token(token)
        for link, state in _differences(now.links, target.links):
            self.remove_link(link) if state is None else self.put_link(link, state)
        for name, mirror in _differences(now.mirrors, target.mirrors):
            self.remove_mirror(name) if mirror is None else self.put_mirror(name, mirror)
        for field in ("controller_id", "next_producer_id", "cluster_id"):
            if getattr(now, field) != getattr(target, field):
                self._fields[field] = getattr(target, field)

    @property
    def has_changes(self) -> bool:
        """Whether anything was written, be it what was there before."""
        return bool(self._fields)

    def view(self) -> ClusterImage:
        """The image so far, at the epoch of the base."""
        return self._image(self._base.epoch)

    def touched_count(self) -> int:
        """How many things were written so far: topics (twice), brokers, resources, ACLs, features."""
        return sum(map(len, self._touched.values()))

    def delta(self) -> ImageDelta:
        """What changed since ``base``."""
        return ImageDelta(
            *self._topic_changes(),
            configs_changed=tuple(self._changed_keys("configs")),
            brokers_changed=tuple(self._changed_keys("brokers")),
            acls_changed=tuple(self._changed_keys("acls")),
            features_changed=bool(self._changed_keys("features")),
            controller_changed="controller_id" in self._fields,
            scram_changed=tuple(self._changed_keys("scram_credentials")),
            quotas_changed=tuple(self._changed_keys("quotas")),
            tokens_changed=tuple(self._changed_keys("delegation_tokens")),
            links_changed=tuple(self._changed_keys("links")),
            mirrors_changed=tuple(self._changed_keys("mirrors")),
        )

    def build(self, epoch: int) -> tuple[ClusterImage, ImageDelta]:
        """The new image at ``epoch`` and what changed since ``base``; the builder is spent."""
        return self._image(epoch), self.delta()

    def _image(self, epoch: int) -> ClusterImage:
        base = self._base
        fields = {name: getattr(base, name) for name in ClusterImage.__slots__}
        fields.update(self._fields, epoch=epoch)
        return ClusterImage(**fields)

    def _topic_changes(
        self,
    ) -> tuple[tuple[TopicImage, ...], tuple[TopicImage, ...], tuple[tuple[TopicImage, TopicImage], ...]]:
        created, deleted, changed = [], [], []
        before, after = self._base.topics_by_id, self._fields.get("topics_by_id", self._base.topics_by_id)
        for topic_id in self._changed_keys("topics_by_id"):
            old, new = before.get(topic_id), after.get(topic_id)
            if old is None:
                created.append(new)
            elif new is None:
                deleted.append(old)
            else:
                changed.append((old, new))
        return tuple(created), tuple(deleted), tuple(changed)

    def _changed_keys(self, field: str) -> list[Any]:
        """Written keys whose value is not the same object as in the base."""
        before: Mapping[Any, Any] = getattr(self._base, field)
        after: Mapping[Any, Any] = self._fields.get(field, before)
        return [key for key in self._touched.get(field, ()) if before.get(key) is not after.get(key)]
