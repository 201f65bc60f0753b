"""What a replica cuts off that its leader does not have: the cases of KIP-101, KIP-279 and KIP-320."""

from __future__ import annotations

import os
from collections.abc import Callable

from pybroker import storage_limits
from tests.replication.cluster import Cluster
from tests.storage.batches import parse

MakeCluster = Callable[..., Cluster]


def values(cluster: Cluster, broker_id: int) -> list[bytes]:
    """The last byte of each record's value on a broker."""
    return [piece[-2:-1] for _, _, piece in cluster.brokers[broker_id].contents()]


def only(cluster: Cluster, *broker_ids: int) -> None:
    """The brokers that run; the others are killed."""
    for broker_id, broker in list(cluster.brokers.items()):
        if broker.alive and broker_id not in broker_ids:
            broker.kill()
            cluster.fence(broker_id)
        elif not broker.alive and broker_id in broker_ids:
            cluster.start(broker_id, tell=False)


def lead(cluster: Cluster, broker_id: int, *isr: int) -> None:
    cluster.elect(broker_id, isr=isr or (broker_id,))
    cluster.tell()


def test_what_only_the_old_leader_has_is_cut_when_it_follows(cluster: Cluster) -> None:
    for value in (b"a", b"b"):
        cluster.brokers[1].produce(value=value)
    cluster.settle()
    cluster.isolate(1)
    for value in (b"x", b"y", b"z"):
        cluster.brokers[1].produce(acks=1, value=value)
    cluster.elect(2, isr=(2, 3))
    cluster.tell([2, 3])
    cluster.brokers[2].produce(acks=1, value=b"c")
    cluster.heal()
    cluster.tell()
    cluster.pass_ms(40_000)
    assert [values(cluster, broker_id) for broker_id in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3
    assert {broker.offsets() for broker in cluster.brokers.values()} == {(0, 3, 3)}
    assert cluster.state().isr == (2, 3, 1)


def test_a_follower_that_knows_an_old_high_watermark_loses_nothing_by_a_restart(make_cluster: MakeCluster) -> None:
    """KIP-101, first case: it must not cut to its own high watermark when it comes back, and then lead."""
    cluster = make_cluster(replicas=(1, 2))
    cluster.settle()
    results = [cluster.brokers[1].produce(value=value) for value in (b"a", b"b")]
    cluster.pass_ms(13)
    assert [result.error_code for (result,) in results] == [0, 0]
    cluster.brokers[2].kill()
    follower = cluster.start(2, tell=False)
    cluster.brokers[1].kill()
    assert follower.metadata.image.epoch == 0
    lead(cluster, 2)
    assert values(cluster, 2) == [b"a", b"b"]
    cluster.pass_ms(100)
    assert follower.offsets() == (0, 2, 2)


def test_replicas_that_lost_power_do_not_keep_different_records_at_one_offset(make_cluster: MakeCluster) -> None:
    """KIP-101, second case: the one that comes back first leads, and writes where the other has something else."""
    cluster = make_cluster(replicas=(1, 2))
    cluster.brokers[1].produce(value=b"a")
    cluster.settle()
    cluster.isolate(2)
    cluster.brokers[1].produce(acks=1, value=b"x")
    only(cluster, 2)
    cluster.heal()
    lead(cluster, 2)
    cluster.brokers[2].produce(acks=1, value=b"b")
    cluster.start(1)
    cluster.pass_ms(5_000)
    assert values(cluster, 1) == values(cluster, 2) == [b"a", b"b"]


def test_a_replica_that_lost_the_end_of_a_segment_with_the_power_fetches_it_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(segment_bytes=400)
    for number in range(20):
        cluster.brokers[1].produce(value=b"%d" % number)
        cluster.settle()
    whole = values(cluster, 1)
    log = cluster.brokers[2].log()
    assert len(log.segments) > 2
    path = log.segments[1].path()
    cluster.brokers[2].kill()
    cluster.set(isr=(1, 3))
    *_, (_, _, lost) = parse(path.read_bytes())
    os.truncate(path, path.stat().st_size - len(lost))
    cluster.start(2)
    cluster.pass_ms(5_000)
    assert values(cluster, 2) == whole
    assert cluster.state().isr == (1, 3, 2)


def test_a_leader_without_other_replicas_keeps_what_follows_a_hole_when_it_follows_later(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(segment_bytes=400)
    for number in range(20):
        cluster.brokers[1].produce(value=b"%d" % number)
    cluster.settle()
    cluster.set(replicas=(1,), isr=(1,))
    cluster.tell()
    path = cluster.brokers[1].log().segments[1].path()
    cluster.brokers[1].kill()
    *_, (_, _, lost) = parse(path.read_bytes())
    os.truncate(path, path.stat().st_size - len(lost))
    cluster.start(1)
    cluster.brokers[1].partition()  # opens the log
    kept = values(cluster, 1)
    assert cluster.brokers[1].offsets() == (0, 20, 20)
    cluster.set(replicas=(1, 2, 3))
    cluster.isolate(1)
    cluster.elect(2, isr=(2, 3))
    cluster.tell()
    assert values(cluster, 1) == kept


def test_logs_diverge_over_several_fast_elections_and_agree_in_the_end(make_cluster: MakeCluster) -> None:
    """KIP-279: a leader answers with an epoch that the follower does not know, which asks again with an older one."""
    cluster = make_cluster(replicas=(1, 2))
    cluster.brokers[1].produce(value=b"a")
    cluster.settle()
    cluster.isolate(2)
    for epoch, (first, second) in enumerate([(b"p", b"q"), (b"r", b"s"), (b"t", b"u")]):
        only(cluster, 1)
        lead(cluster, 1)
        for _ in range(epoch + 1):
            cluster.brokers[1].produce(acks=1, value=first)
        only(cluster, 2)
        lead(cluster, 2)
        for _ in range(3 - epoch):
            cluster.brokers[2].produce(acks=1, value=second)
    assert len(values(cluster, 2)) == 7
    cluster.heal()
    cluster.start(1)
    cluster.pass_ms(5_000)
    assert values(cluster, 1) == values(cluster, 2) == [b"a", b"q", b"q", b"q", b"s", b"s", b"u"]
    entries = [broker.log().leader_epochs.entries for broker in cluster.brokers.values()]
    assert entries[0] == entries[1]


def test_an_unclean_leader_with_less_takes_what_the_others_have(cluster: Cluster) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.brokers[1].produce(acks=1, value=value)
        if value == b"a":
            cluster.settle()
            cluster.isolate(3)
    cluster.pass_ms(3_000)
    cluster.heal()
    only(cluster, 3)
    lead(cluster, 3)
    only(cluster, 1, 2, 3)
    cluster.tell()
    cluster.pass_ms(5_000)
    assert [values(cluster, broker_id) for broker_id in (1, 2, 3)] == [[b"a"]] * 3
    cluster.brokers[3].produce(acks=1, value=b"d")
    cluster.settle()
    assert [values(cluster, broker_id) for broker_id in (1, 2, 3)] == [[b"a", b"d"]] * 3


def test_an_unclean_leader_without_anything_takes_everything(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.isolate(2)
    for _ in range(3):
        cluster.brokers[1].produce(acks=1)
    only(cluster, 2)
    lead(cluster, 2)
    cluster.heal()
    cluster.start(1)
    cluster.pass_ms(5_000)
    assert cluster.brokers[1].offsets() == (0, 0, 0)


def test_an_epoch_without_records_makes_no_difference(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.brokers[1].produce(value=b"a")
    cluster.settle()
    for leader in (2, 1, 2, 1):
        lead(cluster, leader, 1, 2)
    cluster.brokers[1].produce(acks=1, value=b"b")
    cluster.settle()
    assert {broker.offsets() for broker in cluster.brokers.values()} == {(0, 2, 2)}
    assert cluster.brokers[2].log().leader_epochs.entries == [(0, 0), (4, 1)]


def test_a_leader_that_is_deposed_with_large_batches_in_flight_follows_when_they_are_written(cluster: Cluster) -> None:
    cluster.settle()
    leader = cluster.brokers[1]
    writers = [each for name, each in cluster.world.executors.items() if "-writer-broker-1" in name]
    large = bytes(2 * storage_limits.INLINE_WRITE_BYTES_MAX)
    results = [leader.produce(value=large) for _ in range(2)] + [leader.produce(acks=1, value=b"x")]
    writers = [each for name, each in cluster.world.executors.items() if "-writer-broker-1" in name]
    assert any(writer.jobs for writer in writers)
    before = leader.partition()
    cluster.elect(2, isr=(2, 3))
    cluster.tell()
    assert leader.log().queue.busy
    cluster.brokers[2].produce(acks=1, value=b"a")
    cluster.settle()
    assert before.gone
    assert [values(cluster, broker_id) for broker_id in (1, 2, 3)] == [[b"a"]] * 3
    cluster.pass_ms(10_000)
    assert {broker.offsets() for broker in cluster.brokers.values()} == {(0, 1, 1)}
    first, second, third = results
    assert [result.error_code for result in first + second] == [6, 6]
    assert [result.error_code for result in third] == [0], "acks=1 promises no more than that"


def test_a_leader_that_leads_again_goes_on_with_what_was_in_flight(cluster: Cluster) -> None:
    cluster.settle()
    leader = cluster.brokers[1]
    large = bytes(2 * storage_limits.INLINE_WRITE_BYTES_MAX)
    waiting = leader.produce(value=large)
    cluster.elect(2, isr=(1, 2, 3))
    cluster.tell([1])
    cluster.elect(1, isr=(1, 2, 3))
    cluster.tell()
    later = leader.produce(value=b"x")
    cluster.settle()
    assert [result.error_code for result in waiting] == [6]
    assert [(result.error_code, result.base_offset) for result in later] == [(0, 1)]
    assert {broker.offsets() for broker in cluster.brokers.values()} == {(0, 2, 2)}


def test_the_high_watermark_of_a_follower_does_not_go_back_with_a_new_leader(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.brokers[1].produce()
    cluster.pass_ms(13)
    cluster.settle()
    log = cluster.brokers[2].log()
    log.high_watermark = 1  # it has not heard of more
    assert cluster.brokers[3].offsets() == (0, 3, 3)
    cluster.isolate(1)
    cluster.elect(2, isr=(2, 3))
    cluster.tell([2, 3])
    seen = []
    for _ in range(50):
        cluster.pass_ms(1)
        seen.append(cluster.brokers[3].log().high_watermark)
    assert set(seen) == {3}


def test_a_leader_that_never_had_a_record_says_where_others_are_to_begin(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    lead(cluster, 2)
    log = cluster.brokers[2].partition().log
    assert log.end_offset_for_epoch(0, 1) == (0, 0)
    assert log.end_offset_for_epoch(1, 1) == (1, 0)
    assert log.end_offset_for_epoch(-1, 1) == (-1, -1)
    assert log.end_offset_for_epoch(2, 1) == (-1, -1)


def test_a_follower_whose_last_epoch_its_leader_does_not_know_asks_ever_more_rarely(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.brokers[1].produce(value=b"a")
    cluster.settle()
    follower = cluster.brokers[2]
    follower.log().leader_epochs.assign(50, 0)  # as no leader of this cluster gives it
    cluster.brokers[1].produce(acks=1, value=b"b")
    cluster.pass_ms(1_000)
    asked = len(follower.asked)
    cluster.pass_ms(20_000)
    assert 0 < len(follower.asked) - asked < 150
