"""DescribeConfigs (key 32), versions 1 to 4.

Behaviour: one result per resource in the order asked, those that the client may not see last, each with its own error.
Every setting comes with source, type, synonyms (when asked), read-only and sensitive flags, in the order of Kafka's
table. Types and documentation come from version 3 on (KIP-524). A broker answers for its own settings only; the
resource without a name is what all brokers share.
"""

from __future__ import annotations

from pybroker.cluster.image.topic_names import invalid_reason
from pybroker.config.resources import TOPIC, ConfigEntry, Description
from pybroker.handlers.config_checks import refusal
from pybroker.handlers.context import CloseConnection, RequestContext, Steps
from pybroker.security.acl_bindings import AclOperation
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# Settings that one DescribeConfigs is answered with: all topics of a broker with 30,000, or some 70 MB.
DESCRIBED_SETTINGS_MAX = 1_000_000

_UNAUTHORIZED = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


def handle(ctx: RequestContext, request: DescribeConfigsRequest) -> Steps:
    """Describe each resource; one that is asked for again is answered with what was found out the first time."""
    results: list[DescribeConfigsResult] = []
    refused: list[DescribeConfigsResult] = []
    known: dict[tuple[int, str, frozenset[str]], DescribeConfigsResult] = {}
    settings = 0
    for resource in request.resources:
        keys = frozenset(resource.configuration_keys or ())
        key = resource.resource_type, resource.resource_name, keys
        result = known.get(key)
        if result is None:
            description = _describe(ctx, resource, keys, request.include_documentation)
            result = known[key] = _result(resource, description, request.include_synonyms)
            settings += len(result.configs)
            if settings > DESCRIBED_SETTINGS_MAX:
                raise CloseConnection(f"DescribeConfigs of more than {DESCRIBED_SETTINGS_MAX} settings")
        (refused if result.error_code in _UNAUTHORIZED else results).append(result)
        yield
    return DescribeConfigsResponse(throttle_time_ms=0, results=results + refused)


def _describe(
    ctx: RequestContext, resource: DescribeConfigsResource, keys: frozenset[str], include_documentation: bool
) -> Description:
    resource_type, name = resource.resource_type, resource.resource_name
    refused = refusal(ctx, AclOperation.DESCRIBE_CONFIGS, resource_type, name)
    if refused is not None:
        return Description(refused.error_code, refused.message)
    if resource_type == TOPIC and not name:
        return Description(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid_reason(name))
    return ctx.services.configs.describe(resource_type, name, keys, include_documentation)


def _result(
    resource: DescribeConfigsResource, description: Description, include_synonyms: bool
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=description.error_code,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(entry, include_synonyms) for entry in description.entries],
    )
    # Kafka sends an empty text, not null, where there is nothing to say.
    if description.error_message is not None:
        result.error_message = description.error_message
    return result


def _config(entry: ConfigEntry, include_synonyms: bool) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation,
    )
