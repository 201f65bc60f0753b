"""What the handlers of the config APIs share: what they refuse before the service is asked, and how they alter.

Owns: the permission that each kind of config resource needs, and the error without it. Also owns the reply to both of
the requests that alter, and what of them is not for the controller.

Counterpart in Kafka: the authorization part of ``ConfigHelper`` and ``ControllerApis``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import chain, repeat
from typing import Any, Final

from pybroker.cluster.image.topic_names import invalid_reason
from pybroker.config.resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Alteration,
    ConfigFailure,
    Outcome,
)
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import asked_in_portions, too_many
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode

_GUARDS: Final = {
    TOPIC: (Resource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP: (Resource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    BROKER: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    BROKER_LOGGER: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    CLIENT_METRICS: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}


def refusal(ctx: RequestContext, operation: AclOperation, resource_type: int, name: str) -> ConfigFailure | None:
    """Why the principal cannot do ``operation`` on the config resource, or None; unknown types are the service's."""
    if resource_type in _GUARDS:
        resource, code = _GUARDS[resource_type]
        if not ctx.authorize(operation, resource, CLUSTER_NAME if resource == Resource.CLUSTER else name):
            # Kafka says no more than the code where the broker itself refuses a change, before the controller sees it.
            is_own = operation is AclOperation.ALTER_CONFIGS and resource_type in (BROKER, BROKER_LOGGER)
            return ConfigFailure(code, None if is_own else code.message)
    # An empty name means a default, which each operation refuses in its own words.
    reason = invalid_reason(name) if resource_type == TOPIC and name else None
    return None if reason is None else ConfigFailure(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def alter(
    ctx: RequestContext,
    alterations: Sequence[Alteration],
    validate_only: bool,
    response_class: Callable[..., Any],
    result_class: Callable[..., Any],
) -> Steps:
    """Commit the valid alterations; the reply, one result per resource, comes when they are in effect.

    Those of one portion are committed together.
    """
    refused = too_many(alterations)
    if refused is None:
        outcomes: Iterable[Outcome] = chain.from_iterable(
            (
                yield from asked_in_portions(
                    _without_repeated(alterations),
                    lambda portion, done: ctx.services.configs.alter(portion, validate_only, done),
                )
            )
        )
    else:
        outcomes = repeat(Outcome(*refused), len(alterations))
    results = []
    for alteration, outcome in zip(alterations, outcomes, strict=True):
        results.append(_result(result_class, alteration, outcome))
        yield
    return response_class(throttle_time_ms=0, responses=results)


def split(
    ctx: RequestContext,
    request: Any,
    alterations: Sequence[Alteration],
    response_class: Callable[..., Any],
    result_class: Callable[..., Any],
) -> Steps:
    """See ``forwarding``: a broker's loggers are its own, and so is what its settings allow."""
    outcomes: list[Outcome | None] = [None] * len(alterations)
    if too_many(alterations) is None:
        settled = Parked()
        ctx.services.configs.settle_here(_without_repeated(alterations), request.validate_only, settled.complete)
        outcomes = yield settled

    def merge(response: Any | None) -> Any:
        theirs = iter(() if response is None else response.responses)
        results = [
            next(theirs) if outcome is None else _result(result_class, alteration, outcome)
            for alteration, outcome in zip(alterations, outcomes, strict=True)
        ]
        return response_class(throttle_time_ms=0, responses=results)

    rest = copy(request)
    rest.resources = [
        resource for resource, outcome in zip(request.resources, outcomes, strict=True) if outcome is None
    ]
    return rest if rest.resources or not outcomes else None, merge


def refused(
    request: Any, error: ErrorCode, response_class: Callable[..., Any], result_class: Callable[..., Any]
) -> Any:
    """Nothing was altered, for this reason."""
    outcome = Outcome(error, error.message)
    return response_class(
        throttle_time_ms=0, responses=[_result(result_class, resource, outcome) for resource in request.resources]
    )


def _result(result_class: Callable[..., Any], resource: Any, outcome: Outcome) -> Any:
    return result_class(
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _without_repeated(alterations: Sequence[Alteration]) -> list[Alteration]:
    """Resources that are named more than once are refused, each time."""
    times = Counter((alteration.resource_type, alteration.resource_name) for alteration in alterations)
    repeated = ConfigFailure(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    return [
        alteration._replace(refusal=repeated)
        if times[alteration.resource_type, alteration.resource_name] > 1
        else alteration
        for alteration in alterations
    ]
