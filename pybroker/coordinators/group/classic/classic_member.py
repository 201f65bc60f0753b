"""One member of a classic group.

Owns: what the member said when it joined, what it was assigned, and which of its requests are parked.

``assignment`` is of the present generation, and nothing once that came to nothing. ``held`` is of the last one that the
log has: what the member reads by until it joins again.

Counterpart in Kafka: ``ClassicGroupMember``.
"""

from __future__ import annotations

from pybroker.coordinators.result import Waiter

# (name, metadata), in the member's order of preference.
Protocols = tuple[tuple[str, bytes], ...]


class ClassicMember:
    """A member; dynamic when ``group_instance_id`` is None, else static (KIP-345)."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "held",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.held = b""
        self.is_new = False
        self.join_waiter: Waiter | None = None
        self.sync_waiter: Waiter | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_held_by_a_request(self) -> bool:
        """Whether a parked request keeps the session alive by itself.

        A new member's does not: it does not know its id yet, so a client that gave up and came back would leave a
        member behind that nothing else removes.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """What the member sent along with the protocol; raises KeyError when it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)
