"""What a cluster has of a tenant: found, listed and taken away (``pybroker tenants``).

Owns: what counts as a tenant's, and the order in which it goes. Of a tenant ``acme`` are the users ``acme`` and
``acme.*`` with their passwords, ACLs, quotas and delegation tokens. What is named ``acme.*`` is the tenant's, too:
topics, groups and settings of groups, and ACLs of any user about such names. Not owned: which tenants there are
(``tenants``).

Invariants: no user of the tenant gets in any more, nor may do anything, before that is deleted which could be made
anew.  What cannot be taken away is reported, so that no next tenant of that name meets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.cli.commands import quotas, tokens
from pybroker.cli.commands import users as scram_users
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import acl_requests, config_requests, group_requests, topic_requests
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import is_expected, named_error
from pybroker.security.acl_bindings import Acl, AclFilter, AclOperation, PatternType, Permission, Resource
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker_protocol.messages.describe_delegation_token import DescribedDelegationToken

# What a tenant has of its own; ACLs of users say who may have tokens of whom.
RESOURCES: Final = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
_ANY_ACL: Final = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)
_USER: Final = "User"
_NAMES_SHOWN_MAX: Final = 4


class Names(NamedTuple):
    """Which names are a tenant's."""

    tenant: str

    def has(self, name: str | None) -> bool:
        """Whether a topic, a group or a transactional id is its."""
        return name is not None and name.startswith(f"{self.tenant}.")

    def has_user(self, user: str | None) -> bool:
        """Whether a user is its, by name."""
        return user == self.tenant or self.has(user)

    def has_principal(self, principal: str) -> bool:
        """The same of ``type:name``."""
        kind, _, user = principal.partition(":")
        return kind == _USER and self.has_user(user)

    def has_acl(self, acl: Acl) -> bool:
        """Whether an ACL is for one of its users, or about something of its."""
        if self.has_principal(acl.principal):
            return True
        if acl.resource_type == Resource.USER:
            return self.has_principal(acl.resource_name)
        return acl.resource_type in RESOURCES and self.has(acl.resource_name)

    def users_of(self, token: DescribedDelegationToken) -> list[str]:
        """Its users who may renew and end a delegation token; what they only asked for they may not."""
        owner_and_renewers = [(token.principal_type, token.principal_name)]
        owner_and_renewers += [(each.principal_type, each.principal_name) for each in token.renewers]
        return [user for kind, user in owner_and_renewers if kind == _USER and self.has_user(user)]

    def has_token(self, token: DescribedDelegationToken) -> bool:
        """Whether one of its users would see a token's secret: its owner, who asked for it, who may renew it."""
        asked = token.token_requester_principal_type == _USER and self.has_user(token.token_requester_principal_name)
        return asked or bool(self.users_of(token))


class TenantResources(NamedTuple):
    """What there is of a tenant."""

    users: Mapping[str, Mapping[int, int]]  # mechanisms, with iterations, by name
    acls: Sequence[Acl]
    quotas: Sequence[dict[str, Any]]  # as ``quotas.described`` has them
    topics: Sequence[str]
    groups: Mapping[str, str | None]  # states by name
    group_settings: Sequence[str]  # names of groups
    tokens: Sequence[DescribedDelegationToken]

    def told(self) -> str | None:
        """All of it in some words; None where there is nothing."""
        each = [
            *(f"user {user}" for user in sorted(self.users)),
            *(f"topic {topic}" for topic in self.topics),
            *(f"group {group}" for group in self.groups),
            *(f"settings of group {group}" for group in self.group_settings),
            *(f"delegation token {token.token_id}" for token in self.tokens),
            *(f"quotas of {quotas.entity_text(row['entity'])}" for row in self.quotas),
            *(f"an ACL of {acl.principal} for {acl.resource_name}" for acl in sorted(self.acls)),
        ]
        if not each:
            return None
        more = f" and {len(each) - _NAMES_SHOWN_MAX} more" if len(each) > _NAMES_SHOWN_MAX else ""
        return ", ".join(each[:_NAMES_SHOWN_MAX]) + more

    @property
    def busy_groups(self) -> list[str]:
        """Groups that have members; brokers that tell no states refuse to delete them later."""
        return [group for group, state in self.groups.items() if state not in (None, "Empty", "Dead")]


def find(client: AdminClient, names: Names) -> TenantResources:
    """What there is of a tenant; CommandFailed."""
    return TenantResources(
        {user: found for user, found in scram_users.described(client, []).items() if names.has_user(user)},
        [acl for acl in acl_requests.described(client, _ANY_ACL) if names.has_acl(acl)],
        [row for row in quotas.described(client, {}) if names.has_user(row["entity"].get("user"))],
        [topic for topic in sorted(retried(lambda: topic_requests.names(client))) if names.has(topic)],
        {each.group: each.state for each in retried(lambda: group_requests.listed(client)) if names.has(each.group)},
        [group for group in _groups_with_settings(client) if names.has(group)],
        [token for token in tokens.all_tokens(client) if names.has_token(token)],
    )


def take_away(session: Session, client: AdminClient, names: Names, resources: TenantResources) -> list[str]:
    """Take all of it away; why some of it is still there.  CommandFailed where nothing else can be begun."""
    failures = _expire(session, client, names, resources.tokens)
    for user, mechanisms in (scram_users.described(client, [*resources.users]) if resources.users else {}).items():
        scram_users.remove(client, user, mechanisms)
    if resources.acls:
        failures += acl_requests.delete(client, [AclFilter(*acl) for acl in resources.acls])[1]
    for row in resources.quotas:
        quotas.alter(client, [row["entity"]], dict.fromkeys(row["quotas"]))
    if resources.topics:
        answers = topic_requests.delete(client, resources.topics)
        gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        failures += [
            f"topic {each['name']}: {named_error(each['error_code'], each.get('error_message'))}"
            for each in answers
            if each["error_code"] not in gone
        ]
    if resources.groups:
        codes = group_requests.delete(client, [*resources.groups])
        failures += [f"group {group}: {named_error(code)}" for group, code in sorted(codes.items()) if code]
    for group in resources.group_settings:
        own = [each["name"] for each in config_requests.described(client, "group", group) if _is_set(each)]
        config_requests.alter(client, "group", group, config_requests.changes_of([], own), dry_run=False)
    return failures


def _is_set(setting: Mapping[str, Any]) -> bool:
    return bool(setting["source"] == "DYNAMIC_GROUP_CONFIG")


def _groups_with_settings(client: AdminClient) -> list[str]:
    """Also of groups that are not there."""
    from pybroker_protocol.messages.list_config_resources import ListConfigResourcesRequest

    since = ListConfigResourcesRequest.since("resource_types")
    if not client.serves(ListConfigResourcesRequest, since):
        return []
    kind = config_requests.TYPES["group"]
    reply = retried(lambda: client.ask(ListConfigResourcesRequest(resource_types=[kind]), min_version=since))
    if reply.error_code:
        raise refused("settings of groups", reply.error_code)
    return sorted(each.resource_name for each in reply.config_resources)


def _expire(
    session: Session, client: AdminClient, names: Names, its_tokens: Sequence[DescribedDelegationToken]
) -> list[str]:
    """End delegation tokens, which only owners and renewers may, not even super users: so as one of these."""
    failures: list[str] = []
    by_user: dict[str, list[DescribedDelegationToken]] = {}
    for token in its_tokens:
        if users := names.users_of(token):
            by_user.setdefault(users[0], []).append(token)
        else:
            owner = f"{token.principal_type}:{token.principal_name}"
            failures.append(f"delegation token {token.token_id} can be ended by its owner {owner} alone")
    for user, its in by_user.items():
        try:
            with scram_users.acting_as(session, client, user) as own:
                for token in its:
                    tokens.end(own, token.token_id, bytes(token.hmac))
        except Exception as error:
            if not is_expected(error):
                raise
            ids = ", ".join(token.token_id for token in its)
            failures.append(f"delegation token {ids} can be ended by {_USER}:{user} alone, and {error}")
    return failures
