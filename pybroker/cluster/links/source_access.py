"""Asking a link's source who may do what there: ACLs, quotas, and which users have SCRAM credentials.

Owns: the questions, of those kinds alone that the link is set to carry, and the words for a source that does not tell.
Does not own what follows (``decisions/carried_access``), nor when it is asked (``link_keeper``).

Counterpart in Kafka: ``MirrorSourceConnector.listTopicAclBindings``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.decisions.carried_access import SourceAccess
from pybroker.cluster.image.quota_entities import entity_of
from pybroker.cluster.links.source_port import (
    ANY_NODE,
    DESCRIBE_ACLS_VERSION,
    DESCRIBE_CLIENT_QUOTAS_VERSION,
    DESCRIBE_USER_SCRAM_CREDENTIALS_VERSION,
)
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.describe_acls import DescribeAclsRequest
from pybroker_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pybroker_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

if TYPE_CHECKING:
    from pybroker.cluster.links.source_port import Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.config.link_config import LinkConfig
    from pybroker_protocol.schema import Request

ACCESS_TIMEOUT_MS: Final = 10_000
# What a link may carry, by the setting that says of which.
KINDS: Final = ("acls", "quotas", "users")

_RIGHT: Final = {"acls": "DESCRIBE", "quotas": "DESCRIBE_CONFIGS", "users": "DESCRIBE"}


def ask_for_access(source: Source, config: LinkConfig, done: Callable[[SourceAccess], None]) -> None:
    """``done(access)`` with what the link carries, once the source has answered each question, or has not."""
    waits_for = [kind for kind in KINDS if config.get(kind)]
    found = SourceAccess()
    if not waits_for:
        done(found)
        return

    def answered(kind: str, response: Any | None) -> None:
        nonlocal found
        why = _refusal(kind, response)
        if why is None:
            found = found._replace(**{kind: _READ[kind](response)})
        else:
            found = found._replace(refused={**found.refused, kind: why})
        waits_for.remove(kind)
        if not waits_for:
            done(found)

    for kind in tuple(waits_for):

        def told(response: Any | None, _error: PeerError | None, kind: str = kind) -> None:
            answered(kind, response)

        request, version = _question(kind)
        source.ask(ANY_NODE, request, version, told, timeout_ms=ACCESS_TIMEOUT_MS)


def _question(kind: str) -> tuple[Request, int]:
    if kind == "acls":
        acls = DescribeAclsRequest(
            resource_type_filter=Resource.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=Permission.ANY,
        )
        return acls, DESCRIBE_ACLS_VERSION
    if kind == "quotas":
        return DescribeClientQuotasRequest(components=[], strict=False), DESCRIBE_CLIENT_QUOTAS_VERSION
    return DescribeUserScramCredentialsRequest(users=None), DESCRIBE_USER_SCRAM_CREDENTIALS_VERSION


def _refusal(kind: str, response: Any | None) -> str | None:
    """Why the source does not tell; None where it does."""
    if response is None:
        return "the source does not answer that"
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        return "the source has none, because it has no authorizer"
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"the link may not see them: its user needs {_RIGHT[kind]} on the source's cluster"
    return f"the source says {error_name(response.error_code)}" if response.error_code else None


def _acls(response: Any) -> list[Acl]:
    return [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def _quotas(response: Any) -> dict[Any, dict[str, float]]:
    return {
        entity_of((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in response.entries or ()
    }


def _users(response: Any) -> dict[str, list[int]]:
    return {
        each.user: [info.mechanism for info in each.credential_infos]
        for each in response.results
        if not each.error_code
    }


_READ: Final[dict[str, Callable[[Any], Any]]] = {"acls": _acls, "quotas": _quotas, "users": _users}
