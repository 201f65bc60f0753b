"""Simulated members of a group that changes its protocol while it lives: classic ones, cooperative, and KIP-848 ones.

Kafka counterpart: a rolling upgrade of consumers from ``group.protocol=classic`` to ``consumer``, and the way back
(KIP-848's online migration).  A member keeps to one protocol; whoever takes its place may speak the other.

The oracle is that of KIP-848 groups in both kinds of the group, and across the change: a partition has one owner, a
member that was assigned it and has not said that it gave it back.  Cooperative members keep to that, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from tests.simulation import embedded
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.consuming import Partition
from tests.simulation.members import Claim, ClassicMember
from tests.simulation.model import GroupModel

if TYPE_CHECKING:
    from tests.simulation.run import Run


class _Unjudged(GroupModel):
    """Generations and epochs are numbered by two coordinators in turn: ownership is judged, not they."""

    def joined(self, *_: Any) -> None: ...

    def assigns(self, *_: Any) -> None: ...

    def synced(self, *_: Any) -> None: ...


class EmbeddedMember(ClassicMember):
    """A member of the classic protocol whose coordinator may understand what it says to its leader."""

    def __init__(
        self, simulation: Run, name: str, group: str, partitions: list[Partition], read_committed: bool
    ) -> None:
        super().__init__(simulation, name, group, partitions, cooperative=True, read_committed=read_committed)
        self.owners = simulation.model.owners(group)

    def _judge(self) -> GroupModel:
        return _Unjudged(self.group)

    def _subscription(self) -> bytes:
        if self.member_id:
            self.owners.says(self.member_id, self.owned)
        return embedded.subscription(sorted({topic for topic, _ in self.partitions}), self.owned)

    def _owned_in(self, metadata: bytes) -> Claim:
        return -1, embedded.owned_in(metadata)  # of a version without generations

    def _assignment(self, partitions: list[Partition]) -> bytes:
        return embedded.assignment(partitions)

    def _partitions_in(self, assignment: bytes) -> list[Partition]:
        assigned = embedded.partitions_in(assignment)
        if self.simulation.knows_members(self.client, self.group):
            members = self.simulation.members_of(self.group)
            self.owners.assigned(self.member_id, self.generation, assigned, members)
        return assigned

    def _forget_membership(self, keep_id: bool) -> None:
        self.owners.gone(self.member_id)
        super()._forget_membership(keep_id)

    def _starts_again(self) -> None:
        self.replaced = True


class _Kip848Member(ConsumerMember):
    """A member of the consumer protocol, whose group may be a classic one when it comes back from a stall."""

    lost_membership = ConsumerMember.lost_membership | {ErrorCode.GROUP_ID_NOT_FOUND}

    def _starts_again(self) -> None:
        self.replaced = True


class SwitchingMember:
    """A place in the group; whoever has it speaks one protocol or the other."""

    def __init__(
        self, simulation: Run, name: str, group: str, partitions: list[Partition], read_committed: bool
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.group = group
        self.partitions = partitions
        self.read_committed = read_committed
        self.random = simulation.new_random()

    async def run(self) -> None:
        """One member after another, until told to leave."""
        count = 0
        while not self.simulation.leaving:
            count += 1
            kind = self.random.choice((EmbeddedMember, _Kip848Member))
            name = f"{self.name}.{count}"
            self.simulation.trace(self.name, f"is {name}, {kind.__name__}")
            await kind(self.simulation, name, self.group, self.partitions, self.read_committed).run()
