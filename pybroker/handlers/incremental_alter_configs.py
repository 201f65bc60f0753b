"""IncrementalAlterConfigs (key 44), versions 0 and 1: change single settings of a resource (KIP-339).

Behaviour: SET, DELETE, and for lists APPEND and SUBTRACT; settings that are not named stay; one answer per resource,
and a resource is changed wholly or not at all.
"""

from __future__ import annotations

from pybroker.apis import Operation as AclOperation
from pybroker.config.resources import Alteration, Operation, Outcome
from pybroker.handlers.config_refusals import refusal
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> Parked:
    """Check every resource, commit the valid ones, answer when they are in effect."""
    parked = Parked()

    def done(outcomes: list[Outcome]) -> None:
        parked.complete(
            IncrementalAlterConfigsResponse(
                throttle_time_ms=0,
                responses=[
                    AlterConfigsResourceResponse(
                        error_code=outcome.error_code,
                        error_message=outcome.error_message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                    for resource, outcome in zip(request.resources, outcomes, strict=True)
                ],
            )
        )

    alterations = [_alteration(ctx, resource) for resource in request.resources]
    ctx.services.configs.alter(alterations, request.validate_only, done)
    return parked


def _alteration(ctx: RequestContext, resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource.resource_type,
        resource.resource_name,
        tuple(Operation(config.name, config.value, config.config_operation) for config in resource.configs),
        refusal=refusal(ctx, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name),
    )
