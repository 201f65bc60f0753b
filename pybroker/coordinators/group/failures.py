"""A request that a group refuses.

Owns: ``GroupFailure``, by which a rule deep inside ends the request; where the request came in, it becomes a response.

Counterpart in Kafka: the ``ApiException`` classes.
"""

from __future__ import annotations

from pybroker_protocol.errors import readable


class GroupFailure(Exception):
    """Kafka's error code, and what the client reads."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = readable(message)
