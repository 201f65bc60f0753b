"""What every kind of group answers, whatever protocol its members speak.

Owns: the questions that committed offsets, listing and deletion ask of a group.  There are two kinds, classic and
consumer groups; groups of the share and streams protocols become further subclasses.

Counterpart in Kafka: ``Group``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


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
        """Whether the group has no member, so that it may go once its last offset has gone."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member may be reading the topic; then its offsets neither expire nor may be deleted."""

    @abstractmethod
    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool = False
    ) -> int:
        """Whether a commit by this member of this generation is accepted, or one of a producer on its behalf."""

    def accepts_older_commit(self, member_id: str, generation_id: int, partitions: Iterable[tuple[bytes, int]]) -> bool:
        """Whether a commit that ``check_offset_commit`` found to be of an older epoch is accepted all the same.

        ``partitions``: (topic id, partition) of all that is committed; the member must have had them since then.
        """
        return False

    def offset_commit_version_min(self, member_id: str) -> int:
        """The oldest version of OffsetCommit that can say what this member has to say."""
        return 0

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> int:
        """Whether offsets may be fetched in the name of this member."""
        return 0

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
