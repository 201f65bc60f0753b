"""A SASL mechanism, as the broker's side of one exchange: the port behind which each mechanism has a file of its own.

Owns: the port and its errors.  Owns no mechanism (``plain``, ``scram``) and not the order of requests (``login``).

Counterpart in Kafka: ``javax.security.sasl.SaslServer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class SaslError(Exception):
    """The exchange has failed.  Its text is for the log, and must name no secret; clients get nothing of it."""


class SaslRefused(SaslError):
    """The exchange has failed for a reason that its client may read: it says nothing of who exists.

    ``reason`` is what the log says instead.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class NotYet(NamedTuple):
    """What an answer needs is not there yet: ``subscribe(go_on)`` has it made, and ``go_on()`` called when it is there.

    Then the same token is to be evaluated again.  ``subscribe`` returns what calls it off.
    """

    subscribe: Callable[[Callable[[], None]], Callable[[], None]]


class SaslServer(Protocol):
    """One exchange.  ``evaluate`` is called with each token until ``user`` is known, or it raises."""

    @property
    def user(self) -> str | None:
        """Who has proved to be whom: None until the exchange is complete."""
        ...

    @property
    def expires_at_ms(self) -> int | None:
        """When what was shown runs out, by the wall's clock (tokens); None where it does not."""
        ...

    @property
    def is_token(self) -> bool:
        """Whether a delegation token was shown, whose holder may ask for no others."""
        ...

    def evaluate(self, token: bytes) -> bytes | NotYet:
        """The answer to the client's next token.  Raises ``SaslError``, after which there is no going on."""
        ...
