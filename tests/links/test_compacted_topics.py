"""Links of compacted topics: gaps are the source's, each side cleans by itself, and no cut costs a key its value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import ADOPTED, FAILED_OVER, MIRRORING, PAUSED, PROMOTED
from pybroker.testing import Broker, Cluster
from tests.links.compacted import (
    CLEANING,
    COMPACTED,
    SMALL_SEGMENTS,
    TOPIC,
    compact,
    numbered,
    read,
    set_topic,
    table_of,
    without,
    write,
)
from tests.links.linked import image_of, link, reason_of, set_link, stored, wait_for_state, wait_until_mirrored
from tests.links.test_way_back import replicas

RECORDS_COUNT_AT = 57


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(CLEANING) as running:
        running.create_topic(TOPIC, configs=COMPACTED)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker(CLEANING) as running:
        yield running


def mirror(here: Broker, source: Broker) -> None:
    """Mirror the topic in segments as small as the source's, until all is here."""
    link(here, source, topics=TOPIC)
    wait_for_state(here, TOPIC, MIRRORING)
    set_topic(here, **{name.replace(".", "_"): text for name, text in SMALL_SEGMENTS.items()})
    wait_until_mirrored(source, here, TOPIC, 1)


def pause(here: Broker) -> None:
    set_link(here.bootstrap, pause=TOPIC)
    wait_for_state(here, TOPIC, PAUSED)


def go_on(here: Broker) -> None:
    set_link(here.bootstrap, pause=None)
    wait_for_state(here, TOPIC, MIRRORING)


def has_records(batch: bytes) -> bool:
    return int.from_bytes(batch[RECORDS_COUNT_AT:][:4], "big") > 0


def test_gaps_and_emptied_batches_and_tombstones_that_are_gone_are_here_as_at_the_source(
    source: Broker, here: Broker
) -> None:
    write(source, numbered("abc", 0, 30))
    write(source, [(b"gone", b"value"), (b"gone", None)])  # offsets 30 and 31
    write(source, numbered("d", 32, 3), enable_idempotence=True)  # of its last batches what tells them apart is kept
    write(source, numbered("abcd", 40, 60))
    compact(source, without(*range(32)), in_rounds=True)
    original = stored(source, TOPIC, 0)
    assert not all(map(has_records, original.values()))
    mirror(here, source)
    assert stored(here, TOPIC, 0) == original
    assert read(here) == read(source)
    assert {key for _, key, _ in read(here)} == {b"a", b"b", b"c", b"d", b"round"}


def test_a_source_that_is_compacted_while_the_mirror_is_behind_gives_the_same_table(
    source: Broker, here: Broker
) -> None:
    write(source, numbered("abc", 0, 12))
    mirror(here, source)
    pause(here)
    write(source, numbered("abc", 12, 48))
    compact(source, without(*range(30)))
    go_on(here)
    original = stored(source, TOPIC, 0)
    wait_until(lambda: {*original} <= {*stored(here, TOPIC, 0)}, "what is left")
    assert {offset: batch for offset, batch in stored(here, TOPIC, 0).items() if offset >= 12} == original
    assert table_of(read(here)) == table_of(read(source))


def test_each_side_is_cleaned_by_itself_under_the_settings_of_the_source(source: Broker, here: Broker) -> None:
    write(source, numbered("abc", 0, 60))
    mirror(here, source)
    before = stored(here, TOPIC, 0)
    assert image_of(here).overrides(2, TOPIC)["cleanup.policy"] == "compact"
    compact(source, without(*range(30)))
    write(source, numbered("abc", 60, 30))
    compact(source, lambda batches: without(*range(60))(batches) and without(*range(60))(stored(here, TOPIC, 0)))
    assert len(before) == 60
    wait_until(lambda: table_of(read(here)) == table_of(read(source)), "the same table")
    assert [value for _, value in table_of(read(here)).values()] == [b"87", b"88", b"89"]


def test_a_compacted_mirror_takes_writes_once_it_is_promoted_and_the_way_back_loses_nothing(
    source: Broker, here: Broker
) -> None:
    write(source, numbered("abc", 0, 60))
    compact(source, without(*range(30)))
    mirror(here, source)
    set_link(here.bootstrap, promote=TOPIC)
    wait_for_state(here, TOPIC, PROMOTED)
    assert read(here)[-1] == (59, b"c", b"59")
    write(here, numbered("abc", 60, 60))
    assert table_of(read(here)) == {b"a": (117, b"117"), b"b": (118, b"118"), b"c": (119, b"119")}
    compact(here, without(*range(90)))
    link(source, here, topics=TOPIC, adopt=TOPIC)
    wait_for_state(source, TOPIC, MIRRORING)
    wait_until(lambda: table_of(read(source)) == table_of(read(here)), "the same table")


def test_the_way_back_brings_again_what_was_cleaned_away_for_the_sake_of_records_that_are_discarded(
    source: Broker, here: Broker
) -> None:
    write(source, numbered("abc", 0, 30))
    mirror(here, source)
    set_link(here.bootstrap, failover=TOPIC)
    wait_for_state(here, TOPIC, FAILED_OVER)
    write(here, [(b"d", b"here")])
    write(source, numbered("abc", 30, 60))  # these come here no more
    compact(source, without(*range(60)))
    link(source, here, topics=TOPIC, adopt=TOPIC)
    wait_for_state(source, TOPIC, ADOPTED)
    wait_until(lambda: "partition 0 from offset 30 (60)" in reason_of(source, TOPIC), "what would be lost")
    set_link(source.bootstrap, discard=TOPIC)
    wait_for_state(source, TOPIC, MIRRORING)
    wait_until(lambda: 30 in stored(source, TOPIC, 0), "its records")
    assert stored(source, TOPIC, 0)[30] == stored(here, TOPIC, 0)[30]
    assert table_of(read(source)) == table_of(read(here))


def test_a_mirror_begins_anew_where_the_source_has_emptied_the_end_of_a_transaction(
    source: Broker, here: Broker
) -> None:
    leave_a_transaction_behind(source, here)
    compact(source, lambda batches: 0 not in batches and 1 in batches and not has_records(batches[1]), in_rounds=True)
    go_on(here)
    wait_until(lambda: stored(here, TOPIC, 0) == stored(source, TOPIC, 0), "the same log")
    assert read(here, "read_committed") == read(source, "read_committed") != []


def leave_a_transaction_behind(source: Broker, here: Broker) -> None:
    """One that is open here, where mirroring is paused, and has been aborted at the source, with records after it."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"first", b"a")
    assert producer.flush(PATIENCE_S) == 0
    mirror(here, source)
    pause(here)
    fencing = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "t"})
    fencing.init_transactions(PATIENCE_S)
    write(source, numbered("abc", 0, 60))


def test_a_mirror_begins_anew_where_the_source_has_nothing_left_of_the_end_of_a_transaction() -> None:
    forgetting = {**CLEANING, "producer.id.expiration.ms": 100, "producer.id.expiration.check.interval.ms": 50}
    with Broker(forgetting) as source, Broker(CLEANING) as here:
        source.create_topic(TOPIC, configs=COMPACTED)
        leave_a_transaction_behind(source, here)
        compact(source, without(0, 1), in_rounds=True)
        go_on(here)
        wait_until(lambda: stored(here, TOPIC, 0) == stored(source, TOPIC, 0), "the same log")
        assert read(here, "read_committed") == read(source, "read_committed") != []


def test_the_way_back_of_a_replicated_compacted_topic_brings_each_replica_again_what_it_lacks() -> None:
    with Cluster(3, settings=CLEANING) as first, Broker(CLEANING) as second:
        first.create_topic(TOPIC, replication_factor=3, configs=COMPACTED)
        write(first, numbered("abc", 0, 30), acks="all")
        link(second, first, topics=TOPIC)
        wait_for_state(second, TOPIC, MIRRORING)
        wait_until_mirrored(first, second, TOPIC, 1)
        set_link(second.bootstrap, failover=TOPIC)
        wait_for_state(second, TOPIC, FAILED_OVER)
        write(second, [(b"d", b"here")])
        write(first, numbered("abc", 30, 60), acks="all")
        compact(first, lambda _: all(without(*range(60))(replica[0]) for replica in replicas(first)))
        link(first, second, topics=TOPIC, adopt=TOPIC, discard=TOPIC)
        wait_for_state(first, TOPIC, MIRRORING)
        original = stored(second, TOPIC, 0)
        wait_until(lambda: all(replica[0] == original for replica in replicas(first)), "the same logs")
