"""What a client's requests may change of the metadata (KIP-599): CreateTopics, CreatePartitions, DeleteTopics.

Owns: who counts for which request.  It is counted where the request is done, which is the active controller's broker,
and reported to the client that sent it.  What Metadata creates at need is counted by the broker that was asked, and not
told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.cluster.decisions.operations import Allows, anything

if TYPE_CHECKING:
    from pybroker.handlers.context import RequestContext
    from pybroker.quotas.client_quotas import MutationQuota


class Mutations:
    """One request's.  From version ``strict_since`` on what is over the quota is refused; before it is only
    reported."""

    __slots__ = ("_quota",)

    def __init__(self, ctx: RequestContext, strict_since: int) -> None:
        quotas = ctx.services.quotas
        self._quota: MutationQuota | None = None
        if quotas is not None and not ctx.is_brokers:
            self._quota = quotas.mutations(ctx.principal, ctx.client_id, strict=ctx.api_version >= strict_since)

    @property
    def allows(self) -> Allows:
        """Whether so many partitions may be made or deleted now, which counts them."""
        return anything if self._quota is None else self._quota.allows

    @property
    def throttle_time_ms(self) -> int:
        """For how long the client is to rest, from now on."""
        return 0 if self._quota is None else self._quota.throttle_ms
