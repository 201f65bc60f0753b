"""What levels of metadata.version allow, in a cluster of an older level, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.cluster.decisions.acl_changes import create_acls
from pybroker.cluster.decisions.broker_changes import unregister_controller
from pybroker.cluster.decisions.operations import FeatureUpdate
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.store.initial_metadata import InitialMetadata
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker_protocol.errors import ErrorCode
from tests.steps import end_of

from .fakes import CLUSTER_ID, FakeCluster


def image_at(level: int) -> ClusterImage:
    return ClusterImage(cluster_id=CLUSTER_ID, features={"metadata.version": level})


def answer_to(host: str, level: int) -> tuple[int, str | None]:
    acl = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:anna", host, AclOperation.READ, Permission.ALLOW)
    ((error_code, message),) = end_of(create_acls(ImageBuilder(image_at(level)), [acl]))
    return error_code, message


@pytest.mark.parametrize(
    ("host", "level", "error", "says"),
    [
        ("10.0.0.0/8", 32, 0, None),
        ("2001:db8::/32", 33, 0, None),
        ("10.0.0.0/8", 31, ErrorCode.UNSUPPORTED_VERSION, "4.4-IV1"),
        ("10.0.0.0/99", 31, ErrorCode.UNSUPPORTED_VERSION, "4.4-IV1"),
        ("10.0.0.1", 31, 0, None),
        ("*", 31, 0, None),
        ("10.0.0.0/33", 33, ErrorCode.INVALID_REQUEST, "Invalid CIDR notation '10.0.0.0/33'"),
        ("anywhere/8", 33, ErrorCode.INVALID_REQUEST, "Invalid CIDR notation 'anywhere/8'"),
        ("", 33, ErrorCode.INVALID_REQUEST, "cannot be null or empty"),
    ],
)
def test_ranges_of_addresses_take_a_level_that_all_brokers_know(
    host: str, level: int, error: int, says: str | None
) -> None:
    code, message = answer_to(host, level)
    assert code == error
    assert message is None if says is None else says in str(message)


@pytest.mark.parametrize(
    ("level", "error"), [(32, ErrorCode.UNSUPPORTED_VERSION), (33, ErrorCode.CONTROLLER_ID_NOT_REGISTERED)]
)
def test_no_controller_is_there_to_be_unregistered(level: int, error: ErrorCode) -> None:
    assert unregister_controller(image_at(level), 1).error_code == error


@pytest.mark.parametrize(
    ("current", "wanted", "error"),
    [
        (31, 30, 0),  # nothing changed between the two
        (29, 24, 0),
        (33, 32, ErrorCode.INVALID_UPDATE_VERSION),
        (32, 31, ErrorCode.INVALID_UPDATE_VERSION),
        (31, 29, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_a_level_goes_down_where_metadata_has_not_changed_in_between(
    tmp_path: Path, current: int, wanted: int, error: int
) -> None:
    cluster = FakeCluster(tmp_path, initial_metadata=InitialMetadata(image_at(current))).start()
    (result,) = cluster.ask(cluster.controller.update_features, [FeatureUpdate("metadata.version", wanted, 2)])
    assert result.error_code == error
    assert cluster.cache.image.features["metadata.version"] == (current if error else wanted)
    cluster.close()


def test_a_cluster_of_an_older_level_starts_and_is_raised(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, initial_metadata=InitialMetadata(image_at(30))).start()
    (result,) = cluster.ask(cluster.controller.update_features, [FeatureUpdate("metadata.version", 33)])
    assert (result.error_code, cluster.cache.image.features["metadata.version"]) == (0, 33)
    cluster.close()
