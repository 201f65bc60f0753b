"""Changing the finalized levels of features.

Counterpart in Kafka: ``org.apache.kafka.controller.FeatureControlManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.operations import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, FeatureUpdate, NamedResult
from pybroker.cluster.decisions.placement import Refused
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.supported_features import (
    DEPENDENCIES,
    KRAFT_VERSION,
    METADATA_CHANGES,
    METADATA_VERSION,
    SUPPORTED,
)
from pybroker_protocol.errors import ErrorCode


def update_features(
    builder: ImageBuilder, updates: Sequence[FeatureUpdate], static_min_insync_replicas: str
) -> list[NamedResult]:
    """Finalize all of the levels or, when one is refused, none: then the only answer is that refusal."""
    image = builder.view()
    levels = {**image.features, **{update.name: update.max_version_level for update in updates}}
    for update in updates:
        try:
            _check(update, image)
            _check_dependencies(update, levels)
        except Refused as refused:
            return [NamedResult(update.name, refused.error_code, refused.message)]
    for update in updates:
        if update.max_version_level == 0:
            builder.remove_feature(update.name)
        else:
            builder.put_feature(update.name, update.max_version_level)
    if eligible_replicas.are_tracked(builder.view()):
        eligible_replicas.prepare_settings(builder, static_min_insync_replicas)
    return [NamedResult(update.name) for update in updates]


def _check(update: FeatureUpdate, image: ClusterImage) -> None:
    name, level, upgrade_type = update
    current = image.features.get(name, 0)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    supported = SUPPORTED.get(name)
    if supported is None or not supported.min_version <= level <= supported.max_version:
        raise _refused(update, _unsupported_reason(update, image))
    if level < current and upgrade_type == UPGRADE:
        reason = "without setting the upgrade type to either safe or unsafe downgrade."
        raise _refused(update, f"Can't downgrade the version of this feature {reason}")
    if level > current and upgrade_type != UPGRADE:
        raise _refused(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION and any(level < change <= current for change in METADATA_CHANGES):
        raise _metadata_downgrade(update, current)
    if level < current and name == KRAFT_VERSION:
        raise _refused(update, "Can't downgrade the version of this feature.")


def _check_dependencies(update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    """Against the levels that all of the updates together lead to."""
    name, level, _ = update
    for other, least in DEPENDENCIES.get((name, level), {}).items():
        if levels.get(other, 0) < least:
            reason = f"{name} could not be set to {level} because it depends on {other} level {least}"
            raise _refused(update, reason)


def _unsupported_reason(update: FeatureUpdate, image: ClusterImage) -> str:
    supported = SUPPORTED.get(update.name)
    versions = "does not support this feature."
    if supported is not None:
        versions = f"only supports versions {supported.min_version}-{supported.max_version}"
    return f"Local controller {image.controller_id} {versions}"


def _refused(update: FeatureUpdate, reason: str) -> Refused:
    message = f"Invalid update version {update.max_version_level} for feature {update.name}. {reason}"
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, message)


def _metadata_downgrade(update: FeatureUpdate, current: int) -> Refused:
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    message = f"Unsupported metadata.version downgrade from {current} to {update.max_version_level}. {reason}"
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, message)
