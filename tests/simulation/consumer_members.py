"""Simulated members of consumer groups (KIP-848): heartbeats, reconciliation, reading, committing.

Kafka counterpart: the Java client's ConsumerMembershipManager and ConsumerHeartbeatRequestManager.  A member revokes
what its assignment lacks before it says so, and owns what is new from the moment it hears of it.

The oracle: in the coordinator's eyes a partition has one owner, a member that was assigned it and has not said that it
gave it back.  Whoever was fenced or left owns nothing.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest
from tests.simulation.client import Disconnected
from tests.simulation.consuming import GROUP_IS_ELSEWHERE, Consuming, Partition, find_coordinator
from tests.simulation.model import check

if TYPE_CHECKING:
    from tests.simulation.run import Run

REBALANCE_TIMEOUT_MS = 8_000
LEAVE_EPOCH, LEAVE_STATIC_EPOCH = -1, -2
LOST_MEMBERSHIP = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}


class ConsumerMember:
    """One consumer of a KIP-848 group."""

    lost_membership: AbstractSet[int] = frozenset(LOST_MEMBERSHIP)

    def __init__(
        self,
        simulation: Run,
        name: str,
        group: str,
        partitions: list[Partition],
        read_committed: bool,
        instance_id: str | None = None,
        regex: str | None = None,
    ) -> None:
        """``regex``: subscribes by it in place of the topics' names; it matches them and no other topic."""
        self.simulation = simulation
        self.client = simulation.client(name)
        self.name = name
        self.group = group
        self.owners = simulation.model.owners(group)
        self.partitions = partitions
        self.random = simulation.new_random()
        self.data = Consuming(simulation, simulation.client(f"{name}/data"), group, read_committed)
        simulation.read_committed[group] = read_committed
        self.instance_id = instance_id
        self.regex = regex
        self.replaced = False  # another member takes this one's place, instead of it starting again
        self.member_id = ""
        self.epoch = 0
        self.owned: list[Partition] = []
        self._full = True  # the next heartbeat says everything

    async def run(self) -> None:
        """Read until told to leave, or replaced."""
        await find_coordinator(self.client, self.group)
        self._new_member()
        while not self.simulation.leaving:
            try:
                if await self._beat() and self.owned:
                    await self._work()
                else:
                    await self.client.sleep(self.random.choice((20, 200)))
                await self._misbehave()
            except Disconnected:
                self._full = True
                await self.client.sleep(self.random.choice((10, 200)))
            if self.replaced:
                return
        await self._leave(LEAVE_EPOCH)

    def _new_member(self) -> None:
        self.member_id = f"{self.name}-{self.random.getrandbits(64):016x}"
        self.epoch, self._full = 0, True
        self._own([])

    # --- membership --------------------------------------------------------------------------------------------------

    async def _beat(self) -> bool:
        """One heartbeat; whether the member is in good standing."""
        topic_ids = self.simulation.topic_ids
        full = self._full or self.epoch == 0
        owned = None
        if full or self.random.random() < 0.3:
            owned = [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=topic_ids[topic], partitions=[i for t, i in self.owned if t == topic]
                )
                for topic in sorted({topic for topic, _ in self.owned})
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            server_assignor=None,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full else -1,
            subscribed_topic_names=self._topics if full else None,
            subscribed_topic_regex=self.regex if full else None,
            topic_partitions=owned,
        )
        if owned is not None:
            self.owners.says(self.member_id, self.owned)
        response = await self.client.ask(request, 1, 5_000)
        if response.error_code:
            # As the Java client does.  What was refused may have been done: its records may be committed after the
            # coordinator gave them up, and nobody tells an assignment twice unless the member says all of itself.
            self._full = True
            await self._failed(response.error_code, "ConsumerGroupHeartbeat")
            return False
        self._full = False
        self.owners.heartbeat(self.member_id, self.epoch, response.member_epoch)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            names = {topic_id: name for name, topic_id in topic_ids.items()}
            assigned = [
                (names[topic.topic_id], index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            ]
            self._reconcile(assigned)
        return True

    def _reconcile(self, assigned: list[Partition]) -> None:
        if sorted(assigned) != sorted(self.owned):
            self.simulation.trace(self.name, f"owns {sorted(assigned)} in epoch {self.epoch}")
            self._full = True  # say at once what was given back
        if self.simulation.knows_members(self.client, self.group):
            self.owners.assigned(self.member_id, self.epoch, assigned, self.simulation.members_of(self.group))
        self._own(assigned)

    def _own(self, partitions: list[Partition]) -> None:
        self.owned = partitions
        for part in [part for part in self.data.positions if part not in partitions]:
            del self.data.positions[part]

    async def _failed(self, code: int, what: str) -> None:
        if code in self.lost_membership or code == ErrorCode.STALE_MEMBER_EPOCH:
            if code != ErrorCode.STALE_MEMBER_EPOCH:
                self.simulation.trace(self.name, f"has lost its membership: error {code}")
                self.owners.gone(self.member_id)
                self.epoch, self._full = 0, True
                self._own([])
            return
        check(code in GROUP_IS_ELSEWHERE, "a member in good standing is not refused", f"{self.name} {what}: {code}")
        await self.client.sleep(100)

    @property
    def _topics(self) -> list[str]:
        return [] if self.regex else sorted({topic for topic, _ in self.partitions})

    async def _leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rack_id=None,
            subscribed_topic_names=None,
            server_assignor=None,
            topic_partitions=None,
        )
        self.owners.gone(self.member_id)
        while True:
            response = await self.client.insist(request, 1)
            if response.error_code not in GROUP_IS_ELSEWHERE:
                break
            await self.client.sleep(100)
        self._own([])
        self.simulation.trace(self.name, "has left")

    # --- the work of a member ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        missing = [part for part in self.owned if part not in self.data.positions]
        if missing:
            found = await self.data.fetch_committed(missing, self.member_id, self.epoch)
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
            if self.data.positions and self.random.random() < 0.2:
                await self.data.fetch_committed(list(self.data.positions), self.member_id, self.epoch)
            await self._commit()

    async def _commit(self) -> None:
        if not self.data.positions:
            return
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[],
        )
        code = await self.data.commit(self.client, request, 9, LOST_MEMBERSHIP | {ErrorCode.STALE_MEMBER_EPOCH})
        if code:
            await self._failed(code, "OffsetCommit")

    async def _misbehave(self) -> None:
        """Stall past the session timeout, die and come back as another, leave and come back."""
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
            self._starts_again()
            await self.client.sleep(self.random.choice((10, 2_000)))
        elif fate < 0.03:
            self.simulation.trace(self.name, "leaves and starts again")
            # A static member comes back, and has what it had.
            await self._leave(LEAVE_EPOCH if self.instance_id is None else LEAVE_STATIC_EPOCH)
            self._starts_again()

    def _starts_again(self) -> None:
        """The process is a new one."""
        self._new_member()
