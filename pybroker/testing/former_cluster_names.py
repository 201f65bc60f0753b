"""A pytest plugin: the former names of ``pybroker_cluster``.  Whether they hold ``pytest_plugin`` decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pybroker.testing.in_process_broker import Setting
    from pybroker.testing.in_process_cluster import Cluster


@pytest.fixture(scope="session")
def kafka_cluster_settings() -> Mapping[str, Setting]:
    """The former name of ``pybroker_cluster_settings``."""
    return {}


@pytest.fixture
def kafka_cluster(pybroker_cluster: Cluster) -> Cluster:
    """The former name of ``pybroker_cluster``."""
    return pybroker_cluster
