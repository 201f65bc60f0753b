"""Delegation tokens of the cluster (KIP-48): their operations, and that those which have expired go.

Owns: whether tokens are served at all, which token an HMAC is of, who logs in by one here, and when the active
controller looks for expired ones.  Owns no rule (``decisions/token_changes``), no secret's form
(``security/delegation_tokens``), and not who may ask (the handlers).

Invariants: it has a timer only while this broker's controller is active; one look is under way at a time.  Without
``delegation.token.secret.key`` nothing of it is served, and existing tokens let no client in.

Counterpart in Kafka: ``DelegationTokenControlManager`` and ``DelegationTokenManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from pybroker.cluster.controller.controller import REQUEST_TIMEOUT_MS
from pybroker.cluster.decisions.operations import NewToken, TokenCreation, TokenExpiry
from pybroker.cluster.decisions.token_changes import (
    Lifetimes,
    create_token,
    expire_token,
    remove_expired_tokens,
    renew_token,
)
from pybroker.security.delegation_tokens import DelegationToken, TokenLogins, TokenSecret
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.image.cluster_image import ImageBuilder
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env

log = logging.getLogger(__name__)


class DelegationTokens:
    """``Services.tokens``; each ``done`` runs as those of ``Controller`` do.

    Made before the controller becomes active.
    """

    def __init__(self, env: Env, config: BrokerConfig, controller: Controller, metadata: MetadataCache) -> None:
        self._env = env
        self._controller = controller
        self._lifetimes = Lifetimes(
            config.get_int("delegation.token.max.lifetime.ms"), config.get_int("delegation.token.expiry.time.ms")
        )
        self._pause_ms = config.get_int("delegation.token.expiry.check.interval.ms")
        key = config.get_str("delegation.token.secret.key")
        self.secret: TokenSecret | None = None  # None, as is the next: tokens are not served
        self.logins: TokenLogins | None = None
        self._timer: Cancellable | None = None
        if key:
            self.secret = secret = TokenSecret(key)
            self.logins = TokenLogins(secret, lambda: metadata.image.delegation_tokens, env.clock, env.executor)
            controller.activity_listeners.append(self._on_activity)

    def close(self) -> None:
        """Look for nothing any more, and let no client in."""
        self._on_activity(False)
        if self.logins is not None:
            self.logins.close()

    def create(self, wanted: NewToken, done: Callable[[TokenCreation], None]) -> None:
        """Make a token."""
        secret = self.secret
        if secret is None:
            self._refuse(lambda: done(TokenCreation(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)))
            return
        token_id = uuid_text(self._env.new_uuid())

        def decide(builder: ImageBuilder) -> TokenCreation:
            token = create_token(builder, token_id, wanted, self._lifetimes, self._env.clock.now_ms())
            return TokenCreation(0, token, secret.hmac_of(token_id))

        self._controller.submit(decide, lambda code, message: TokenCreation(code), done, timeout_ms=REQUEST_TIMEOUT_MS)

    def renew(self, token_hmac: bytes, principal: str, period_ms: int, done: Callable[[TokenExpiry], None]) -> None:
        """Have the token with this HMAC last longer."""

        def change(builder: ImageBuilder, token: DelegationToken | None) -> TokenExpiry:
            return renew_token(builder, token, principal, period_ms, self._lifetimes, self._env.clock.now_ms())

        self._change(token_hmac, change, done)

    def expire(self, token_hmac: bytes, principal: str, period_ms: int, done: Callable[[TokenExpiry], None]) -> None:
        """Say when the token with this HMAC expires; a negative period: now."""

        def change(builder: ImageBuilder, token: DelegationToken | None) -> TokenExpiry:
            return expire_token(builder, token, principal, period_ms, self._env.clock.now_ms())

        self._change(token_hmac, change, done)

    def _change(
        self,
        token_hmac: bytes,
        change: Callable[[ImageBuilder, DelegationToken | None], TokenExpiry],
        done: Callable[[TokenExpiry], None],
    ) -> None:
        secret = self.secret
        if secret is None:
            self._refuse(lambda: done(TokenExpiry(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)))
            return

        def decide(builder: ImageBuilder) -> Generator[None, None, TokenExpiry]:
            token = yield from secret.token_of(token_hmac, builder.view().delegation_tokens)
            return change(builder, token)

        self._controller.submit(decide, lambda code, message: TokenExpiry(code), done, timeout_ms=REQUEST_TIMEOUT_MS)

    def _refuse(self, answer: Callable[[], None]) -> None:
        self._env.timers.call_soon(answer)

    # ------------------------------------------------------------------ what has expired

    def _on_activity(self, is_active: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_active:
            self._timer = self._env.timers.call_later(self._pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None

        def decide(builder: ImageBuilder) -> Generator[None, None, list[DelegationToken]]:
            return remove_expired_tokens(builder, self._env.clock.now_ms())

        self._controller.submit(decide, lambda code, message: [], self._on_looked)

    def _on_looked(self, expired: list[DelegationToken]) -> None:
        for token in expired:
            log.info("the delegation token %s of %r has expired", token.token_id, token.owner)
        if self._timer is None and self._controller.is_active:  # else another time of being active has begun, or none
            self._timer = self._env.timers.call_later(self._pause_ms, self._look)
