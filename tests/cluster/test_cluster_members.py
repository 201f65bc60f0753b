"""Several brokers over one store: who registers, who decides, and what each of them knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import InSyncChange, InSyncResults, NewTopic, Registration
from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
from pybroker.cluster.image.cluster_image import NO_LEADER, PartitionImage
from pybroker.cluster.membership.cluster_member import ClusterMember
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import Entry, Transaction
from pybroker.cluster_limits import STORE_RETRY_MS
from pybroker_protocol.errors import ErrorCode

from .fakes import CLUSTER_ID
from .members import SESSION_TIMEOUT_MS, Members, log_dir
from .memory_store import MemoryStore


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    yield cluster
    cluster.close()


def partition(members: Members, topic: str = "t", *, seen_by: int = 1) -> PartitionImage:
    found = members.image(seen_by).partition(topic, 0)
    assert found is not None
    return found


# --- starting ---------------------------------------------------------------------------------------------------------


def test_brokers_that_start_together_found_one_cluster_with_one_controller(members: Members) -> None:
    members.start(1, 2, 3)
    assert len(members.active()) == 1
    assert {member.cluster_id for member in members.by_id.values()} == {CLUSTER_ID}
    for broker_id in (1, 2, 3):
        image = members.image(broker_id)
        assert set(image.brokers) == {1, 2, 3}
        assert not any(broker.fenced for broker in image.brokers.values())
        assert [image.controller_id] == members.active()


def test_images_of_one_epoch_are_equal_on_all_brokers(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (1, 2), (2, 3))
    images = [members.image(broker_id) for broker_id in (1, 2, 3)]
    assert len({image.epoch for image in images}) == 1
    for image in images[1:]:
        assert image.topics_by_name == images[0].topics_by_name
        assert image.brokers == images[0].brokers
        assert image.features == images[0].features


def test_a_broker_that_starts_later_knows_what_was_made_before(members: Members) -> None:
    members.start(1)
    members.create_topic("t", (1,))
    members.start(2)
    assert partition(members, seen_by=2) == partition(members)


def test_nothing_is_published_before_the_image_has_the_brokers_own_registration(members: Members) -> None:
    members.start(1)
    members.create_topic("t", (1,))
    members.cut_off.add(2)
    ended = members.join(2)
    members.settle()
    assert not ended
    assert members.image(2).epoch == 0, "an image without the registration was published"
    members.cut_off.clear()
    members.settle()
    assert ended == [None]
    assert 2 in members.image(2).brokers


def test_an_id_that_a_living_broker_has_is_refused_to_another(members: Members) -> None:
    members.start(1, 2)
    first = members.by_id[2]
    ended = members.join(2, directory=1)
    members.settle(SESSION_TIMEOUT_MS + 3_000)
    assert ended == ["another broker with the id 2 is alive"]
    assert members.image(1).brokers[2].epoch == first.broker_epoch


def test_log_dirs_are_a_brokers_own_once_nobody_else_has_its_id_and_before_others_may_know_of_it(
    members: Members,
) -> None:
    members.start(1)
    claimed: list[bool] = []
    members.cut_off.add(2)  # no controller answers yet
    ended = members.join(2, claim=lambda: claimed.append(2 in members.image(1).brokers))
    members.settle()
    assert claimed == [False], "a process that is killed now would come back with other log dirs"
    members.cut_off.clear()
    members.settle()
    assert (ended, claimed) == ([None], [False])
    members.vanish(2)
    members.join(2, claim=lambda: claimed.append(True))
    members.join(2, directory=1, claim=lambda: pytest.fail("these log dirs are another's, whose id is taken"))
    members.settle(SESSION_TIMEOUT_MS + 3_000)
    assert claimed == [False, True]


def test_a_broker_whose_log_dirs_cannot_be_its_own_is_not_registered(members: Members) -> None:
    members.start(1)
    ended = members.join(2, claim=lambda: "no room")
    members.settle()
    assert ended == ["no room"]
    assert 2 not in members.image(1).brokers


def test_a_process_that_finds_its_log_dirs_unlocked_takes_over_from_its_dead_predecessor(members: Members) -> None:
    members.start(1, 2)
    before = members.image(1).brokers[2]
    members.vanish(2)
    ended = members.join(2)  # the session of the dead process has not expired yet
    members.settle()
    assert ended == [None]
    assert members.image(1).brokers[2].epoch == before.epoch + 1


def test_a_broker_that_has_registered_anew_is_not_fenced_for_its_former_death(members: Members) -> None:
    members.start(1, 2)
    former = members.image(1).brokers[2].epoch
    members.kill(2)
    assert members.image(1).brokers[2].fenced
    assert members.join(2) == []
    members.settle()
    (active,) = members.active()
    controller, epoch = members.by_id[active].controller, members.image(1).brokers[2].epoch
    assert members.ask(lambda done: controller.fence_brokers({2: former}, done)) == []
    assert (members.image(1).brokers[2].fenced, members.image(1).brokers[2].epoch) == (False, epoch)


def test_a_broker_that_no_controller_registers_gives_up_with_the_reason_and_tells_of_it_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    members = Members({"initial.broker.registration.timeout.ms": "20000"})
    members.start(1)
    members.cut_off.add(2)
    ended = members.join(2)
    members.settle(19_000)
    assert ended == []
    (told,) = [line for line in caplog.messages if "has not joined its cluster yet" in line]
    assert "NOT_CONTROLLER" in told
    members.settle(2_000)
    (why,) = ended
    assert why is not None
    assert "could not join its cluster within 20000 ms: the controller's answer is NOT_CONTROLLER" in why
    members.close()


def test_a_broker_that_is_registered_and_whose_store_does_not_tell_gives_up_with_the_reason() -> None:
    members = Members({"initial.broker.registration.timeout.ms": "20000"})
    members.start(1)
    ended = members.join(2)
    members.stores[2].is_slow_to_follow = True
    members.settle(19_000)
    assert members.by_id[2].broker_epoch >= 0
    assert ended == []
    members.settle(2_000)
    (why,) = ended
    assert why is not None
    assert "could not join its cluster within 20000 ms: it is registered, but the metadata store" in why
    members.close()


def test_a_broker_that_was_registered_in_time_is_given_up_by_nobody() -> None:
    members = Members({"initial.broker.registration.timeout.ms": "20000"})
    members.start(1, 2)
    members.cut_off.add(2)
    members.settle(30_000)
    assert members.by_id[2].broker_epoch >= 0
    members.close()


# --- who decides ------------------------------------------------------------------------------------------------------


def test_another_controller_decides_when_the_active_one_is_killed(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("before", (1, 2, 3))
    (first,) = members.active()
    members.kill(first)
    (second,) = members.active()
    assert second != first
    members.create_topic("after", tuple(members.by_id))
    for broker_id in members.by_id:
        image = members.image(broker_id)
        assert image.controller_id == second
        assert {"before", "after"} <= set(image.topics_by_name)
        assert image.brokers[first].fenced


def test_a_living_broker_whose_id_begins_like_the_dead_controllers_does_not_keep_the_key_for_it(
    members: Members,
) -> None:
    members.start(1)
    members.start(10, 11)
    assert members.active() == [1]
    members.kill(1)
    assert len(members.active()) == 1


def test_a_controller_whose_session_is_lost_decides_nothing_more(members: Members) -> None:
    members.start(1, 2)
    (first,) = members.active()
    deposed = members.by_id[first].controller
    members.stores[first].expire()
    members.world.run()
    answers: list[object] = []
    deposed.create_topics([NewTopic("t")], lambda results: answers.append(results[0].error_code))
    members.world.run()
    assert answers in ([ErrorCode.NOT_CONTROLLER], [0])
    members.settle()
    assert len(members.active()) == 1
    assert not members.image(first).brokers[first].fenced, "it registers anew"


def test_lost_sessions_leave_nobody_to_be_told_twice(members: Members) -> None:
    members.start(1, 2)
    closers: list[Any] = list(members.by_id[2]._closers)
    live = next(close.__self__ for close in closers if isinstance(close.__self__, LiveBrokers))
    follower = members.by_id[2].follower
    before = len(live.listeners), len(follower.listeners)
    for _ in range(10):
        members.stores[2].expire()
        members.settle()
    assert (len(live.listeners), len(follower.listeners)) == before


def test_a_fencing_that_fails_is_tried_again_after_a_pause(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    members.start(1, 2)
    (active,) = members.active()
    controller, other = members.by_id[active].controller, 3 - active
    asked: list[Mapping[int, int]] = []

    def fail(dead: Mapping[int, int], done: Callable[[list[int]], None]) -> None:
        asked.append(dead)
        assert len(asked) < 100, "without a pause"
        members.world.timers.call_soon(done, [])

    with monkeypatch.context() as patch:
        patch.setattr(controller, "fence_brokers", fail)
        members.vanish(other).close()
        members.settle(1_000)
        assert 1 <= len(asked) <= 1 + 1_000 // STORE_RETRY_MS
    members.settle()
    assert members.image(active).brokers[other].fenced


def test_a_deposed_controller_changes_nothing_whatever_it_believes(members: Members) -> None:
    members.start(1, 2)
    (first,) = members.active()
    deposed, store = members.by_id[first].controller, members.stores[first]
    key = members.shared.entries[store_codec.CONTROLLER]
    held = store_codec.decode_controller(key.value)
    usurper = store_codec.encode_controller(
        held._replace(broker_id=3 - first, controller_epoch=held.controller_epoch + 1)
    )
    entries = members.shared.entries
    entries[store_codec.CONTROLLER] = key._replace(value=usurper, version=key.version + 1)  # and nobody has told it
    (result,) = members.ask(lambda done: deposed.create_topics([NewTopic("t")], done))
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert "t" not in {topic for image in members.caches.values() for topic in image.image.topics_by_name}
    assert not store.is_away


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "done"])
def test_after_a_commit_of_unknown_end_the_controller_finds_out_before_it_goes_on(
    members: Members, is_done: bool
) -> None:
    members.start(1, 2)
    (first,) = members.active()
    store = members.stores[first]
    answers: list[int] = []
    store.loses_answers, store.is_away = is_done, not is_done
    members.by_id[first].controller.create_topics(
        [NewTopic("t")], lambda results: answers.append(results[0].error_code)
    )
    members.world.run()
    store.loses_answers = store.is_away = False
    members.settle()
    assert answers[0] == ErrorCode.REQUEST_TIMED_OUT
    assert len(members.active()) == 1
    members.create_topic("u", (1,))
    for broker_id in (1, 2):
        assert ("t" in members.image(broker_id).topics_by_name) is is_done
        assert "u" in members.image(broker_id).topics_by_name


def test_a_broker_asks_the_active_controller_wherever_it_is(members: Members) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = members.by_id[3 - active]
    (created,) = members.ask(lambda done: other.channel.create_topics([NewTopic("t", 1, 1)], done))
    assert created.error_code == 0
    assert "t" in members.image(3 - active).topics_by_name, "its own image has the topic when it is answered"
    blocks = [members.ask(each.channel.allocate_producer_ids) for each in members.by_id.values()]
    assert len({block.first_producer_id for block in blocks}) == 2


def test_without_an_active_controller_a_wish_is_refused_and_not_lost(members: Members) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = members.by_id[3 - active]
    members.cut_off.add(active)
    (created,) = members.ask(lambda done: other.channel.create_topics([NewTopic("t", 1, 1)], done))
    assert created.error_code == ErrorCode.NOT_CONTROLLER


# --- who leads --------------------------------------------------------------------------------------------------------


def test_another_in_sync_replica_leads_when_the_leader_is_killed(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    before = partition(members)
    assert before.leader == 2
    members.kill(2)
    after = partition(members)
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), before.leader_epoch + 1)


def test_the_last_in_sync_replica_stays_the_one_that_may_lead(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    members.kill(3)
    members.kill(2)
    gone = partition(members)
    assert gone.leader == NO_LEADER
    assert 3 not in gone.isr
    members.start(3)
    assert partition(members).leader == NO_LEADER, "3 lacks what was written without it"
    members.start(2)
    assert partition(members).leader == 2


def test_a_follower_that_comes_back_is_in_sync_only_when_its_leader_says_so(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    members.kill(3)
    members.start(3)
    assert partition(members).isr == (2,)


def test_a_clean_stop_hands_leaderships_over_first(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    left: list[bool] = []
    members.by_id[2].leave(5_000, lambda: left.append(True))
    members.settle()
    assert left
    after = partition(members)
    assert (after.leader, after.isr) == (3, (3,))
    assert 2 in members.by_id, "it goes only then"


def test_a_broker_that_is_fenced_while_it_leaves_does_not_register_anew(members: Members) -> None:
    members.start(1, 2, 3)
    epoch = members.image(1).brokers[2].epoch
    (active,) = members.active()
    members.by_id[2].leave(5_000, lambda: None)
    members.ask(lambda done: members.by_id[active].controller.fence_brokers({2: epoch}, done))
    after = members.image(1).brokers[2]
    assert (after.epoch, after.fenced) == (epoch, True)


def test_a_broker_that_loses_its_session_while_it_leaves_has_left(members: Members) -> None:
    members.start(1, 2, 3)
    left: list[bool] = []
    members.cut_off.add(2)  # so that nobody hears that it wants to leave
    members.by_id[2].leave(5_000, lambda: left.append(True))
    members.world.run()
    assert not left
    members.stores[2].expire()
    members.settle(10_000)
    assert left == [True]
    assert members.image(1).brokers[2].fenced, "it does not come back"


def test_a_broker_that_leaves_while_it_registers_anew_hands_its_leaderships_over(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    members.start(1, 2, 3)
    (active,) = members.active()
    leaving = next(each for each in (2, 3) if each != active)
    controller, epoch = members.by_id[active].controller, members.by_id[leaving].broker_epoch
    register = controller.register_broker

    def answer_late(registration: Any, cluster_id: str, previous: int, done: Callable[[Registration], None]) -> None:
        def answer(result: Registration) -> None:
            members.world.timers.call_later(500, done, result)

        register(registration, cluster_id, previous, answer)

    monkeypatch.setattr(controller, "register_broker", answer_late)
    fenced: list[list[int]] = []
    controller.fence_brokers({leaving: epoch}, fenced.append)
    for _ in range(1_000):
        members.world.step()
        if members.by_id[leaving].follower.image.brokers[leaving].fenced:
            break
    members.stores[leaving].is_slow_to_follow = True
    members.settle(200)
    assert fenced == [[leaving]]
    assert members.image(active).brokers[leaving].epoch > epoch
    left: list[bool] = []
    members.by_id[leaving].leave(5_000, lambda: left.append(True))
    members.settle()
    assert left == [True]
    assert members.image(active).brokers[leaving].in_controlled_shutdown


def test_a_broker_whose_key_is_still_that_of_its_former_session_puts_it_anew(members: Members) -> None:
    members.start(1, 2)
    # As in a store whose data was away for a while: it does not know yet that the session is over.
    former = MemoryStore(members.shared, members.env)
    members.shared.owners[store_codec.live_key(2)] = former
    members.stores[2].on_session_lost()
    members.settle()
    former.expire()
    members.settle()
    assert members.shared.owners[store_codec.live_key(2)] is members.stores[2]
    assert not members.image(1).brokers[2].fenced


# --- AlterPartition ---------------------------------------------------------------------------------------------------


def altered(members: Members, leader: int, *in_sync: int, **changed: int) -> InSyncResults:
    image = members.image(1)
    state, topic_id = partition(members), image.topics_by_name["t"].topic_id
    epochs = tuple((replica, image.brokers[replica].epoch + changed.get("broker_epoch_off", 0)) for replica in in_sync)
    change = InSyncChange(
        topic_id,
        0,
        state.leader_epoch + changed.get("leader_epoch_off", 0),
        state.partition_epoch + changed.get("partition_epoch_off", 0),
        epochs,
    )
    results: InSyncResults = members.ask(lambda done: members.by_id[leader].channel.alter_partitions([change], done))
    return results


def test_a_leader_gets_the_in_sync_replicas_that_it_asks_for(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    before = partition(members)
    ((_, _, error_code, state),) = altered(members, 2, 2).results
    assert error_code == 0
    assert state is not None
    assert (state.isr, state.partition_epoch) == ((2,), before.partition_epoch + 1)
    assert partition(members).isr == (2,)
    altered(members, 2, 2, 3)
    assert partition(members).isr == (2, 3)


def test_each_of_several_partitions_gets_its_own_answer_whatever_their_order_is(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3), (2, 3))
    members.create_topic("other", (2, 1))
    (active,) = members.active()
    leader = members.by_id[2]
    assert active != 2, "the answers are to come from another broker"
    image = members.image(1)
    topics = image.topics_by_name
    asked = [(topics["t"].topic_id, 0), (topics["other"].topic_id, 0), (topics["t"].topic_id, 1)]
    alone = ((2, image.brokers[2].epoch),)
    changes = [
        InSyncChange(topic_id, index, 0, image.topics_by_id[topic_id].partitions[index].partition_epoch, alone)
        for topic_id, index in asked
    ]
    results: InSyncResults = members.ask(lambda done: leader.channel.alter_partitions(changes, done))
    assert [(result.topic_id, result.partition_index) for result in results.results] == asked


@pytest.mark.parametrize(
    ("leader", "in_sync", "changed", "expected"),
    [
        (2, (2,), {"leader_epoch_off": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, (2,), {"leader_epoch_off": 1}, ErrorCode.NOT_CONTROLLER),
        (2, (2,), {"partition_epoch_off": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (2, (2,), {"partition_epoch_off": 1}, ErrorCode.NOT_CONTROLLER),
        (3, (3,), {}, ErrorCode.INVALID_REQUEST),
        (2, (3,), {}, ErrorCode.INVALID_REQUEST),
        (2, (2, 1), {}, ErrorCode.INVALID_REQUEST),
        (2, (2, 2), {}, ErrorCode.INVALID_REQUEST),
        (2, (2, 3), {"broker_epoch_off": 1}, ErrorCode.INELIGIBLE_REPLICA),
    ],
    ids=[
        "a former leader",
        "a later leader than is known",
        "an older state",
        "a newer state",
        "no leader",
        "without the leader",
        "no replica",
        "twice",
        "another life of a follower",
    ],
)
def test_in_sync_replicas_are_refused_to(
    members: Members, leader: int, in_sync: tuple[int, ...], changed: dict[str, int], expected: ErrorCode
) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    altered(members, 2, 2, 3)
    before = partition(members)
    ((_, _, error_code, _),) = altered(members, leader, *in_sync, **changed).results
    assert error_code == expected
    assert partition(members) == before


def test_a_broker_of_another_epoch_gets_no_in_sync_replicas_at_all(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    (active,) = members.active()
    epoch = members.image(1).brokers[2].epoch
    results = members.ask(lambda done: members.by_id[active].controller.alter_partitions(2, epoch - 1, [], done))
    assert results == InSyncResults([], ErrorCode.STALE_BROKER_EPOCH)


# --- another process with the broker's id -----------------------------------------------------------------------------


def freeze_beyond_its_session(members: Members, broker_id: int) -> ClusterMember:
    """The broker's process stands still, its session ends, and another process with its id joins meanwhile."""
    member, store = members.by_id[broker_id], members.stores[broker_id]
    store.is_slow_to_follow = store.is_slow_to_watch = True
    members.shared.end_session(store)
    members.settle()
    ended = members.join(broker_id, directory=1)
    members.settle()
    assert ended == [None]
    return member


def wake(members: Members, store: MemoryStore) -> None:
    """The process goes on where it stood, and learns everything as if it had just happened."""
    store.is_slow_to_follow = store.is_slow_to_watch = False
    for follower in [each for each in members.shared.followers if each.store is store]:
        for changes in members.shared.history:
            members.world.timers.call_soon(follower.tell, changes)
    members.shared.tell_watchers()
    members.world.timers.call_soon(store.on_session_lost)


@pytest.mark.parametrize("is_told_late", [True, False], ids=["before it knows", "when it knows"])
def test_a_process_whose_broker_id_another_one_has_taken_over_speaks_for_itself_alone(
    members: Members, is_told_late: bool
) -> None:
    members.start(1, 2, 3)
    (active,) = members.active()
    taken = next(each for each in (3, 2) if each != active)
    members.create_topic("t", (taken, active))
    store, former_epoch = members.stores[taken], members.by_id[taken].broker_epoch
    former = freeze_beyond_its_session(members, taken)
    told: list[int] = []
    former.on_superseded = lambda: told.append(taken)
    if not is_told_late:
        wake(members, store)
        members.settle()
        assert told == [taken]
    newest = members.image(active).brokers[taken]
    assert former.broker_epoch == former_epoch < newest.epoch
    heartbeat = members.ask(lambda done: former.channel.heartbeat(done, wants_shutdown=True))
    assert heartbeat.error_code == ErrorCode.STALE_BROKER_EPOCH
    results = members.ask(lambda done: former.channel.alter_partitions([], done))
    assert results.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert members.ask(former.channel.allocate_producer_ids) is None
    assert members.image(active).brokers[taken] == newest
    assert not newest.in_controlled_shutdown
    if is_told_late:
        wake(members, store)
        members.settle()
    assert told == [taken]
    left: list[bool] = []
    former.leave(60_000, lambda: left.append(True))
    members.settle()
    assert left == [True]
    store.close()
    members.settle()
    assert members.image(active).brokers[taken] == newest
    former.close()


def test_of_two_processes_with_one_broker_id_one_is_the_controller(members: Members) -> None:
    members.start(1)
    store = members.stores[1]
    former = freeze_beyond_its_session(members, 1)
    wake(members, store)
    for _ in range(30):
        key = members.shared.entries[store_codec.CONTROLLER]
        members.settle(100)
        assert members.active() == [1]
        assert not former.controller.is_active
        assert members.shared.entries[store_codec.CONTROLLER] == key
    former.close()


# --- coming back ------------------------------------------------------------------------------------------------------


def test_a_broker_that_comes_back_is_registered_once_and_not_fenced_for_what_the_controller_has_not_seen_yet(
    members: Members,
) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = 3 - active
    before = members.image(active).brokers[other]
    members.kill(other)
    members.stores[active].is_slow_to_watch = True
    ended = members.join(other)
    members.settle()
    assert not ended
    members.stores[active].is_slow_to_watch = False
    members.shared.tell_watchers()
    members.settle()
    assert ended == [None]
    after = members.image(active).brokers[other]
    assert (after.epoch, after.fenced) == (before.epoch + 1, False)


def test_a_broker_that_registers_again_for_want_of_an_answer_has_not_crashed(members: Members) -> None:
    members.start(1, 2)
    members.create_topic("t", (2, 1))
    (active,) = members.active()
    before = members.image(active)
    members.ask(lambda done: members.by_id[active].controller.register_broker(before.brokers[2], CLUSTER_ID, -1, done))
    after = members.image(active)
    assert after.brokers[2].epoch > before.brokers[2].epoch
    state = after.topics_by_name["t"].partitions[0]
    assert (state.leader, state.isr) == (2, (2, 1))


@pytest.mark.parametrize("is_told", [True, False], ids=["told before", "not told before"])
def test_a_log_dir_that_failed_is_lost_also_when_its_broker_registers_anew(members: Members, is_told: bool) -> None:
    members.start(1, 2)
    (active,) = members.active()
    members.join(3, found={(bytes(16), 0): log_dir(3, 1)})
    members.settle()
    assert members.image(active).brokers[3].log_dirs == (log_dir(3), log_dir(3, 1))
    members.by_id[3].take_directory_offline(log_dir(3, 1))
    if is_told:
        members.settle()
        assert members.image(active).brokers[3].log_dirs == (log_dir(3),)
    members.stores[3].expire()
    members.settle()
    (active,) = members.active()
    assert not members.image(active).brokers[3].fenced
    assert members.image(active).brokers[3].log_dirs == (log_dir(3),)


def test_nobody_takes_the_key_from_a_holder_who_lives_by_the_store_but_was_not_heard_of_yet(members: Members) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = 3 - active
    closers: list[Any] = list(members.by_id[other]._closers)
    live = next(close.__self__ for close in closers if isinstance(close.__self__, LiveBrokers))
    entries = members.stores[other].load(store_codec.LIVE)
    live._on_ephemerals({key: entry.value for key, entry in entries.items() if key == store_codec.live_key(other)})
    members.settle()
    assert members.active() == [active]


def test_what_is_read_at_the_start_is_of_one_revision(members: Members) -> None:
    members.start(1)
    store = MemoryStore(members.shared, members.env)
    commits = [b"29", b"30"]

    def load(prefix: str) -> dict[str, Entry]:
        found = MemoryStore.load(store, prefix)
        if commits:
            store.commit_at_start(Transaction(puts={"/features": b'{"metadata.version":%s}' % commits.pop()}))
        return found

    store.load = load  # type: ignore[method-assign]
    member = members.member(2, store)
    member.load()
    assert member.loaded_revision == members.shared.revision
    assert member.loaded_image.features == {"metadata.version": 29}
    member.close()
