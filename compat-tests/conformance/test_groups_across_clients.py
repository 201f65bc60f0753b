"""Consumer groups with every client and every assignor it brings: members, commits, static membership."""

from __future__ import annotations

from conformance.adapter import Client, Committed, Consumer, ConsumerOptions, poll_until, read
from conformance.conftest import MakeTopic

PARTITIONS = 4


def member(client: Client, topic: str, group: str, **options: str | None) -> Consumer:
    consumer = client.consumer(ConsumerOptions(group=group, **options))  # type: ignore[arg-type]
    consumer.subscribe(topic)
    return consumer


def settle(consumers: list[Consumer], partitions: int = PARTITIONS) -> None:
    """Poll until the members share the partitions evenly."""
    share = partitions // len(consumers)
    poll_until(consumers, lambda _: all(len(consumer.assignment()) == share for consumer in consumers))
    owned = [partition for consumer in consumers for partition in consumer.assignment()]
    assert len(owned) == len(set(owned)) == partitions


def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    client: Client, assignor: str, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    first = member(client, topic, name, assignor=assignor)
    settle([first])
    second = member(client, topic, name, assignor=assignor)
    settle([first, second])
    producer = client.producer()
    for number in range(40):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush()
    records = poll_until([first, second], lambda so_far: len(so_far) >= 40)
    assert sorted(int(record.value or b"") for record in records) == list(range(40))
    second.close()
    settle([first])


def test_static_member_returns_without_a_rebalance(client: Client, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(partitions=PARTITIONS)
    stays, leaves = (member(client, topic, name, instance_id=instance) for instance in ("stays", "leaves"))
    settle([stays, leaves])
    stays.poll()  # which tells the revocations up to now
    owned, revocations = leaves.assignment(), stays.revocations
    leaves.close()
    returned = member(client, topic, name, instance_id="leaves")
    poll_until([stays, returned], lambda _: bool(returned.assignment()))
    assert returned.assignment() == owned
    assert stays.revocations == revocations


def test_group_goes_on_where_it_committed(client: Client, fresh_topic: str, name: str) -> None:
    producer = client.producer()
    for number in range(20):
        producer.send(fresh_topic, b"%d" % number)
    producer.flush()
    first = member(client, fresh_topic, name)
    poll_until([first], lambda so_far: len(so_far) >= 20)
    first.commit({(fresh_topic, 0): Committed(12, "")})
    first.close()
    second = member(client, fresh_topic, name)
    assert [record.offset for record in read(second, 8)] == list(range(12, 20))
    second.commit()
    # Which metadata a client gives when it is asked for none is its own affair.
    committed = second.committed((fresh_topic, 0))
    assert committed is not None
    assert committed.offset == 20


def test_commits_keep_their_metadata(client: Client, fresh_topic: str, name: str) -> None:
    partition = (fresh_topic, 0)
    consumer = client.consumer(ConsumerOptions(group=name))
    consumer.assign([partition])
    assert consumer.committed(partition) is None
    consumer.commit({partition: Committed(3, "by hand: ä")})
    assert consumer.committed(partition) == Committed(3, "by hand: ä")


def test_asynchronous_commit_arrives(client: Client, fresh_topic: str, name: str) -> None:
    partition = (fresh_topic, 0)
    consumer = client.consumer(ConsumerOptions(group=name))
    consumer.assign([partition])
    consumer.commit_async({partition: Committed(7, "later")})
    poll_until([consumer], lambda _: consumer.committed(partition) == Committed(7, "later"))


def test_groups_do_not_disturb_each_other(client: Client, fresh_topic: str, name: str) -> None:
    producer = client.producer()
    producer.send(fresh_topic, b"v")
    producer.flush()
    members = [member(client, fresh_topic, f"{name}-{number}") for number in range(4)]
    poll_until(members, lambda so_far: len(so_far) == len(members))
    assert all(consumer.assignment() == {(fresh_topic, 0)} for consumer in members)
