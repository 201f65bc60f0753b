"""Transactions of every client library: commit, abort, fencing, and offsets that belong to the transaction."""

from __future__ import annotations

from conformance.adapter import Client, ConsumerOptions, Producer, ProducerOptions, poll_until
from conformance.all_clients import IN_PROCESS
from conformance.conftest import MakeTopic

READ_COMMITTED = ConsumerOptions(isolation="read_committed")


def transactional(client: Client, transactional_id: str) -> Producer:
    return client.producer(ProducerOptions(transactional_id=transactional_id))


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.send(topic, value, partition=0)
    assert [delivery.error for delivery in producer.flush()] == [0] * len(values)


def committed(client: Client, topic: str, last: bytes) -> list[bytes | None]:
    """What a read_committed consumer gets, up to the value ``last``."""
    consumer = client.consumer(READ_COMMITTED)
    consumer.assign([(topic, 0)])
    records = poll_until([consumer], lambda so_far: bool(so_far) and so_far[-1].value == last)
    return [record.value for record in records]


def committed_for_another(client: Client, topic: str, last: bytes) -> list[bytes | None]:
    """What a read_committed consumer of another library gets, up to the value ``last``."""
    reader = IN_PROCESS["librdkafka"](client.bootstrap)
    try:
        return committed(reader, topic, last)
    finally:
        reader.close()


def test_what_is_committed_is_read_and_what_is_aborted_is_not(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = transactional(client, topic)
    for number in range(6):
        assert producer.begin() == 0
        send(producer, topic, b"%da" % number, b"%db" % number)
        assert (producer.abort() if number % 2 else producer.commit()) == 0
    assert committed(client, topic, b"4b") == [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b"]


def test_a_second_producer_with_the_id_fences_the_first(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    first = transactional(client, topic)
    assert first.begin() == 0
    send(first, topic, b"fenced")
    second = transactional(client, topic)
    first.send(topic, b"too late", partition=0)
    assert first.commit() != 0
    assert second.begin() == 0
    send(second, topic, b"second")
    assert second.commit() == 0
    assert committed_for_another(client, topic, b"second") == [b"second"]


def test_offsets_are_committed_with_their_transaction(client: Client, make_topic: MakeTopic) -> None:
    source, results = make_topic(), make_topic()
    group = source
    send(client.producer(), source, b"1", b"2", b"3")
    producer = transactional(client, source)
    consumer = client.consumer(ConsumerOptions(group=group))
    consumer.subscribe(source)
    records = poll_until([consumer], lambda so_far: len(so_far) == 3)
    for record in records:
        for ends in (producer.abort, producer.commit):
            assert producer.begin() == 0
            send(producer, results, b"result " + (record.value or b""))
            assert producer.send_offsets({(source, 0): record.offset + 1}, consumer) == 0
            assert ends() == 0
            expected = {(source, 0): record.offset + (1 if ends == producer.commit else 0)}
            offsets = client.admin().group_offsets(group)
            assert offsets == expected or (not offsets and expected[source, 0] == 0)
    assert committed_for_another(client, results, b"result 3") == [b"result 1", b"result 2", b"result 3"]
