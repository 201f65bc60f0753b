"""The bearer token of a link: asked for on a thread, renewed before it ends, and there before a login begins.

Owns: when the token endpoint is asked, and what waits for its first answer.  Owns neither the question
(``token_endpoint``) nor a login (``source_login``).

Invariants
- The loop asks no endpoint.  One question is under way at a time.
- While a token is good, a renewal that fails or hangs holds nothing up.
- Of a question that is under way at the end nothing is waited for: its bounds of time end its thread.

Counterpart in Kafka: ``ExpiringCredentialRefreshingLogin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pybroker import limits
from pybroker.config.schema import ConfigError
from pybroker.net.peer_login import LoginRefused
from pybroker.net.token_endpoint import TOKEN_FRESH_FOR, token_endpoint
from pybroker.security import oauthbearer

if TYPE_CHECKING:
    from pybroker.config.link_config import LinkConfig
    from pybroker.env import Env, Executor
    from pybroker.net.token_endpoint import Token

# How long a token is used of which the endpoint does not say how long it is good.
UNKNOWN_LIFETIME_S: Final = 60.0
# Between two questions that fail: Kafka's sasl.login.retry.backoff.ms, and its maximum.
RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 10_000
# Before another token is asked for, where the source does not take one.
REFUSED_PAUSE_MS: Final = 1_000


def tokens_of(config: LinkConfig, env: Env) -> SourceTokens | None:
    """Those of a link that logs in by OAUTHBEARER, else None.  ConfigError for settings that name no endpoint."""
    if not config.get("security.protocol").startswith("SASL_") or config.get("sasl.mechanism") != oauthbearer.MECHANISM:
        return None
    try:
        return SourceTokens(env, token_endpoint(config.get).fetch)
    except ValueError as error:
        raise ConfigError(f"{config.name_of('')}{error}") from None


class SourceTokens:
    """``fetch()`` blocks, and gives a token; ValueError."""

    def __init__(self, env: Env, fetch: Callable[[], Token]) -> None:
        self._env = env
        self._fetch = fetch
        self._executor: Executor | None = None
        self._is_fetching = self._is_closed = False
        self._text = self._error = ""
        self._fresh_until_ms = self._good_until_ms = 0
        self._failures = self._retry_at_ms = 0
        self._waiting: list[Callable[[], None]] = []

    def token(self) -> str:
        """The token that is good now; LoginRefused, with the reason, where there is none."""
        if not self._text or self._env.clock.monotonic_ms() >= self._good_until_ms:
            raise LoginRefused(self._error or "there is no token yet")
        return self._text

    def when_known(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` once there is a good token, or it is known why there is none: at once, or later."""
        now_ms = self._env.clock.monotonic_ms()
        if now_ms >= max(self._fresh_until_ms, self._retry_at_ms) and not (self._is_fetching or self._is_closed):
            self._begin()
        if self._is_fetching and now_ms >= self._good_until_ms:
            self._waiting.append(go_on)
        else:
            go_on()

    def refused(self, reason: str) -> None:
        """The source does not take the token: the next login has another, or hears the reason."""
        self._error = reason
        self._fresh_until_ms = self._good_until_ms = 0
        self._retry_at_ms = self._env.clock.monotonic_ms() + REFUSED_PAUSE_MS

    def close(self) -> None:
        """Ask nothing more; what waits goes on at once."""
        self._is_closed = True
        if self._executor is not None and not self._is_fetching:
            self._executor.close()
        self._go_on()

    def _begin(self) -> None:
        if self._executor is None:
            self._executor = self._env.executor("source-tokens", limits.WORKER_NICENESS)
        self._is_fetching = True
        self._executor.submit(self._fetch, self._fetched)

    def _fetched(self, token: Token | None, error: BaseException | None) -> None:
        self._is_fetching = False
        if self._is_closed:
            assert self._executor is not None
            self._executor.close()
            return
        now_ms = self._env.clock.monotonic_ms()
        if token is None:
            self._error = str(error)
            self._retry_at_ms = now_ms + min(RETRY_BACKOFF_MS << min(self._failures, 10), RETRY_BACKOFF_MAX_MS)
            self._failures += 1
        else:
            lifetime_ms = (token.lifetime_s if token.lifetime_s > 0 else UNKNOWN_LIFETIME_S) * 1_000
            self._text, self._error, self._failures = token.text, "the token has ended", 0
            self._fresh_until_ms = now_ms + int(lifetime_ms * TOKEN_FRESH_FOR)
            self._good_until_ms = now_ms + int(lifetime_ms)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()
