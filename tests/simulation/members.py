"""Simulated members of classic groups: join, sync, heartbeat, read, commit; eager and cooperative.

Kafka counterpart: the Java client's ConsumerCoordinator and AbstractCoordinator, in one sequence of requests instead of
two threads.  The assignors are the client's own: round robin for the eager protocol, a sticky one that takes nothing
from an owner before it was revoked for the cooperative one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest
from pybroker_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.client import Disconnected
from tests.simulation.consuming import GROUP_IS_ELSEWHERE, Consuming, Partition, find_coordinator
from tests.simulation.model import GroupModel, check

if TYPE_CHECKING:
    from tests.simulation.run import Run

Claim = tuple[int, list[Partition]]  # in which generation a member was given what it owns

SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_MS = 8_000
LOST_MEMBERSHIP = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}


def round_robin(members: list[str], partitions: list[Partition]) -> dict[str, list[Partition]]:
    """Each partition to the next member."""
    return {
        member: [part for i, part in enumerate(partitions) if i % len(members) == position]
        for position, member in enumerate(sorted(members))
    }


def sticky(claims: dict[str, Claim], partitions: list[Partition]) -> dict[str, list[Partition]]:
    """Balanced, and a partition that another member owns yet is given to nobody in this generation.

    Where two say that they own one, it is of whom it was given to last: the other was away meanwhile.
    """
    newest: dict[Partition, int] = {}
    for generation, parts in claims.values():
        newest |= {part: max(generation, newest.get(part, generation)) for part in parts}
    owned = {
        member: [part for part in parts if newest[part] == generation] for member, (generation, parts) in claims.items()
    }
    share = -(-len(partitions) // len(owned))
    kept = {member: parts[:share] for member, parts in sorted(owned.items())}
    taken = {part for parts in owned.values() for part in parts}
    for part in partitions:
        if part not in taken:
            kept[min(kept, key=lambda member: (len(kept[member]), member))].append(part)
    return kept


class ClassicMember:
    """One consumer of a classic group."""

    def __init__(
        self,
        simulation: Run,
        name: str,
        group: str,
        partitions: list[Partition],
        cooperative: bool,
        instance_id: str | None = None,
        read_committed: bool = False,
    ) -> None:
        self.simulation = simulation
        self.client = simulation.client(name)
        self.name = name
        self.group = group
        self.model = self._judge()
        self.partitions = partitions
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.random = simulation.new_random()
        self.data = Consuming(simulation, simulation.client(f"{name}/data"), group, read_committed)
        simulation.read_committed[group] = read_committed
        self.member_id = ""
        self.generation = -1
        self.owned: list[Partition] = []
        self._owned_since = -1  # the generation that gave them
        self.replaced = False  # another member takes this one's place, instead of it starting again
        self._rejoin = True

    def _judge(self) -> GroupModel:
        return self.simulation.model.group(self.group)

    async def run(self) -> None:
        """Read until told to leave, or replaced."""
        await find_coordinator(self.client, self.group)
        while not self.simulation.leaving:
            try:
                if self._rejoin:
                    await self._join()
                else:
                    await self._work()
                    await self._misbehave()
            except Disconnected:
                await self.client.sleep(self.random.choice((10, 200)))
            if self.replaced:
                return
        await self._leave()

    # --- what members say to each other through the coordinator ------------------------------------------------------

    @property
    def protocol(self) -> str:
        """The name of the assignor."""
        return "sticky" if self.cooperative else "roundrobin"

    def _subscription(self) -> bytes:
        return json.dumps([self._owned_since, sorted(self.owned)]).encode()

    def _owned_in(self, metadata: bytes) -> Claim:
        generation, owned = json.loads(metadata)
        return generation, [(topic, index) for topic, index in owned]

    def _assignment(self, partitions: list[Partition]) -> bytes:
        return json.dumps(partitions).encode()

    def _partitions_in(self, assignment: bytes) -> list[Partition]:
        return [(topic, index) for topic, index in json.loads(assignment or b"[]")]

    # --- membership --------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        if not self.cooperative:
            self._own([])
        protocol = JoinGroupRequestProtocol(name=self.protocol, metadata=self._subscription())
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response = await self.client.ask(request, 9, REBALANCE_TIMEOUT_MS + 5_000)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return
        if response.error_code:
            await self._failed(response.error_code, "JoinGroup")
            return
        former_generation = self.generation
        self.member_id, self.generation = response.member_id, response.generation_id
        self.simulation.trace(self.name, f"joined generation {self.generation} as {self.member_id[-36:]}")
        if not self.client.server_has_died:  # else the number may be given again: it was not written yet
            self.model.joined(self.generation, response.leader, response.protocol_name)
        decided: dict[str, bytes] = {}
        if response.leader == self.member_id and not response.skip_assignment:
            decided = self._assign(response.members)
            self.model.assigns(self.generation, decided)
        await self._sync(decided, former_generation)

    def _assign(self, members: list[Any]) -> dict[str, bytes]:
        owned = {member.member_id: self._owned_in(bytes(member.metadata)) for member in members}
        if self.cooperative:
            assigned = sticky(owned, self.partitions)
        else:
            assigned = round_robin(list(owned), self.partitions)
        return {member: self._assignment(parts) for member, parts in assigned.items()}

    async def _sync(self, decided: dict[str, bytes], former_generation: int) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in decided.items()],
        )
        response = await self.client.ask(request, 5, REBALANCE_TIMEOUT_MS + 5_000)
        if response.error_code:
            await self._failed(response.error_code, "SyncGroup")
            return
        assigned = self._partitions_in(bytes(response.assignment))
        self.model.synced(self.generation, self.member_id, bytes(response.assignment), assigned)
        self.simulation.trace(self.name, f"owns {assigned} in generation {self.generation}")
        if former_generation > 0 and not self.simulation.calm and self.random.random() < 0.6:
            self.simulation.trace(self.name, f"sends a commit of generation {former_generation} again")
            await self._commit(former_generation)
        revoked = [part for part in self.owned if part not in assigned]
        self._own(assigned)
        self._owned_since = self.generation
        # Cooperative: what was taken away is given to its next owner in one more generation.
        self._rejoin = bool(self.cooperative and revoked)

    def _own(self, partitions: list[Partition]) -> None:
        self.owned = partitions
        positions = self.data.positions
        for part in [part for part in positions if part not in partitions]:
            del positions[part]

    async def _failed(self, code: int, what: str) -> None:
        self.simulation.trace(self.name, f"{what}: error {code}")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin = True
            return
        if code in LOST_MEMBERSHIP:
            self._forget_membership(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
            return
        check(code in GROUP_IS_ELSEWHERE, "a member in good standing is not refused", f"{self.name} {what}: {code}")
        await self.client.sleep(100)

    def _forget_membership(self, keep_id: bool) -> None:
        if not keep_id:
            self.member_id = ""
        self.generation = -1
        self._own([])
        self._rejoin = True

    async def _leave(self) -> None:
        if not self.member_id:
            return
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        await self.client.insist(LeaveGroupRequest(group_id=self.group, members=[member]), 4)
        self.simulation.trace(self.name, "has left")

    # --- the work of a member ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """A heartbeat, positions where they are missing, a fetch, a commit."""
        beat = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = await self.client.ask(beat, 4)
        if response.error_code:
            await self._failed(response.error_code, "Heartbeat")
            return
        missing = [part for part in self.owned if part not in self.data.positions]
        if missing:
            found = await self.data.fetch_committed(missing)
            if isinstance(found, int):
                await self._failed(found, "OffsetFetch")
                return
            for part, offset in found.items():
                self.data.positions[part] = max(offset, 0)
        polled = await self.data.poll(self.random.choice((50, 200, 500)))
        processed = self.simulation.processed.setdefault(self.group, {})
        for part, _, value in polled:
            processed.setdefault((part, value), self.name)
        if polled or self.random.random() < 0.1:
            if not self.simulation.calm and self.random.random() < 0.02:
                self.simulation.trace(self.name, "stalls between its reads and its commit")
                await self.client.sleep(self.random.choice((3_000, 12_000)))
            if self.data.positions and self.random.random() < 0.2:
                await self.data.fetch_committed(list(self.data.positions))
            await self._commit()

    async def _commit(self, late_generation: int = -1) -> None:
        """Commit the positions; ``late_generation``: as if the request were one that comes late, of that generation."""
        if not self.data.positions:
            return
        known_generation = self.model.latest_generation
        generation = self.generation if late_generation < 0 else late_generation
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[],
        )
        code = await self.data.commit(self.client, request, 8, LOST_MEMBERSHIP | {ErrorCode.REBALANCE_IN_PROGRESS})
        check(
            bool(code) or generation >= known_generation,
            "no commit of an old generation is taken",
            f"{self.name} in generation {generation} of {self.group}, when {known_generation} was there",
        )
        if code and late_generation < 0:
            await self._failed(code, "OffsetCommit")

    async def _misbehave(self) -> None:
        """What real processes do: stall past the session timeout, die, start again."""
        if self.simulation.calm:
            return
        fate = self.random.random()
        if fate < 0.01:
            self.simulation.trace(self.name, "stalls")
            await self.client.sleep(self.random.choice((3_000, 9_000)))
        elif fate < 0.02:
            self.simulation.trace(self.name, "dies and starts again")
            self.client.disconnect()
            self.data.client.disconnect()
            self._forget_membership(keep_id=False)
            self._starts_again()
            await self.client.sleep(self.random.choice((10, 2_000)))
        elif fate < 0.03:
            self.simulation.trace(self.name, "leaves and starts again")
            await self._leave()
            self._forget_membership(keep_id=False)
            self._starts_again()

    def _starts_again(self) -> None:
        """The process is a new one."""
