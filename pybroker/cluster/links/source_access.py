"""Asking a link's source who may do what there: ACLs, quotas, which users have SCRAM credentials, and which groups are
seen.

Owns: the questions, of those kinds alone that the link is set to carry, and the words for a source that does not tell.
Does not own what follows (``decisions/carried_access``), nor when it is asked (``link_keeper``).

Counterpart in Kafka: ``MirrorSourceConnector.listTopicAclBindings``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.decisions.carried_access import SourceAccess
from pybroker.cluster.image.quota_entities import entity_of
from pybroker.cluster.links.source_port import (
    ANY_NODE,
    DESCRIBE_ACLS_VERSION,
    DESCRIBE_CLIENT_QUOTAS_VERSION,
    DESCRIBE_USER_SCRAM_CREDENTIALS_VERSION,
    LIST_GROUPS_VERSION,
    METADATA_VERSION,
)
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.describe_acls import DescribeAclsRequest
from pybroker_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pybroker_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from pybroker_protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from pybroker.cluster.links.source_port import Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.config.link_config import LinkConfig
    from pybroker_protocol.schema import Request

ACCESS_TIMEOUT_MS: Final = 10_000
# What a link may carry, by the setting that says of which.
KINDS: Final = ("acls", "quotas", "users")

_GROUPS: Final = "groups"
_UNANSWERED: Final = "the source does not answer that"

_RIGHT: Final = {"acls": "DESCRIBE", "quotas": "DESCRIBE_CONFIGS", "users": "DESCRIBE"}


def ask_for_access(source: Source, config: LinkConfig, done: Callable[[SourceAccess], None]) -> None:
    """``done(access)`` with what the link carries, once the source has answered each question, or has not."""
    kinds = [kind for kind in KINDS if config.get(kind)]
    waits_for = [*kinds, *([_GROUPS] if config.named_groups() else [])]
    found = SourceAccess()
    if not waits_for:
        done(found)
        return

    def take(kind: str, told: Any, why: str | None) -> None:
        nonlocal found
        if why is None:
            found = found._replace(**{kind: told})
        else:
            found = found._replace(refused={**found.refused, kind: why})
        waits_for.remove(kind)
        if not waits_for:
            done(found)

    def answered(kind: str, response: Any | None, _error: PeerError | None) -> None:
        why = _refusal(kind, response)
        take(kind, None if why else _READ[kind](response), why)

    if _GROUPS in waits_for:
        _ask_for_groups(source, lambda groups: take(_GROUPS, groups, _UNANSWERED if groups is None else None))
    for kind in kinds:
        request, version = _question(kind)
        source.ask(ANY_NODE, request, version, partial(answered, kind), timeout_ms=ACCESS_TIMEOUT_MS)


def _ask_for_groups(source: Source, done: Callable[[dict[str, str] | None], None]) -> None:
    """``done(groups)`` that the link may see, each node's, with their protocols; None where one does not answer."""
    groups: dict[str, str] | None = {}
    waits_for: set[int] = set()

    def listed(node: int, response: Any | None, _error: PeerError | None) -> None:
        nonlocal groups
        if response is None or response.error_code:
            groups = None
        elif groups is not None:
            groups.update((group.group_id, group.protocol_type) for group in response.groups)
        waits_for.discard(node)
        if not waits_for:
            done(groups)

    def known(response: Any | None, _error: PeerError | None) -> None:
        if response is None or not response.brokers:
            done(None)
            return
        waits_for.update(broker.node_id for broker in response.brokers)
        for node in tuple(waits_for):
            request = ListGroupsRequest(states_filter=[])
            source.ask(node, request, LIST_GROUPS_VERSION, partial(listed, node), timeout_ms=ACCESS_TIMEOUT_MS)

    nodes = MetadataRequest(topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    source.ask(ANY_NODE, nodes, METADATA_VERSION, known, timeout_ms=ACCESS_TIMEOUT_MS)


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
        return _UNANSWERED
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
