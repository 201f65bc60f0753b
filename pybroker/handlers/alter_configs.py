"""AlterConfigs (key 33), versions 0 to 2: replace all overrides of a resource.

Behaviour: settings that are not named lose their override (IncrementalAlterConfigs is the way to change some);
broker loggers cannot be altered so; one answer per resource.
"""

from __future__ import annotations

from pybroker.config.resources import Alteration, AlterConfigOp
from pybroker.handlers.config_checks import alter, refusal, refused
from pybroker.handlers.config_checks import split as split_configs
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import AclOperation
from pybroker_protocol.errors import ErrorCode
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


def split(ctx: RequestContext, request: AlterConfigsRequest) -> Steps:
    """What this broker alone can do is done; the rest."""
    alterations = [_alteration(ctx, resource) for resource in request.resources]
    return (yield from split_configs(ctx, request, alterations, AlterConfigsResponse, AlterConfigsResourceResponse))


def refuse(ctx: RequestContext, request: AlterConfigsRequest, error: ErrorCode) -> AlterConfigsResponse:
    """Nothing was altered, for this reason."""
    response: AlterConfigsResponse = refused(request, error, AlterConfigsResponse, AlterConfigsResourceResponse)
    return response


def _alteration(ctx: RequestContext, resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        tuple(AlterConfigOp(config.name, config.value) for config in resource.configs),
        replace=True,
        refusal=refusal(ctx, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name),
        is_forwarded=ctx.is_forwarded,
    )
