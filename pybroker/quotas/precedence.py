"""Which of the quotas that are set holds for a client, and with whom it shares it.

Owns: the order of precedence.  One kind of quota (say, ``producer_byte_rate``) knows nothing of another.

Kafka counterpart: ClientQuotaManager.DefaultQuotaCallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pybroker.cluster.image.quota_entities import CLIENT_ID, USER, QuotaEntity


class Holder(NamedTuple):
    """Who is measured together: all clients of a user, all users of a client id, or both named; "" is whichever."""

    user: str
    client_id: str


def quota_of(bounds: Mapping[QuotaEntity, float], user: str, client_id: str) -> tuple[Holder, float] | None:
    """Whom the client is measured with, and the bound on them; None where no quota holds.

    A quota of a user and a client comes before one of the user alone, and that before one of the client id. A quota
    that names the user comes before one of any user's, and one that names the client id before one of any client's.
    Only quotas of users hold for a client without an id.
    """
    both, alone, of_client = Holder(user, client_id), Holder(user, ""), Holder("", client_id)
    of_user: QuotaEntity = ((USER, user),)
    of_any_user: QuotaEntity = ((USER, None),)
    if client_id:
        named, default = ((CLIENT_ID, client_id),), ((CLIENT_ID, None),)
        candidates: tuple[tuple[QuotaEntity, Holder], ...] = (
            ((*named, *of_user), both),
            ((*default, *of_user), both),
            (of_user, alone),
            ((*named, *of_any_user), both),
            ((*default, *of_any_user), both),
            (of_any_user, alone),
            (named, of_client),
            (default, of_client),
        )
    else:
        candidates = (of_user, alone), (of_any_user, alone)
    for entity, holder in candidates:
        bound = bounds.get(entity)
        if bound is not None:
            return holder, bound
    return None
