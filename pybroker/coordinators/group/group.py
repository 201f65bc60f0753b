"""What every kind of group answers, whatever protocol its members speak.

Owns: the questions that committed offsets, listing and deletion ask of a group.  Today there is one kind, the
classic group; groups of the consumer, share and streams protocols become further subclasses.

Counterpart in Kafka: ``Group``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Group(ABC):
    """A group by its id.  Methods named ``check_*`` return one of Kafka's error codes, 0 when all is well."""

    __slots__ = ()

    group_id: str
    # The name of the kind, as ListGroups shows and filters it.
    group_type: str

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, by the name that ListGroups shows."""

    @property
    @abstractmethod
    def protocol_type_name(self) -> str:
        """The protocol type, empty for a group that only keeps offsets."""

    @property
    @abstractmethod
    def is_deletable(self) -> bool:
        """Whether the group has nobody in it, so that it may go once its last offset has gone."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member may be reading the topic; then its offsets neither expire nor may be deleted."""

    @abstractmethod
    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool = False
    ) -> int:
        """Whether a commit by this member of this generation is accepted, or one of a producer on its behalf."""

    @abstractmethod
    def check_offset_delete(self) -> int:
        """Whether single offsets may be deleted."""

    @abstractmethod
    def check_delete(self) -> int:
        """Whether the group may be deleted with all its offsets."""

    @abstractmethod
    def offsets_expire_from(self, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset committed at that time began, or None while it does not expire."""

    @abstractmethod
    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        """The records that remove the group, its offsets aside."""
