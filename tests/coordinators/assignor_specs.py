"""Random groups for the tests of assignors, and how one is put to Apache Kafka's.

Owns: a spec by small numbers (topic 3 is the id that ends in 4), its text for ``AskKafka.java`` and back, and the file
of Kafka's answers for machines without a JVM.  Running this module (``python -m tests.coordinators.assignor_specs``)
writes that file anew.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from harness.apache_kafka import JARS_DIRECTORY as JARS
from harness.waiting import PATIENCE_S

from pybroker.coordinators.group.assignors.spec import GroupAssignment, GroupSpec, MemberSubscription

PROGRAM = Path(__file__).with_name("AskKafka.java")
ANSWERS = Path(__file__).with_name("kafka_assignments.json")

kafka_is_here = pytest.mark.skipif(
    shutil.which("java") is None or not JARS.is_dir(), reason="there is no Java, or Kafka's jars are missing"
)


class Topics:
    """Topics by number with their partition counts; -1 and numbers beyond the list are unknown.  No racks."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)

    def partition_count(self, topic_id: bytes) -> int:
        number = topic_number(topic_id)
        return self.counts[number] if number < len(self.counts) else -1

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        raise AssertionError("an assignor looked at racks")


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def topic_number(id_: bytes) -> int:
    return int.from_bytes(id_, "big") - 1


def member(
    member_id: str,
    topics: Sequence[int],
    assigned: Mapping[int, Sequence[int]] | None = None,
    instance_id: str | None = None,
) -> MemberSubscription:
    """A member by topic numbers."""
    by_id = {topic_id(number): frozenset(partitions) for number, partitions in (assigned or {}).items()}
    return MemberSubscription(member_id, instance_id, None, frozenset(map(topic_id, topics)), by_id)


def group(*members: MemberSubscription) -> GroupSpec:
    """A group; whether it is homogeneous follows from its members."""
    subscriptions = {each.subscribed_topic_ids for each in members}
    return GroupSpec({each.member_id: each for each in members}, len(subscriptions) <= 1)


def parsed_question(line: str) -> tuple[str, GroupSpec, Topics]:
    """The assignor and the spec that a line for the Java program is about."""
    _, assignor, kind, counts, *members = line.split("\t")
    made = []
    for text in members:
        member_id, instance_id, topics, shares = text.split("|")
        assigned = {int(share.split(":")[0]): _numbers(share.split(":")[1]) for share in shares.split(";") if share}
        made.append(member(member_id, _numbers(topics), assigned, instance_id or None))
    spec = GroupSpec({each.member_id: each for each in made}, kind == "HOMOGENEOUS")
    return assignor, spec, Topics(_numbers(counts))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def by_numbers(assignment: GroupAssignment) -> dict[str, dict[int, list[int]]]:
    """An assignment to compare and to print: topic numbers and sorted partitions, topics without any left out."""
    return {
        member_id: {topic_number(id_): sorted(indexes) for id_, indexes in sorted(partitions.items()) if indexes}
        for member_id, partitions in sorted(assignment.items())
    }


def random_spec(random: Random) -> tuple[GroupSpec, Topics]:
    """A group with some history: members have what some assignment gave them, subscribed to or not."""
    topic_count = random.randint(1, 8)
    counts = [random.choice([1, 2, 3, 5, 8, random.randint(1, 40)]) for _ in range(topic_count)]
    if random.random() < 0.3:
        counts = [counts[0]] * topic_count
    members = random.randint(1, 9)
    common = [topic for topic in range(topic_count) if random.random() < 0.8]
    homogeneous = random.random() < 0.5
    owners = {
        (topic, index): random.randrange(members) if random.random() < 0.9 else random.choice([0, members - 1])
        for topic, count in enumerate(counts)
        for index in range(count)
        if random.random() < random.choice([0.0, 0.6, 1.0])
    }
    made = []
    for position in range(members):
        assigned: dict[int, list[int]] = {}
        for (topic, index), owner in owners.items():
            if owner == position:
                assigned.setdefault(topic, []).append(index)
        topics = common if homogeneous else random.sample(range(topic_count), random.randint(0, topic_count))
        instance = f"instance-{random.randrange(100):02}-{position}" if random.random() < 0.3 else None
        made.append(member(f"member-{random.randrange(1000):03}-{position}", topics, assigned, instance))
    return group(*made), Topics(counts)


def question(assignor: str, spec: GroupSpec, topics: Topics) -> str:
    """A spec as a line for the Java program, which goes through the members in the order of their ids."""
    members = [
        "|".join(
            (
                each.member_id,
                each.instance_id or "",
                ",".join(str(number) for number in sorted(map(topic_number, each.subscribed_topic_ids))),
                ";".join(
                    f"{topic_number(id_)}:{','.join(map(str, sorted(partitions)))}"
                    for id_, partitions in sorted(each.assigned.items())
                ),
            )
        )
        for _, each in sorted(spec.members.items())
    ]
    kind = "HOMOGENEOUS" if spec.subscription_is_homogeneous else "HETEROGENEOUS"
    return "\t".join(("assign", assignor, kind, ",".join(map(str, topics.counts)), *members))


def answer(assignment: GroupAssignment, spec: GroupSpec) -> dict[str, str]:
    """An assignment as the Java program writes it, by member."""
    return {
        member_id: ";".join(
            f"{number}:{','.join(map(str, partitions))}"
            for number, partitions in by_numbers(assignment)[member_id].items()
        )
        for member_id in spec.members
    }


def parsed_answer(line: str, spec: GroupSpec) -> dict[str, str]:
    """A line of the Java program; members that it leaves out have nothing."""
    assert not line.startswith("error"), line
    shares = dict(share.split("|", 1) for share in line.split("\t") if share)
    return {member_id: shares.get(member_id, "") for member_id in spec.members}


def ask_kafka(questions: Sequence[str]) -> list[str]:
    """The answers of Apache Kafka's own classes, a line each."""
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", str(PROGRAM)]
    result = subprocess.run(
        command,
        input="\n".join(questions),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=True,
    )
    answers = result.stdout.split("\n")[:-1]
    assert len(answers) == len(questions)
    return answers


def write_answers(count: int = 60) -> None:
    """Write some specs with Kafka's answers to the file."""
    random = Random(4_3_1)
    specs = [random_spec(random) for _ in range(count)]
    lines = [question(assignor, *spec) for spec in specs for assignor in ("uniform", "range")]
    pairs = [list(pair) for pair in zip(lines, ask_kafka(lines), strict=True)]
    ANSWERS.write_text(json.dumps(pairs, indent=0) + "\n")


if __name__ == "__main__":
    write_answers()
