"""Topics that a link mirrors are read-only: this stands before the authorizer.

Owns: which operations on a topic are writes, and the refusal of them.  What no principal may do is refused where
permissions are, so that no handler, and no fast path, has a rule of its own.  Owns no permission: what is no write, or
of another topic, the authorizer that is configured decides.

A write is refused with TOPIC_AUTHORIZATION_FAILED, in every version of every request that writes to a topic: Produce,
AddPartitionsToTxn, DeleteRecords, CreatePartitions.  Clients take it as final for this topic, and go on with others.
They do not repeat the batch, as after NOT_LEADER_OR_FOLLOWER.  A transactional producer aborts and lives on, where
POLICY_VIOLATION or a code that it does not know ends it.

The topic as a whole may be deleted; its link makes it anew, unless it is set otherwise.

Counterpart in Kafka: ``ReadOnlyTopicException`` of KIP-1279, which older clients do not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.security.acl_bindings import AclOperation, Resource

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.handlers.authorizer import AuthorizableRequestContext, Authorizer

# ALTER_CONFIGS is none: settings that the link does not follow are this cluster's own.
_WRITES: Final = frozenset((AclOperation.WRITE, AclOperation.ALTER))
_TOPIC: Final = Resource.TOPIC
# DELETE is asked for by two requests, of which DeleteTopics may go by the permission on the cluster, too.
_DELETE: Final = AclOperation.DELETE
_DELETE_RECORDS_KEY: Final = 21


class ReadOnlyTopics:
    """Implements ``Authorizer``, before ``inner``; None: everybody may do everything else."""

    __slots__ = ("_inner", "_metadata")

    def __init__(self, metadata: MetadataCache, inner: Authorizer | None) -> None:
        self._metadata = metadata
        self._inner = inner

    @property
    def keeps_acls(self) -> bool:
        return self._inner is not None

    def allows(
        self,
        ctx: AuthorizableRequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """See ``Authorizer``."""
        if resource_type == _TOPIC and self._is_read_only(name) and _writes(ctx, operation):
            return False
        inner = self._inner
        return inner is None or inner.allows(ctx, operation, resource_type, name, log_if_denied=log_if_denied)

    def _is_read_only(self, name: str) -> bool:
        mirror = self._metadata.image.mirrors.get(name)
        return mirror is not None and not mirror.is_writable

    def allows_by_resource_type(self, ctx: AuthorizableRequestContext, operation: int, resource_type: int) -> bool:
        """See ``Authorizer``."""
        inner = self._inner
        return inner is None or inner.allows_by_resource_type(ctx, operation, resource_type)


def _writes(ctx: AuthorizableRequestContext, operation: int) -> bool:
    return operation in _WRITES or (operation == _DELETE and ctx.api_key == _DELETE_RECORDS_KEY)
