"""Changes of who gets in and of who may do what: users of SCRAM, and ACLs, as operations of the controller.

Owns: the operations and their answers.  Owns no rule (``decisions/scram_changes``, ``decisions/acl_changes``) and not
who may ask (the handlers).  Each ``done`` runs as those of ``Controller`` do.

Counterparts in Kafka: ``ScramControlManager`` and ``AclControlManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from pybroker.cluster.controller.controller import REQUEST_TIMEOUT_MS, refuse_named
from pybroker.cluster.decisions import acl_changes as acl_rules
from pybroker.cluster.decisions import scram_changes as scram_rules
from pybroker.cluster.decisions.operations import AclDeletion, NamedResult, Outcome, ScramUpsertion

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.image.cluster_image import ImageBuilder, ScramKey
    from pybroker.security.acl_bindings import Acl, AclFilter


def alter_scram_credentials(
    controller: Controller,
    deletions: Sequence[ScramKey],
    upsertions: Sequence[ScramUpsertion],
    done: Callable[[list[NamedResult]], None],
) -> None:
    """Delete and set what is known of users' passwords; one answer per user."""
    users = dict.fromkeys((*(user for _, user in deletions), *(upsertion.user for upsertion in upsertions)))

    def decide(builder: ImageBuilder) -> Generator[None, None, list[NamedResult]]:
        return scram_rules.alter_scram_credentials(builder, deletions, upsertions)

    controller.submit(decide, refuse_named(list(users)), done, timeout_ms=REQUEST_TIMEOUT_MS)


def create_acls(controller: Controller, acls: Sequence[Acl], done: Callable[[list[Outcome]], None]) -> None:
    """Add ACLs; one answer each, in the order asked."""

    def refuse(code: int, message: str | None) -> list[Outcome]:
        return [Outcome(code, message)] * len(acls)

    def decide(builder: ImageBuilder) -> Generator[None, None, list[Outcome]]:
        return acl_rules.create_acls(builder, acls)

    controller.submit(decide, refuse, done, timeout_ms=REQUEST_TIMEOUT_MS)


def delete_acls(
    controller: Controller, filters: Sequence[AclFilter], done: Callable[[list[AclDeletion]], None]
) -> None:
    """Remove the ACLs that the filters match; one answer each, in the order asked."""

    def refuse(code: int, message: str | None) -> list[AclDeletion]:
        return [AclDeletion((), code, message)] * len(filters)

    def decide(builder: ImageBuilder) -> Generator[None, None, list[AclDeletion]]:
        return acl_rules.delete_acls(builder, filters)

    controller.submit(decide, refuse, done, timeout_ms=REQUEST_TIMEOUT_MS)
