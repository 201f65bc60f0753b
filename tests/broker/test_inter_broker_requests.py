"""What brokers ask of each other: not served to clients, and permitted to those that may act for the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.apis import INTER_BROKER_APIS, Api
from pybroker.handlers import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    envelope,
)
from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import AclOperation
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pybroker_protocol.messages.alter_partition import AlterPartitionRequest
from pybroker_protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from pybroker_protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pybroker_protocol.messages.broker_registration import BrokerRegistrationRequest
from pybroker_protocol.messages.envelope import EnvelopeRequest
from tests.authorizers import AnyOfType
from tests.broker.wire_client import WireClient
from tests.handled import answer_of

REQUESTS: dict[str, tuple[Any, Any]] = {
    "AlterPartition": (alter_partition, AlterPartitionRequest(broker_id=1, topics=[])),
    "Envelope": (
        envelope,
        EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=bytes(4)),
    ),
    "BrokerRegistration": (
        broker_registration,
        BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="c",
            incarnation_id=bytes(16),
            listeners=[],
            features=[],
            is_migrating_zk_broker=False,
        ),
    ),
    "BrokerHeartbeat": (
        broker_heartbeat,
        BrokerHeartbeatRequest(broker_id=1, current_metadata_offset=0, want_fence=False, want_shut_down=False),
    ),
    "AllocateProducerIds": (allocate_producer_ids, AllocateProducerIdsRequest(broker_id=1)),
    "AssignReplicasToDirs": (assign_replicas_to_dirs, AssignReplicasToDirsRequest(broker_id=1, directories=[])),
}

each_api = pytest.mark.parametrize("api", INTER_BROKER_APIS, ids=lambda api: api.name)


@each_api
def test_a_broker_that_is_alone_closes_the_connection_of_who_asks(pybroker: Broker, api: Api) -> None:
    _, request = REQUESTS[api.name]
    with WireClient((pybroker.host, pybroker.port)) as client:
        assert client.ask(request, api.versions[1]) is None


@each_api
def test_who_may_not_act_for_the_cluster_is_refused(api: Api) -> None:
    handler, request = REQUESTS[api.name]
    asked: list[int] = []

    class Denying(AnyOfType):
        def allows(
            self, ctx: RequestContext, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True
        ) -> bool:
            asked.append(operation)
            return False

    context = RequestContext()
    services: Any = SimpleNamespace(authorizer=Denying())
    context.services, context.api_version = services, api.versions[1]
    assert answer_of(handler.handle(context, request)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked == [AclOperation.CLUSTER_ACTION]
