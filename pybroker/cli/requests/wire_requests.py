"""Messages of ``pybroker_protocol`` to the brokers of a cluster, as the commands send them.

Owns: who coordinates what, and that an answer which passes is asked for again.  Connections are ``AdminClient``'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import PASSING_ERRORS, Passing
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import named_error

_BROKERS: Final = 1  # the endpoint type of DescribeCluster


class CoordinatorType(IntEnum):
    """What a coordinator coordinates, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


def raise_passing(codes: Iterable[int]) -> None:
    """Raise the first of ``codes`` that passes by itself, for ``retried`` to ask again."""
    for code in codes:
        if code in PASSING_ERRORS:
            raise Passing(named_error(code))


def brokers(client: AdminClient) -> list[int]:
    """The ids of all brokers that answer."""
    return sorted(racks(client))


def racks(client: AdminClient) -> dict[int, str | None]:
    """The brokers that answer, each with its rack."""
    return {broker.node_id: broker.rack for broker in client.metadata().brokers}


def described_cluster(client: AdminClient) -> Any:
    """DescribeCluster, fenced brokers included; CommandFailed."""
    from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest

    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=_BROKERS, include_fenced_brokers=True
    )
    cluster = client.ask(request)
    if cluster.error_code:
        raise refused("cluster", cluster.error_code, cluster.error_message)
    return cluster


def find_coordinators(client: AdminClient, keys: Iterable[str], kind: CoordinatorType) -> dict[int, list[str]]:
    """The keys of each coordinator, by its node id; raises ``CommandFailed`` for a key that has none."""
    from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest

    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=sorted(set(keys)))
    found: dict[int, list[str]] = {}
    response = client.ask(request, min_version=FindCoordinatorRequest.since("coordinator_keys"))
    for coordinator in response.coordinators:
        raise_passing([coordinator.error_code])
        if coordinator.error_code:
            raise refused(f"coordinator of {coordinator.key}", coordinator.error_code, coordinator.error_message)
        found.setdefault(coordinator.node_id, []).append(coordinator.key)
    return found
