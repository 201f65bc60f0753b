"""IncrementalAlterConfigs (key 44), versions 0 and 1: change single settings of a resource (KIP-339).

Behaviour: SET, DELETE, and for lists APPEND and SUBTRACT; settings that are not named stay; one answer per resource,
and a resource is changed wholly or not at all.
"""

from __future__ import annotations

from pybroker.config.resources import Alteration, AlterConfigOp
from pybroker.handlers.config_checks import alter, refusal, refused
from pybroker.handlers.config_checks import split as split_configs
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import AclOperation
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> Steps:
    """Check every resource, commit the valid ones, answer when they are in effect."""
    alterations = []
    for resource in request.resources:
        alterations.append(_alteration(ctx, resource))
        yield
    return (
        yield from alter(
            ctx, alterations, request.validate_only, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
        )
    )


def split(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> Steps:
    """What this broker alone can do is done; the rest."""
    alterations = [_alteration(ctx, resource) for resource in request.resources]
    return (
        yield from split_configs(
            ctx, request, alterations, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
        )
    )


def refuse(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, error: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Nothing was altered, for this reason."""
    response: IncrementalAlterConfigsResponse = refused(
        request, error, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
    )
    return response


def _alteration(ctx: RequestContext, resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        tuple(AlterConfigOp(config.name, config.value, config.config_operation) for config in resource.configs),
        refusal=refusal(ctx, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name),
        is_forwarded=ctx.is_forwarded,
    )
