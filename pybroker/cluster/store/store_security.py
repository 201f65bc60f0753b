"""How ACLs, users of SCRAM and delegation tokens lie in the metadata store.

Owns: their keys and the fields of their values.  ``store_codec`` has the rest, and says what is written when.

Invariant: nothing here gives away what the store does not: of a token there is its id, not its HMAC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.image.cluster_image import ScramKey
from pybroker.cluster.store.store_names import quoted, unquoted
from pybroker_protocol.uuids import uuid_text

if TYPE_CHECKING:
    from pybroker.security.acl_bindings import Acl
    from pybroker.security.delegation_tokens import DelegationToken
    from pybroker.security.scram import ScramCredential

ACLS: Final = "/acls/"
SCRAM: Final = "/scram/"
TOKENS: Final = "/tokens/"


def acl_key(acl_id: bytes) -> str:
    return ACLS + uuid_text(acl_id)


def acl_fields(acl: Acl) -> dict[str, Any]:
    return {
        "resourceType": acl.resource_type,
        "resourceName": acl.resource_name,
        "patternType": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permissionType": acl.permission_type,
    }


def acl(fields: dict[str, Any]) -> Acl:
    from pybroker.security.acl_bindings import Acl  # a start without ACLs does without

    return Acl(
        fields["resourceType"],
        fields["resourceName"],
        fields["patternType"],
        fields["principal"],
        fields["host"],
        fields["operation"],
        fields["permissionType"],
    )


def scram_key(key: ScramKey) -> str:
    mechanism, user = key
    return f"{SCRAM}{mechanism}/{quoted(user)}"


def scram_of_key(key: str) -> ScramKey:
    mechanism, user = key[len(SCRAM) :].split("/")
    return int(mechanism), unquoted(user)


def credential_fields(credential: ScramCredential) -> dict[str, Any]:
    return {
        "salt": credential.salt.hex(),
        "storedKey": credential.stored_key.hex(),
        "serverKey": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def credential(fields: dict[str, Any]) -> ScramCredential:
    from pybroker.security.scram import ScramCredential  # a start without users does without

    salt, stored_key, server_key = (bytes.fromhex(fields[name]) for name in ("salt", "storedKey", "serverKey"))
    return ScramCredential(salt, stored_key, server_key, fields["iterations"])


def token_key(token_id: str) -> str:
    return TOKENS + quoted(token_id)


def token_id_of_key(key: str) -> str:
    return unquoted(key[len(TOKENS) :])


def token_fields(token: DelegationToken) -> dict[str, Any]:
    return {
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": token.issue_timestamp_ms,
        "expires": token.expiry_timestamp_ms,
        "max": token.max_timestamp_ms,
    }


def token(key: str, fields: dict[str, Any]) -> DelegationToken:
    from pybroker.security.delegation_tokens import DelegationToken  # a start without tokens does without

    return DelegationToken(
        token_id_of_key(key),
        fields["owner"],
        fields["requester"],
        tuple(fields["renewers"]),
        fields["issued"],
        fields["expires"],
        fields["max"],
    )
