"""Who may do what: the port that security is plugged into.

Owns: what an authorizer is asked, and what of a request it may look at.  Without one everybody may do everything.
``security/standard_authorizer`` implements it, and ``read_only_topics`` before that, or alone.

Counterpart in Kafka: ``Authorizer`` and ``AuthorizableRequestContext`` in ``org.apache.kafka.server.authorizer``.
"""

from __future__ import annotations

from typing import Protocol


class AuthorizableRequestContext(Protocol):
    """What an authorizer sees of a request; ``RequestContext`` says what each of these is."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener: str
    principal: str

    @property
    def is_brokers(self) -> bool: ...


class Authorizer(Protocol):
    """``Services.authorizer``."""

    @property
    def keeps_acls(self) -> bool:
        """Whether it goes by ACLs: else there are none to be described or changed."""
        ...

    def allows(
        self,
        ctx: AuthorizableRequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Whether the request's principal may do ``operation`` on the resource, from where it is connected.

        ``log_if_denied`` is false where nobody is refused anything: what is left out of a list, or allowed otherwise.
        """
        ...

    def allows_by_resource_type(self, ctx: AuthorizableRequestContext, operation: int, resource_type: int) -> bool:
        """Whether the principal may do ``operation`` on any resource of that type."""
        ...
