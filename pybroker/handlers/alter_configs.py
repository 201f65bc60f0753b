"""AlterConfigs (key 33), versions 0 to 2: replace all overrides of a resource.

Behaviour: settings that are not named lose their override (IncrementalAlterConfigs is the way to change some);
broker loggers cannot be altered so; one answer per resource.
"""

from __future__ import annotations

from pybroker.apis import AclOperation
from pybroker.config.resources import Alteration, AlterConfigOp
from pybroker.handlers.config_requests import alter, refusal
from pybroker.handlers.context import RequestContext, Steps
from pybroker_protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(ctx: RequestContext, request: AlterConfigsRequest) -> Steps:
    """Check every resource, commit the valid ones, answer when they are in effect."""
    alterations = []
    for resource in request.resources:
        alterations.append(_alteration(ctx, resource))
        yield
    return (
        yield from alter(ctx, alterations, request.validate_only, AlterConfigsResponse, AlterConfigsResourceResponse)
    )


def _alteration(ctx: RequestContext, resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        tuple(AlterConfigOp(config.name, config.value) for config in resource.configs),
        replace=True,
        refusal=refusal(ctx, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name),
    )
