"""Random requests of several members to one classic group, the same to both brokers.

What a member sends next depends on a seed and on the replies so far alone.  Sessions and rebalances last longer than
a run, so that nothing happens by time.  After each request everything that is answered within a moment is noted,
by the names of the members, with the group's state; a request that waits for others is left waiting.

Left out is what is known to differ: where Kafka forgets a request that waits (a second join or sync of a member, a
sync of a member that is removed), pybroker answers it; where Kafka fails (an id that was only given out, with an
instance id), pybroker does not know the member.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.scenarios.groups import MEMBER_ID_REQUIRED, protocols
from comparator.wire import Connection

SEEDS = 3
STEPS = 60
LONG_MS = 300_000
QUIET_ROUNDS = 3
ROUND_S = 0.015

UNKNOWN_MEMBER_ID = 25
NEXT = {"JoinGroup": "sync", "SyncGroup": "live", "Heartbeat": "live"}

# In one order of preference, because Kafka decides a tie by hash.
PROTOCOLS = (("range",), ("range", "roundrobin"), ("range", "roundrobin"), ("range", "roundrobin"), ("roundrobin",))


@dataclass
class Waiting:
    """A request without a reply yet."""

    actor: Actor
    api: str
    version: int
    connection: Connection
    member_id: str


@dataclass
class Actor:
    """Somebody who may be a member; several may claim one instance id."""

    name: str
    instance: str | None
    join_version: int
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    # What a sound client would do next.
    next: str = "join"
    known: list[str] = field(default_factory=list)


class Fuzz:
    """One run against one broker."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.group = f"fuzzed-{seed}"
        self.actors = [
            Actor("ann", None, 9),
            Actor("bob", None, self.random.choice([3, 5, 9])),
            Actor("cat", "one", self.random.choice([5, 9])),
            Actor("dan", "two", 9),
            Actor("eve", "two", self.random.choice([7, 9])),
        ]
        self.waiting: list[Waiting] = []
        self.names: dict[str, str] = {}
        self.given_out: set[str] = set()
        # The member id that each instance has, and the leader's.
        self.instances: dict[str, str] = {}
        self.leader = ""
        self.was_empty = True
        self.idle: list[Connection] = []

    def run(self) -> None:
        self.broker.prepare_topic(self.group)
        self.broker.wait_for_coordinator(self.group)
        sound = {"join": self.join, "sync": self.sync, "live": self.heartbeat}
        actions = [self.join, self.sync, self.heartbeat, self.leave, self.commit, self.administer]
        for _ in range(STEPS):
            actor = self.random.choice(self.actors)
            is_sound = self.random.random() < 0.7
            act = sound[actor.next] if is_sound else self.random.choice(actions)
            self.note(f"{actor.name} {act(actor)}", self.settle())

    # --- what an actor does ---------------------------------------------------------------------------------------

    def join(self, actor: Actor) -> str:
        names = self.random.choice(PROTOCOLS)
        topic = self.random.choice([self.group, self.group, "another"])
        forgets = self.random.random() < 0.15
        member_id = "" if forgets else self.maybe_other(actor, 0.08)
        if self.is_waiting(member_id, actor) or (actor.instance is not None and member_id in self.given_out):
            return "would join"
        fields = {
            "group_id": self.group,
            "session_timeout_ms": LONG_MS,
            "rebalance_timeout_ms": LONG_MS,
            "member_id": member_id,
            "group_instance_id": actor.instance,
            "protocol_type": "consumer" if self.random.random() < 0.95 else "connect",
            "protocols": protocols(*names, topic=topic),
        }
        self.send(actor, "JoinGroup", actor.join_version, fields)
        return f"joins as {self.name_of(member_id)} with {names} for {topic}"

    def sync(self, actor: Actor) -> str:
        member_id, generation = self.maybe_other(actor, 0.05), self.maybe_wrong(actor.generation)
        name = self.random.choice(["range", "range", "range", "range", None, None, "roundrobin"])
        if self.is_waiting(member_id, actor):
            return "would sync"
        assigned = [actor.member_id, *actor.known] if actor.leads and self.random.random() < 0.9 else []
        fields = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": self.maybe_without(actor.instance),
            "protocol_type": "consumer",
            "protocol_name": name,
            "assignments": [
                {"member_id": each, "assignment": f"{self.name_of(each)} in {generation}".encode()}
                for each in dict.fromkeys(assigned)
            ],
        }
        self.send(actor, "SyncGroup", 5, fields)
        return f"syncs as {self.name_of(member_id)} in {generation} with {name}"

    def heartbeat(self, actor: Actor) -> str:
        member_id, generation = self.maybe_other(actor, 0.1), self.maybe_wrong(actor.generation)
        fields = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": self.maybe_without(actor.instance),
        }
        self.send(actor, "Heartbeat", 4, fields)
        return f"lives as {self.name_of(member_id)} in {generation}"

    def leave(self, actor: Actor) -> str:
        count = self.random.choice([1, 1, 1, 2])
        members = [
            {"member_id": member_id, "group_instance_id": self.maybe_without(leaver.instance)}
            for leaver in [actor, *self.random.sample(self.actors, count - 1)]
            for member_id in [leaver.member_id if self.random.random() < 0.8 else ""]
        ]
        if any(waiting.api == "SyncGroup" for waiting in self.waiting):
            return "would leave"
        if any(self.leads(each) for each in members):
            # Who leads next is up to the order of a hash map in Kafka, so nobody stays.
            ids = [*(each.member_id for each in self.actors), *self.instances.values()]
            members = [{"member_id": each, "group_instance_id": None} for each in dict.fromkeys(ids) if each]
        self.send(actor, "LeaveGroup", 5, {"group_id": self.group, "members": members})
        return f"leaves with {[self.name_of(each['member_id'] or '') for each in members]}"

    def commit(self, actor: Actor) -> str:
        member_id, generation = self.maybe_other(actor, 0.1), self.maybe_wrong(actor.generation)
        if self.random.random() < 0.15:
            member_id, generation = "", -1
        offset = self.random.randrange(1000)
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": actor.name}
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": self.maybe_without(actor.instance),
            "topics": [{"name": self.group, "partitions": [partition]}],
        }
        self.send(actor, "OffsetCommit", self.random.choice([8, 9]), fields)
        return f"commits {offset} as {self.name_of(member_id)} in {generation}"

    def administer(self, actor: Actor) -> str:
        what = self.random.randrange(3)
        if what == 0:
            self.send(actor, "OffsetFetch", 8, {"groups": [{"group_id": self.group, "topics": None}]})
            return "asks for offsets"
        if what == 1:
            topic = {"name": self.group, "partitions": [{"partition_index": 0}]}
            self.send(actor, "OffsetDelete", 0, {"group_id": self.group, "topics": [topic]})
            return "deletes the offset"
        self.send(actor, "DeleteGroups", 2, {"groups_names": [self.group]})
        return "deletes the group"

    def leads(self, identity: dict[str, Any]) -> bool:
        """Whether the leader would leave by this."""
        instance = identity["group_instance_id"]
        return (identity["member_id"] or self.instances.get(instance)) == self.leader

    # --- chance ---------------------------------------------------------------------------------------------------

    def maybe_other(self, actor: Actor, chance: float) -> str:
        """The actor's member id, now and then somebody else's."""
        return self.random.choice(self.actors).member_id if self.random.random() < chance else actor.member_id

    def maybe_wrong(self, generation: int) -> int:
        return generation + self.random.choice([-1, 1]) if self.random.random() < 0.08 else generation

    def maybe_without(self, instance: str | None) -> str | None:
        return None if self.random.random() < 0.1 else instance

    def is_waiting(self, member_id: str, actor: Actor) -> bool:
        return any(each.actor is actor or (member_id and each.member_id == member_id) for each in self.waiting)

    # --- requests and replies -------------------------------------------------------------------------------------

    def send(self, actor: Actor, api: str, version: int, fields: dict[str, Any]) -> None:
        connection = self.idle.pop() if self.idle else self.broker.connect()
        connection.send(api, version, fields)
        self.waiting.append(Waiting(actor, api, version, connection, fields.get("member_id", "")))

    def settle(self) -> list[tuple[Waiting, Any]]:
        """Everything that is answered by now: nothing more has come in some moments, in which the group was asked.

        The first generation of an empty group forms by a timer, though one of no delay, so that is waited for.
        """
        replies = self.collect()
        if self.was_empty:
            self.broker.wait_until(lambda: self.describe()[0] != "PreparingRebalance", "the first generation")
            replies += self.collect()
        self.was_empty = self.describe()[0] in {"Empty", "Dead"}
        for each, reply in replies:
            self.learn(each, reply)
        return sorted(replies, key=lambda reply: (reply[0].actor.name, reply[0].api))

    def collect(self) -> list[tuple[Waiting, Any]]:
        replies: list[tuple[Waiting, Any]] = []
        quiet = 0
        while quiet < QUIET_ROUNDS:
            time.sleep(ROUND_S)
            self.describe()
            answered = [each for each in self.waiting if each.connection.has_reply()]
            for each in answered:
                self.waiting.remove(each)
                self.idle.append(each.connection)
                replies.append((each, each.connection.receive(each.api, each.version)))
            quiet = 0 if answered else quiet + 1
        return replies

    def learn(self, waiting: Waiting, reply: Any) -> None:
        """What the actor knows after the reply."""
        actor = waiting.actor
        if waiting.api in NEXT:
            actor.next = NEXT[waiting.api] if reply["error_code"] == 0 else "join"
        if waiting.api != "JoinGroup":
            if reply.get("error_code") == UNKNOWN_MEMBER_ID:
                actor.member_id = ""
            return
        member_id = reply["member_id"]
        if member_id and member_id not in self.names:
            self.names[member_id] = f"{actor.name}-{sum(each.startswith(actor.name) for each in self.names.values())}"
        if reply["error_code"] == MEMBER_ID_REQUIRED:
            self.given_out.add(member_id)
        if reply["error_code"] in {0, MEMBER_ID_REQUIRED}:
            actor.member_id = member_id
        elif reply["error_code"] == UNKNOWN_MEMBER_ID:
            actor.member_id = ""
        if reply["error_code"] == 0:
            actor.generation, actor.leads = reply["generation_id"], reply["leader"] == member_id
            replaced = self.instances.get(actor.instance or "")
            # A returned leader that cannot skip the assignment is not told that it leads.
            self.leader = member_id if reply["leader"] == replaced else reply["leader"]
            if actor.instance is not None:
                self.instances[actor.instance] = member_id
            actor.known = sorted((each["member_id"] for each in reply["members"]), key=self.name_of)

    def describe(self) -> Any:
        described = self.broker.quietly("DescribeGroups", 5, groups=[self.group])["groups"][0]
        members = [(self.name_of(each["member_id"]), each["member_assignment"]) for each in described["members"]]
        named = sorted(each for each in members if each[0] != "unknown")
        return [described["group_state"], described["protocol_data"], len(members), named]

    def note(self, title: str, replies: Iterable[tuple[Waiting, Any]]) -> None:
        answered = [[each.actor.name, each.api, self.by_name(reply)] for each, reply in replies]
        waiting = sorted(f"{each.actor.name} {each.api}" for each in self.waiting)
        self.broker.note(title, {"answered": answered, "waiting": waiting, "group": self.describe()})

    def name_of(self, member_id: str) -> str:
        return self.names.get(member_id, "unknown") if member_id else "nobody"

    def by_name(self, tree: Any) -> Any:
        """A reply with names for member ids, and members in the order of names."""
        if isinstance(tree, dict):
            return {key: self.by_name(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return sorted((self.by_name(each) for each in tree), key=repr)
        return self.name_of(tree) if isinstance(tree, str) and tree in self.names else tree


def _run(seed: int) -> Callable[[Broker], None]:
    def random_requests(broker: Broker) -> None:
        Fuzz(broker, seed).run()

    random_requests.__name__ = f"random_requests_{seed}"
    random_requests.__module__ = __name__
    return random_requests


for _seed in range(SEEDS):
    scenario(_run(_seed))
