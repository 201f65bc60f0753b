"""What a principal must be allowed to do with a config resource, as ConfigHelper and ControllerApis of Kafka ask it."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.config.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from tests.broker.wire_client import WireClient

CLUSTER = (Resource.CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
# Type and name of a resource -> what is asked about, and the error of who may not.
RESOURCES = {
    (TOPIC, "t"): (Resource.TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (GROUP, "g"): (Resource.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (BROKER, ""): CLUSTER,
    (BROKER_LOGGER, "1"): CLUSTER,
    (CLIENT_METRICS, "m"): CLUSTER,
}


def describe(resource_type: int, name: str) -> Any:
    resource = describe_configs.DescribeConfigsResource(resource_type=resource_type, resource_name=name)
    return describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=False)


def alter(resource_type: int, name: str) -> Any:
    resource = alter_configs.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def alter_incrementally(resource_type: int, name: str) -> Any:
    module = incremental_alter_configs
    resource = module.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[])
    return module.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@pytest.mark.parametrize(("resource_type", "name"), RESOURCES)
@pytest.mark.parametrize(
    ("request_of", "version", "operation"),
    [
        (describe, 4, AclOperation.DESCRIBE_CONFIGS),
        (alter, 2, AclOperation.ALTER_CONFIGS),
        (alter_incrementally, 1, AclOperation.ALTER_CONFIGS),
    ],
)
def test_who_may_not_is_refused_with_the_error_of_the_resource(
    monkeypatch: pytest.MonkeyPatch,
    pybroker: Broker,
    request_of: Any,
    version: int,
    operation: int,
    resource_type: int,
    name: str,
) -> None:
    about, about_name, error = RESOURCES[resource_type, name]
    asked = []

    def authorize(_: RequestContext, operation: int, resource: int, name: str) -> bool:
        asked.append((operation, resource, name))
        return False

    monkeypatch.setattr(RequestContext, "authorize", authorize)
    with WireClient((pybroker.host, pybroker.port)) as client:
        reply = client.ask(request_of(resource_type, name), version)
    (result,) = reply.results if request_of is describe else reply.responses
    assert result.error_code == error
    assert asked == [(operation, about, about_name)]
