"""Topics that a link mirrors are read-only: this stands before whoever is asked what clients may do.

Owns: which operations on a topic are writes, and the refusal of them: what no principal may do is refused where
permissions are, so that no handler, and no front, has a rule of its own.  Owns no permission: what is no write, or of
another topic, the authorizer that is configured decides.

A write is refused with TOPIC_AUTHORIZATION_FAILED, in every version of every request that writes to a topic: Produce,
AddPartitionsToTxn, DeleteRecords, CreatePartitions, DeleteTopics.  Clients take it as final for this topic, and go on
with others: they do not repeat the batch, as after NOT_LEADER_OR_FOLLOWER, and a transactional producer aborts and
lives on, where POLICY_VIOLATION or a code that it does not know ends it.

Counterpart in Kafka: ``ReadOnlyTopicException`` of KIP-1279, which older clients do not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.cluster.links import STOPPED
from pybroker.security.acls import AclOperation, Resource

if TYPE_CHECKING:
    from pybroker.cluster.metadata_cache import MetadataCache
    from pybroker.handlers.authorizer import AuthorizableRequestContext, Authorizer

# ALTER_CONFIGS is none: settings that the link does not follow are this cluster's own.
_WRITES: Final = frozenset((AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER))
_TOPIC: Final = Resource.TOPIC
_DELETE: Final = AclOperation.DELETE


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
        if resource_type == _TOPIC and operation in _WRITES and self._is_read_only(operation, name):
            return False
        inner = self._inner
        return inner is None or inner.allows(ctx, operation, resource_type, name, log_if_denied=log_if_denied)

    def _is_read_only(self, operation: int, name: str) -> bool:
        mirror = self._metadata.image.mirrors.get(name)
        if mirror is None or mirror.is_writable:
            return False
        # What has stopped may go: nothing would make it anew.
        return operation != _DELETE or mirror.state != STOPPED

    def allows_by_resource_type(self, ctx: AuthorizableRequestContext, operation: int, resource_type: int) -> bool:
        """See ``Authorizer``."""
        inner = self._inner
        return inner is None or inner.allows_by_resource_type(ctx, operation, resource_type)
