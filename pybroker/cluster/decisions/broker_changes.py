"""Registering a broker, giving it its partitions back, and taking from it what it cannot serve, or has no room for.

Invariants:
- A broker leads no partition whose replica lies in a log dir that it did not register (KIP-858).
- Once it has registered, every replica of it has a log dir.
- A fenced broker, and one in controlled shutdown, leads nothing.

Counterpart in Kafka: ``ClusterControlManager.registerBroker``, ``BrokerHeartbeatManager``, and
``ReplicationControlManager.handleBrokerFenced``, ``handleBrokerInControlledShutdown``, ``handleUncleanBrokerShutdown``,
``handleBrokerUnregistered``, ``handleDirectoriesOffline`` and ``handleAssignReplicasToDirs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping

from pybroker.cluster.decisions.operations import FoundReplicas, Outcome
from pybroker.cluster.decisions.partition_changes import (
    led_by,
    put_partitions,
    relieved,
    take_replicas_offline,
    with_leader,
    without_replica,
)
from pybroker.cluster.decisions.placement import choose_directory
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    UNCHOSEN_DIRECTORIES,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
)
from pybroker.cluster.image.supported_features import (
    CONTROLLERS_ARE_UNREGISTERED,
    CORDONED_LOG_DIRS_LEVEL,
    METADATA_VERSION,
)
from pybroker_protocol.errors import ErrorCode


def register_broker(
    builder: ImageBuilder, registration: BrokerRegistration, found: FoundReplicas, *, clean_shutdown: bool
) -> Counter[bytes]:
    """Register under the next broker epoch, and elect this broker where it may lead and no other does.

    ``found`` says where the broker found replicas for which the image names another log dir, or none. After an unclean
    shutdown the end of its log may be lost. Where others are in sync, it is so no more. Where it is the last, the
    leader epoch grows, so that what is written in that place next does not pass for what was there before. Returns how
    many replicas of the broker each log dir has that it did not register.
    """
    before = builder.view().brokers.get(registration.broker_id)
    # The store's revisions grow at least as fast as epochs: whoever was unregistered gets none that it had before.
    epoch = builder.view().epoch if before is None else before.epoch + 1
    is_same_process = before is not None and before.incarnation_id == registration.incarnation_id
    still_full = before.full_dirs if before is not None and is_same_process else ()
    full_dirs = tuple(directory for directory in still_full if directory in registration.log_dirs)
    # No registration says which log dirs are cordoned: until the broker tells, those of its life before are.
    cordoned = () if before is None else before.cordoned_log_dirs
    registration = registration._replace(epoch=epoch, full_dirs=full_dirs, cordoned_log_dirs=cordoned)
    builder.put_broker(registration)
    image = builder.view()
    broker_id = registration.broker_id
    missing: Counter[bytes] = Counter()
    for topic in list(image.topics_by_name.values()):
        partitions = []
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                directory = found.get((topic.topic_id, index)) or partition.directory(broker_id)
                placed = _placed(builder, partition, registration, directory)
                if registration.has_online_dir(placed.directory(broker_id)):
                    rejoined = _rejoined(image, topic.name, placed, broker_id, clean_shutdown)
                    partitions.append(relieved(image, topic.name, rejoined))
                else:
                    missing[placed.directory(broker_id)] += 1
                    # Where others have it, it begins anew in another log dir: what it had is counted on no more.
                    may_lack_its_end = not clean_shutdown or bool({*partition.isr, *partition.elr} - {broker_id})
                    without = without_replica(image, topic.name, placed, broker_id, may_lack_its_end=may_lack_its_end)
                    partitions.append(with_leader(image, topic.name, without))
            else:
                partitions.append(partition)
        put_partitions(builder, topic, partitions)
    return missing


def _placed(
    builder: ImageBuilder, partition: PartitionImage, broker: BrokerRegistration, directory: bytes
) -> PartitionImage:
    """The partition with the broker's replica in ``directory``; one that never got a log dir gets one now."""
    if directory in UNCHOSEN_DIRECTORIES:
        directory = choose_directory(builder, broker)
    if partition.directory(broker.broker_id) == directory:
        return partition
    return partition.in_directory(broker.broker_id, directory)


def _rejoined(
    image: ClusterImage, topic: str, partition: PartitionImage, broker_id: int, clean_shutdown: bool
) -> PartitionImage:
    if clean_shutdown:
        return with_leader(image, topic, partition)
    holders = {*partition.isr, *partition.elr}
    if holders - {broker_id}:
        return with_leader(image, topic, without_replica(image, topic, partition, broker_id, may_lack_its_end=True))
    if broker_id in holders and partition.leader in (broker_id, NO_LEADER):
        return led_by(image, topic, partition, broker_id)
    return with_leader(image, topic, partition)


def assign_replicas(
    builder: ImageBuilder, broker_id: int, found: FoundReplicas
) -> Generator[None, None, dict[tuple[bytes, int], int]]:
    """The broker's replicas lie there; it may lead them if the log dir works, and goes on to if that has space.

    Gives back errors for others.
    """
    image = builder.view()
    errors: dict[tuple[bytes, int], int] = {}
    moved: dict[bytes, dict[int, PartitionImage]] = {}
    for (topic_id, index), directory in found.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            errors[topic_id, index] = ErrorCode.UNKNOWN_TOPIC_ID
        elif not 0 <= index < len(topic.partitions):
            errors[topic_id, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in topic.partitions[index].replicas:
            errors[topic_id, index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif topic.partitions[index].directory(broker_id) != directory:
            placed = topic.partitions[index].in_directory(broker_id, directory)
            if image.brokers[broker_id].has_online_dir(directory):
                placed = relieved(image, topic.name, with_leader(image, topic.name, placed))
            else:
                placed = without_replica(image, topic.name, placed, broker_id)
            moved.setdefault(topic_id, {})[index] = placed
        yield
    for topic_id, partitions in moved.items():
        topic = image.topics_by_id[topic_id]
        put_partitions(builder, topic, [partitions.get(index, each) for index, each in enumerate(topic.partitions)])
        yield
    return errors


def fence_brokers(builder: ImageBuilder, dead: Mapping[int, int]) -> Generator[None, None, list[int]]:
    """Brokers that are not heard of lead nothing until they register again; gives back those that were not fenced.

    ``dead`` has the broker epoch of each: a newer registration is of another life.
    """
    brokers = builder.view().brokers
    fenced = sorted(
        broker_id
        for broker_id, epoch in dead.items()
        if (broker := brokers.get(broker_id)) is not None and broker.epoch == epoch and not broker.fenced
    )
    for broker_id in fenced:
        builder.put_broker(brokers[broker_id]._replace(fenced=True))
    if fenced:
        yield from take_replicas_offline(builder, fenced)
    return fenced


def unregister_broker(builder: ImageBuilder, broker_id: int) -> Generator[None, None, Outcome]:
    """Forget a broker that is gone for good; one that is alive would come back, or stay without knowing of it."""
    broker = builder.view().brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    if not broker.fenced:
        return Outcome(ErrorCode.INVALID_REQUEST, f"Broker ID {broker_id} is alive: it has to be stopped first.")
    builder.remove_broker(broker_id)
    yield from take_replicas_offline(builder, (broker_id,))
    return Outcome()


def unregister_controller(image: ClusterImage, controller_id: int) -> Outcome:
    """No controller has a registration beside its broker's, so that there is none to be forgotten."""
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_ARE_UNREGISTERED:
        message = "The current MetadataVersion is too old to support controller unregistration."
        return Outcome(ErrorCode.UNSUPPORTED_VERSION, message)
    message = f"Controller ID {controller_id} is not currently registered."
    return Outcome(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)


def begin_controlled_shutdown(builder: ImageBuilder, broker_id: int) -> Generator[None, None, None]:
    """The broker wants to stop: others lead in its place, where others are in sync, and none where none is."""
    broker = builder.view().brokers[broker_id]
    builder.put_broker(broker._replace(in_controlled_shutdown=True))
    yield from take_replicas_offline(builder, (broker_id,))


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(
        partition.leader == broker_id for topic in image.topics_by_name.values() for partition in topic.partitions
    )


def cordon_directories(builder: ImageBuilder, broker_id: int, directories: Collection[bytes]) -> None:
    """Exactly these log dirs of a broker take no new replicas, unless the cluster's level knows nothing of that."""
    image = builder.view()
    broker = image.brokers[broker_id]
    cordoned = tuple(sorted(directories))
    if cordoned != broker.cordoned_log_dirs and image.features.get(METADATA_VERSION, 0) >= CORDONED_LOG_DIRS_LEVEL:
        builder.put_broker(broker._replace(cordoned_log_dirs=cordoned))


def take_directories_offline(builder: ImageBuilder, broker_id: int, directories: Collection[bytes]) -> None:
    """Log dirs of a broker failed: it stops leading what lies in them."""
    broker = builder.view().brokers[broker_id]
    remaining = tuple(directory for directory in broker.log_dirs if directory not in directories)
    if not remaining or len(remaining) == len(broker.log_dirs):
        return  # known already, or the last one: then the broker ends
    full_dirs = tuple(directory for directory in broker.full_dirs if directory in remaining)
    builder.put_broker(broker._replace(log_dirs=remaining, full_dirs=full_dirs))
    image = builder.view()
    for topic in list(image.topics_by_name.values()):
        partitions = [
            without_replica(image, topic.name, partition, broker_id)
            if broker_id in partition.replicas and partition.directory(broker_id) in directories
            else partition
            for partition in topic.partitions
        ]
        put_partitions(builder, topic, partitions)


def note_full_directories(
    builder: ImageBuilder, broker_id: int, directories: Collection[bytes]
) -> Generator[None, None, None]:
    """These log dirs of a broker have no space, and its others have: replicas elsewhere that have it lead, and are in
    sync, in place of those in there."""
    broker = builder.view().brokers[broker_id]
    full_dirs = tuple(directory for directory in broker.log_dirs if directory in directories)
    changed = set(full_dirs) ^ set(broker.full_dirs)
    if not changed:
        return
    builder.put_broker(broker._replace(full_dirs=full_dirs))
    image = builder.view()
    for topic in list(image.topics_by_name.values()):
        partitions = [
            relieved(image, topic.name, partition)
            if broker_id in partition.replicas and partition.directory(broker_id) in changed
            else partition
            for partition in topic.partitions
        ]
        put_partitions(builder, topic, partitions)
        yield
