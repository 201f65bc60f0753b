"""A group of many members over one topic: the time until it is settled, and until it is again after one member died.

``python -m bench.group_load``; takes its job as JSON on stdin and prints its outcome as JSON.

Members speak the raw protocol, each over a connection of its own, all in this process behind one epoll, so that what is
timed is the broker's and not a client's back-off.  They do what the protocol asks of a member and nothing else: a
classic one joins, syncs and sends heartbeats, and joins again when it is told to; a member of a consumer group
(KIP-848) sends heartbeats and takes over what it is assigned at once.  Settled is a group when its living members
have all partitions between them, each partition once and everybody as many, in one generation or epoch.  The member
that dies closes its connection without a word.
"""

from __future__ import annotations

import gc
import json
import select
import struct
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from harness.wire import LENGTH

from bench.group_member import MEMBER_ID_REQUIRED, subscription
from bench.wire import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
    Client,
    connect,
    decode_reply,
    frame,
)
from pybroker_protocol.messages import request_class
from pybroker_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions
from pybroker_protocol.messages.join_group import JoinGroupRequestProtocol
from pybroker_protocol.messages.sync_group import SyncGroupRequestAssignment

CLASSIC, CONSUMER = "classic", "consumer"
RECEIVE_BYTES = 64 * 1024
TIMEOUT_S = 60.0
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH = 25, 22, 27, 110
JOIN_AGAIN = {UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class Job:
    """One group; the broker's own settings say how often members of consumer groups send heartbeats."""

    bootstrap: str
    topic: str
    protocol: str
    members: int = 100
    partitions: int = 300
    session_ms: int = 1000
    heartbeat_ms: int = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds until the group was settled, and from a member's death until it was settled again."""

    join_s: float
    settle_s: float


class Member(ABC):
    """One member and its connection; one request is under way at a time."""

    def __init__(self, job: Job, group_id: str) -> None:
        self.job = job
        self.group_id = group_id
        self.socket = connect(job.bootstrap)
        self.socket.setblocking(False)
        self.member_id = ""
        self.epoch = 0
        self.partitions: frozenset[int] = frozenset()
        self.heartbeat_due: float | None = None
        self._asked = -1
        self._received = b""

    @abstractmethod
    def start(self) -> None:
        """Begin to join."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Say that it is alive."""

    @abstractmethod
    def on_reply(self, api_key: int, reply: Any) -> None:
        """Do what the protocol asks for."""

    def ask(self, api_key: int, **fields: Any) -> None:
        """Send a request; it is far smaller than the socket's buffer."""
        self.heartbeat_due = None
        self._asked = api_key
        self.socket.send(frame(api_key, request_class(api_key)(group_id=self.group_id, **fields)))

    def read(self) -> None:
        """Take what has come."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError("the broker closed the connection")
        self._received += data
        if len(self._received) >= 4 and len(self._received) == 4 + LENGTH.unpack_from(self._received)[0]:
            reply, self._received = decode_reply(self._asked, self._received[4:]), b""
            self.on_reply(self._asked, reply)

    def be_quiet(self, interval_ms: int) -> None:
        """Nothing to do until the next heartbeat."""
        self.heartbeat_due = time.perf_counter() + interval_ms / 1000


class ClassicMember(Member):
    """Of a classic group; the leader deals the partitions out in turn."""

    def start(self) -> None:
        self.partitions = frozenset()
        self.ask(
            JOIN_GROUP,
            session_timeout_ms=self.job.session_ms,
            rebalance_timeout_ms=int(TIMEOUT_S * 1000),
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(self.job.topic))],
            reason=None,
        )

    def heartbeat(self) -> None:
        self.ask(HEARTBEAT, generation_id=self.epoch, member_id=self.member_id, group_instance_id=None)

    def on_reply(self, api_key: int, reply: Any) -> None:
        if reply.error_code == MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self.start()
        elif reply.error_code in JOIN_AGAIN:
            if reply.error_code == UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.start()
        elif reply.error_code:
            raise RuntimeError(f"a member was answered error {reply.error_code}")
        elif api_key == JOIN_GROUP:
            self.member_id, self.epoch = reply.member_id, reply.generation_id
            self._sync([member.member_id for member in reply.members])
        else:
            if api_key == SYNC_GROUP:
                self.partitions = frozenset(number for (number,) in struct.iter_unpack(">i", reply.assignment))
            self.be_quiet(self.job.heartbeat_ms)

    def _sync(self, members: list[str]) -> None:
        """Ask for the assignment; only the leader is told of all members, and assigns."""
        dealt = {
            member_id: range(number, self.job.partitions, len(members)) for number, member_id in enumerate(members)
        }
        self.ask(
            SYNC_GROUP,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=struct.pack(f">{len(mine)}i", *mine))
                for member_id, mine in dealt.items()
            ],
        )


class ConsumerMember(Member):
    """Of a consumer group: what it is told to give up it gives up at once."""

    def start(self) -> None:
        self.member_id = self.member_id or str(uuid.uuid4())
        self.epoch, self.partitions = 0, frozenset()
        self._tell(rebalance_timeout_ms=int(TIMEOUT_S * 1000), subscribed_topic_names=[self.job.topic], owned=[])

    def heartbeat(self) -> None:
        self._tell()

    def _tell(
        self, owned: list[Any] | None = None, subscribed_topic_names: list[str] | None = None, **fields: Any
    ) -> None:
        self.ask(
            CONSUMER_GROUP_HEARTBEAT,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=None,
            rack_id=None,
            subscribed_topic_names=subscribed_topic_names,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned,
            **fields,
        )

    def on_reply(self, _api_key: int, reply: Any) -> None:
        if reply.error_code in {FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID}:
            self.start()
            return
        if reply.error_code:
            raise RuntimeError(f"a member was answered error {reply.error_code} {reply.error_message}")
        self.epoch = reply.member_epoch
        if reply.assignment is None:
            self.be_quiet(reply.heartbeat_interval_ms)
            return
        assigned = reply.assignment.topic_partitions
        self.partitions = frozenset(number for topic in assigned for number in topic.partitions)
        self._tell(
            owned=[
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in assigned
            ]
        )


MEMBERS: dict[str, Callable[[Job, str], Member]] = {CLASSIC: ClassicMember, CONSUMER: ConsumerMember}


class Group:
    """The members, and the loop that drives them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        group_id = f"bench-{uuid.uuid4().hex[:8]}"
        with Client(job.bootstrap) as client:
            client.await_coordinator(group_id)
        self.members = [MEMBERS[job.protocol](job, group_id) for _ in range(job.members)]
        self._by_fd = {member.socket.fileno(): member for member in self.members}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)

    def close(self) -> None:
        """Let go of all connections."""
        for member in self._by_fd.values():
            member.socket.close()
        self._poll.close()

    def settle(self) -> float:
        """Drive the members until the group is settled; returns when it was."""
        self._drive(self.is_settled)
        return time.perf_counter()

    def _drive(self, is_over: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + TIMEOUT_S
        while not is_over():
            now = time.perf_counter()
            if now > deadline:
                raise RuntimeError(f"the group has come nowhere in {TIMEOUT_S:.0f} s")
            self._send_heartbeats(now)
            for fd, _ in self._poll.poll(0.002):
                self._by_fd[fd].read()

    def rest(self, seconds: float) -> None:
        """Only heartbeats for a while, not all at once."""
        self._drive(lambda: all(member.heartbeat_due is not None for member in self.members))
        now = time.perf_counter()
        for number, member in enumerate(self.members):
            member.heartbeat_due = now + self.job.heartbeat_ms / 1000 * number / len(self.members)
        ends = now + seconds
        self._drive(lambda: time.perf_counter() >= ends)

    def _send_heartbeats(self, now: float) -> None:
        for member in self.members:
            if member.heartbeat_due is not None and member.heartbeat_due <= now:
                member.heartbeat()

    def is_settled(self) -> bool:
        """Whether every partition has one owner, each member its share, in one generation or epoch."""
        shares = [len(member.partitions) for member in self.members]
        if sum(shares) != self.job.partitions or max(shares) - min(shares) > 1:
            return False
        owned = frozenset[int]().union(*(member.partitions for member in self.members))
        return len(owned) == self.job.partitions and len({member.epoch for member in self.members}) == 1

    def lose_one(self) -> float:
        """A member, neither the first nor the last, is gone without a word behind its last heartbeat; returns the time
        when that was sent, so that a session is never found shorter than it was."""
        member = self.members[len(self.members) // 2]
        self._drive(lambda: member.heartbeat_due is not None)
        sent = time.perf_counter()
        member.heartbeat()
        self._drive(lambda: member.heartbeat_due is not None)
        self.members.remove(member)
        self._poll.unregister(member.socket.fileno())
        member.socket.close()
        return sent


def run(job: Job) -> Outcome:
    """Do the job in this process."""
    with closing(Group(job)) as group:
        started = time.perf_counter()
        for member in group.members:
            member.start()
        joined = group.settle()
        # Every session has begun anew by then, in both protocols.
        group.rest(2 * job.heartbeat_ms / 1000)
        died = group.lose_one()
        settled = group.settle()
    return Outcome(joined - started, settled - died)


if __name__ == "__main__":
    # A collection in the generator would show as a time of the broker.
    gc.disable()
    json.dump(asdict(run(Job(**json.load(sys.stdin)))), sys.stdout)
