"""Changing what is known of users' passwords (KIP-554).

Owns: what may be asked, and the answers, one for each user: all of a user's changes are made or none.

Counterpart in Kafka: ``org.apache.kafka.controller.ScramControlManager``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from itertools import chain

from pybroker.cluster.decisions.operations import NamedResult, ScramUpsertion
from pybroker.cluster.image.cluster_image import ImageBuilder, ScramKey
from pybroker.cluster.store.store_names import refusal_of_length
from pybroker.security.scram import BY_TYPE, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES_MAX, credential_of_salted
from pybroker_protocol.errors import ErrorCode

_TWICE = "A user credential cannot be altered twice in the same request"


def alter_scram_credentials(
    builder: ImageBuilder, deletions: Sequence[ScramKey], upsertions: Sequence[ScramUpsertion]
) -> Generator[None, None, list[NamedResult]]:
    """Delete and set credentials, with places where others may have a turn.

    Returns one answer per user: those that went well first.
    """
    existing = builder.view().scram_credentials
    accepted: dict[str, ScramKey | ScramUpsertion] = {}
    refused: dict[str, NamedResult] = {}
    changes: Iterable[ScramKey | ScramUpsertion] = chain(deletions, upsertions)
    for change in changes:
        yield
        user = change.user if isinstance(change, ScramUpsertion) else change[1]
        if user in refused:
            continue
        if accepted.pop(user, None) is not None:
            refused[user] = NamedResult(user, ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            continue
        refusal = (
            _refusal_of_upsertion(change)
            if isinstance(change, ScramUpsertion)
            else _refusal_of_deletion(existing, change)
        )
        if refusal is not None:
            refused[user] = refusal
        else:
            accepted[user] = change
    for change in accepted.values():
        yield
        if isinstance(change, ScramUpsertion):
            _put(builder, change)
        else:
            builder.remove_scram_credential(change)
    return [*(NamedResult(user) for user in accepted), *refused.values()]


def _put(builder: ImageBuilder, upsertion: ScramUpsertion) -> None:
    mechanism = BY_TYPE[upsertion.mechanism]
    credential = credential_of_salted(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    builder.put_scram_credential((upsertion.mechanism, upsertion.user), credential)


def _refusal_of_deletion(existing: Collection[ScramKey], key: ScramKey) -> NamedResult | None:
    mechanism, user = key
    refusal = _refusal_of_key(user, mechanism)
    if refusal is None and key not in existing:
        message = "Attempt to delete a user credential that does not exist"
        return NamedResult(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return refusal


def _refusal_of_upsertion(upsertion: ScramUpsertion) -> NamedResult | None:
    user = upsertion.user
    refusal = _refusal_of_key(user, upsertion.mechanism)
    if refusal is not None:
        return refusal
    too_long = refusal_of_length(user)
    if too_long is not None:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, too_long)
    if upsertion.iterations < ITERATIONS_MIN:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(upsertion.salt) > SALT_BYTES_MAX:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt is longer than {SALT_BYTES_MAX} bytes")
    if not upsertion.salted_password:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    return None


def _refusal_of_key(user: str, mechanism: int) -> NamedResult | None:
    if not user:
        return NamedResult(user, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in BY_TYPE:
        return NamedResult(user, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None
