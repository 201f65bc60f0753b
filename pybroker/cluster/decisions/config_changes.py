"""Changing the overrides of topics, brokers, groups and client-metrics subscriptions.

Owns: merging changes into overrides, that a topic must exist to have any, how long names are, and what holds of
``min.insync.replicas`` while eligible leader replicas are tracked.  Also that what a mirrored topic follows is not
changed here.  Which settings there are and what their values may be is validated before, by the config service.

Counterpart in Kafka: ``org.apache.kafka.controller.ConfigurationControlManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.operations import NamedResult
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.supported_features import CORDONED_LOG_DIRS_LEVEL, METADATA_VERSION
from pybroker.cluster.store.store_names import refusal_of_length
from pybroker.config.resources import BROKER, CORDONED_LOG_DIRS, MIN_INSYNC_REPLICAS, TOPIC, ConfigChange
from pybroker_protocol.errors import ErrorCode


def alter_configs(builder: ImageBuilder, changes: Sequence[ConfigChange]) -> list[NamedResult]:
    """Merge each change into the overrides of its resource; one answer per change, in order."""
    return [_alter(builder, change) for change in changes]


def _alter(builder: ImageBuilder, change: ConfigChange) -> NamedResult:
    image = builder.view()
    resource = (change.resource_type, change.resource_name)
    if change.resource_type == TOPIC and change.resource_name not in image.topics_by_name:
        message = f"The topic '{change.resource_name}' does not exist."
        return NamedResult(change.resource_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if image.features.get(METADATA_VERSION, 0) < CORDONED_LOG_DIRS_LEVEL and change.updates.get(CORDONED_LOG_DIRS):
        message = (
            f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires "
            f"metadata.version >= {CORDONED_LOG_DIRS_LEVEL}"
        )
        return NamedResult(change.resource_name, ErrorCode.INVALID_CONFIG, message)
    refusal = eligible_replicas.refusal(image, change)
    if refusal is not None:
        return NamedResult(change.resource_name, ErrorCode.INVALID_CONFIG, refusal)
    before = image.overrides(*resource)
    refusal = None if before else refusal_of_length(change.resource_name)
    if refusal is not None:
        return NamedResult(change.resource_name, ErrorCode.INVALID_REQUEST, refusal)
    after = {} if change.replace else dict(before)
    for name, value in change.updates.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    mirror = image.mirrors.get(change.resource_name) if change.resource_type == TOPIC else None
    if mirror is not None and not mirror.is_writable and (refusal := _refusal_of_followed(before, after)) is not None:
        return NamedResult(change.resource_name, ErrorCode.POLICY_VIOLATION, refusal)
    # A broker's are written also where they stay what they are: it looks at its files of keys again then (KAFKA-14136).
    if after != before or change.resource_type == BROKER:
        builder.put_overrides(resource, after)
        if after.get(MIN_INSYNC_REPLICAS) != before.get(MIN_INSYNC_REPLICAS):
            eligible_replicas.forget(builder, resource)
    return NamedResult(change.resource_name)


def _refusal_of_followed(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """Why settings of a mirrored topic are not changed: with others it would keep less than its source, or more."""
    from pybroker.cluster.decisions.followed_settings import FOLLOWED_SETTINGS

    changed = [name for name in FOLLOWED_SETTINGS if before.get(name) != after.get(name)]
    return f"The topic is mirrored, and follows its source in {', '.join(changed)}." if changed else None
