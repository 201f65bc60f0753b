"""The authorizer: what ACLs, super users and the default come to, remembered, and written into the audit log.

Owns: ``StandardAuthorizer``: super users, the default where no ACL concerns a resource, the memory of decisions, and
the lines of the logger ``kafka.authorizer.logger``.  Owns no rule of ACLs (``acl_rules``) and no ACL: it hears of each
change of the metadata, and forgets then what it had decided.

Another broker of the cluster may do everything once it has proved that it is one (Kafka wants it among the super
users). The client whose request it forwards may do what its own principal may.

The audit log is Kafka's. A denial is a line at INFO, a grant one at DEBUG, and questions behind which no refusal stands
(what may be listed, authorized operations) say nothing. A client can cause denials at will, so they are folded: one
line for each kind, then counts; and beyond so many kinds (``rate_limited_log.FOLDED_LOG_KINDS_OF_ONE``) counts alone.

Counterpart in Kafka: ``org.apache.kafka.metadata.authorizer.StandardAuthorizer``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pybroker import limits
from pybroker.config.loggers import AUDIT_LOGGER
from pybroker.config.schema import ConfigError
from pybroker.rate_limited_log import RateLimitedLog
from pybroker.security.acl_bindings import Acl, AclOperation, Resource
from pybroker.security.acl_rules import AclIndex
from pybroker_protocol.api_keys import NAMES

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Timers

# Decisions about longer names are not remembered, and such names are cut in the audit log: a client may send 32 KiB.
AUTHORIZER_NAME_CHARS = 1_000

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

audit_log = logging.getLogger(AUDIT_LOGGER)

# (principal, host, operation, type of resource, its name); the name is None for any resource of the type.
_Question = tuple[str, str, int, int, str | None]
# A name that Kafka asks for to find out what holds for all names, for a super user above all.
_ANY_NAME: Final = "hardcode"


class WhoAsks(Protocol):
    """What is looked at of a request, of what an authorizer may see; ``RequestContext`` says what each of these is."""

    api_key: int
    client_host: str
    principal: str

    @property
    def is_brokers(self) -> bool: ...


class AuthorizerSettings(NamedTuple):
    """Who may do everything, and what holds where no ACL concerns a resource."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False

    @staticmethod
    def of_config(config: BrokerConfig) -> AuthorizerSettings | None:
        """What a broker's settings say; None where no authorizer is configured.

        Raises ``ConfigError`` for another class than Kafka's standard one, and for a super user that is no principal.
        What is not ``true`` is false, as in Kafka.
        """
        name = config.get_str("authorizer.class.name")
        if not name:
            return None
        if name != STANDARD_AUTHORIZER:
            message = f"there is no authorizer but {STANDARD_AUTHORIZER}"
            raise ConfigError(f"Invalid value {name} for configuration authorizer.class.name: {message}")
        static = config.static
        users = [user.strip() for user in static.get("super.users", "").split(";")]
        for user in users:
            if user and ":" not in user:
                message = f"expected a string in format principalType:principalName but got {user}"
                raise ConfigError(f"Invalid value for configuration super.users: {message}")
        allow_if_no_acl = static.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
        return AuthorizerSettings(frozenset(user for user in users if user), allow_if_no_acl)


class StandardAuthorizer:
    """Implements ``handlers.authorizer.Authorizer``."""

    keeps_acls = True

    __slots__ = ("_acls", "_allow_if_no_acl", "_decisions", "_index", "_limited_log", "_super_users")

    def __init__(self, settings: AuthorizerSettings, timers: Timers) -> None:
        """There are no ACLs before ``on_acls`` tells of some."""
        self._super_users = settings.super_users
        self._allow_if_no_acl = settings.allow_if_no_acl
        self._acls: Mapping[bytes, Acl] = {}
        self._index = AclIndex()
        self._decisions: dict[_Question, bool] = {}
        self._limited_log = RateLimitedLog(audit_log, timers, logging.INFO)

    def close(self) -> None:
        """Log the denials that are not logged yet."""
        self._limited_log.close()

    def on_acls(self, acls: Mapping[bytes, Acl], changed: Collection[bytes]) -> None:
        """``acls`` are all there are, and those of the ids ``changed`` are new, or gone: forget what was decided."""
        if not changed:
            return
        for acl_id in changed:
            if acl_id in self._acls:
                self._index.remove(self._acls[acl_id])
            if acl_id in acls:
                self._index.add(acls[acl_id])
        self._acls = acls
        self._decisions.clear()

    def allows(
        self,
        ctx: WhoAsks,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Whether the request's principal may do ``operation`` on the resource, from where it is connected."""
        question = ctx.principal, ctx.client_host, operation, resource_type, name
        allowed = self._decisions.get(question)
        if allowed is None:
            allowed = self._remember(question, self._decide(question)[0])
        if not allowed:
            if ctx.is_brokers:
                return True
            if log_if_denied:
                self._log_denial(ctx, question)
        elif audit_log.isEnabledFor(logging.DEBUG):
            audit_log.debug("%s", self._audit_line(ctx, question))
        return allowed

    def allows_by_resource_type(self, ctx: WhoAsks, operation: int, resource_type: int) -> bool:
        """Whether the principal may do ``operation`` on any resource of that type."""
        if ctx.is_brokers:
            return True
        question = ctx.principal, ctx.client_host, operation, resource_type, None
        allowed = self._decisions.get(question)
        if allowed is None:
            principal, host = ctx.principal, _address(ctx.client_host)
            everywhere, _ = self._decide((principal, ctx.client_host, operation, resource_type, _ANY_NAME))
            allowed = self._remember(
                question, everywhere or self._index.decide_by_resource_type(principal, host, operation, resource_type)
            )
        return allowed

    def _decide(self, question: _Question) -> tuple[bool, str]:
        """Whether it is allowed, and by which rule, in the words of Kafka's audit log."""
        principal, client_host, operation, resource_type, name = question
        assert name is not None
        if principal in self._super_users:
            return True, "SuperUser"
        allowed, acl = self._index.decide(principal, _address(client_host), operation, resource_type, name)
        if allowed is None:
            allowed = self._allow_if_no_acl
        if acl is not None:
            return allowed, f"MatchingAcl(acl={acl.describe()})"
        return allowed, "DefaultAllow" if allowed else "DefaultDeny"

    def _remember(self, question: _Question, allowed: bool) -> bool:
        principal, _, _, _, name = question
        if len(principal) + len(name or "") <= AUTHORIZER_NAME_CHARS:  # the client's to choose
            if len(self._decisions) >= limits.AUTHORIZER_DECISIONS:
                self._decisions.clear()
            self._decisions[question] = allowed
        return allowed

    def _log_denial(self, ctx: WhoAsks, question: _Question) -> None:
        principal, host, operation, resource_type, name = question
        if not audit_log.isEnabledFor(logging.INFO):
            return
        reason = f"{AclOperation(operation).name} on {Resource(resource_type).name} {name}"
        if self._limited_log.is_first(f"denials of {_cut(principal)} from {_address(host)}", _printable(_cut(reason))):
            audit_log.info("%s", self._audit_line(ctx, question))

    def _audit_line(self, ctx: WhoAsks, question: _Question) -> str:
        principal, host, operation, resource_type, name = question
        allowed, rule = self._decide(question)
        line = (
            f"Principal = {_cut(principal)} is {'Allowed' if allowed else 'Denied'} "
            f"operation = {AclOperation(operation).name} from host = {_address(host)} "
            f"on resource = {_TYPE_NAMES[resource_type]}:LITERAL:{_cut(name or '')} "
            f"for request = {NAMES.get(ctx.api_key, ctx.api_key)} with resourceRefCount = 1 based on rule {rule}"
        )
        return _printable(line)


def _cut(name: str) -> str:
    """No longer than any name that is meant."""
    chars_max = AUTHORIZER_NAME_CHARS
    return name if len(name) <= chars_max else f"{name[:chars_max]}… ({len(name)} characters)"


def _printable(line: str) -> str:
    """Names are the client's to choose, and must not look like further lines."""
    return line if line.isprintable() else repr(line)[1:-1]


def _address(client_host: str) -> str:
    """A client's address as it stands in ACLs: as Java writes it."""
    host = client_host.removeprefix("/")
    return _java_ipv6(host) if ":" in host else host


def _java_ipv6(host: str) -> str:
    """Java shortens no zeros, and takes a mapped address of version 4 for one."""
    from ipaddress import IPv6Address

    text, percent, scope = host.partition("%")
    address = IPv6Address(text)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope


_TYPE_NAMES: Final[dict[int, str]] = {
    Resource.TOPIC: "Topic",
    Resource.GROUP: "Group",
    Resource.CLUSTER: "Cluster",
    Resource.TRANSACTIONAL_ID: "TransactionalId",
    Resource.DELEGATION_TOKEN: "DelegationToken",
    Resource.USER: "User",
}
