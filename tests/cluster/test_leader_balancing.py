"""Who leads without being asked: preferred replicas that are back, and replicas out of sync where that is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pybroker.cluster.decisions.elections import balance_leaders
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.config.resources import BROKER, TOPIC, UNCLEAN_LEADER_ELECTION, ConfigChange
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest
from tests.steps import end_of

from .members import Members

INTERVAL_MS = 10_000


@pytest.fixture
def begin() -> Iterator[Callable[..., Members]]:
    begun: list[Members] = []

    def begin(**settings: str) -> Members:
        every = {"leader.imbalance.check.interval.seconds": str(INTERVAL_MS // 1_000)}
        begun.append(Members({**every, **{name.replace("_", "."): value for name, value in settings.items()}}))
        return begun[-1]

    yield begin
    for members in begun:
        members.close()


def partition(members: Members, topic: str = "t") -> PartitionImage:
    (seen_by, *_) = members.by_id
    found = members.image(seen_by).partition(topic, 0)
    assert found is not None
    return found


def led_by_the_other(members: Members) -> tuple[int, int]:
    """A partition whose preferred replica was away and is in sync again; that replica, and who leads."""
    members.start(1, 2, 3)
    (active,) = members.active()
    preferred, other = (broker_id for broker_id in (1, 2, 3) if broker_id != active)
    members.create_topic("t", (preferred, other))
    members.kill(preferred)
    members.start(preferred)
    members.alter_in_sync("t", preferred, other)
    assert partition(members).leader == other
    return preferred, other


# --- balance ----------------------------------------------------------------------------------------------------------


def test_a_preferred_replica_that_is_in_sync_again_leads_again_after_a_while(begin: Callable[..., Members]) -> None:
    members = begin()
    preferred, _ = led_by_the_other(members)
    before = partition(members)
    members.settle(INTERVAL_MS)
    after = partition(members)
    assert (after.leader, after.leader_epoch) == (preferred, before.leader_epoch + 1)


def test_nobody_is_balanced_where_that_is_not_wanted(begin: Callable[..., Members]) -> None:
    members = begin(auto_leader_rebalance_enable="false")
    _, other = led_by_the_other(members)
    members.settle(3 * INTERVAL_MS)
    assert partition(members).leader == other


def test_balance_is_kept_by_the_next_controller_too_and_by_one_alone(begin: Callable[..., Members]) -> None:
    members = begin()
    preferred, other = led_by_the_other(members)
    (first,) = members.active()
    members.kill(first)
    assert partition(members).leader == other
    members.settle(INTERVAL_MS)
    assert partition(members).leader == preferred
    epochs = {partition(members).leader_epoch}
    members.settle(3 * INTERVAL_MS)
    assert {partition(members).leader_epoch} == epochs


def test_elections_of_preferred_leaders_are_asked_of_any_of_several_brokers(begin: Callable[..., Members]) -> None:
    members = begin(auto_leader_rebalance_enable="false")
    preferred, _ = led_by_the_other(members)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
    response = members.ask_controller(request, 2)
    assert response.error_code == 0
    results = [(each.topic, each.partition_result[0].error_code) for each in response.replica_election_results]
    assert results == [("t", 0)]
    assert partition(members).leader == preferred


def test_so_many_are_elected_at_most_and_none_that_cannot_lead() -> None:
    builder = ImageBuilder(ClusterImage())
    directories = (bytes(15) + b"\x21",)
    for broker, fenced in ((1, False), (2, False), (3, True)):
        builder.put_broker(BrokerRegistration(broker, 0, bytes(16), {}, None, fenced, False, directories))

    def led_by(leader: int, *replicas: int, isr: tuple[int, ...] = ()) -> PartitionImage:
        return PartitionImage(replicas, isr or replicas, leader, directories=directories * len(replicas))

    states = (
        led_by(2, 1, 2),
        led_by(1, 1, 2),
        led_by(2, 3, 2),
        led_by(2, 1, 2, isr=(2,)),
        led_by(NO_LEADER, 1, 3, isr=(3,)),
        led_by(2, 1, 2),
        led_by(2, 1, 2),
    )
    builder.put_topic(TopicImage("t", b"t" * 16, states))

    def balance(elections_max: int) -> tuple[int, list[int]]:
        count = end_of(balance_leaders(builder, elections_max))
        return count, [each.leader for each in builder.view().topics_by_name["t"].partitions]

    assert balance(2) == (2, [1, 1, 2, 2, NO_LEADER, 1, 2])
    assert balance(2) == (1, [1, 1, 2, 2, NO_LEADER, 1, 1])
    assert balance(2) == (0, [1, 1, 2, 2, NO_LEADER, 1, 1])


# --- out of sync ------------------------------------------------------------------------------------------------------


def all_down_and_the_follower_back(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    members.kill(3)
    members.kill(2)
    assert partition(members).leader == NO_LEADER
    members.start(3)


def test_a_replica_that_is_not_in_sync_waits_for_one_that_is(begin: Callable[..., Members]) -> None:
    members = begin()
    all_down_and_the_follower_back(members)
    assert partition(members).leader == NO_LEADER
    members.start(2)
    assert partition(members).leader == 2


def test_it_leads_at_once_where_the_brokers_files_allow_that(begin: Callable[..., Members]) -> None:
    members = begin(unclean_leader_election_enable="true")
    all_down_and_the_follower_back(members)
    after = partition(members)
    assert (after.leader, after.isr, after.elr) == (3, (3,), ())
    assert after.leader_recovery_state == RECOVERING
    members.start(2)
    assert partition(members).leader == 3, "what 2 has alone is lost"
    members.alter_in_sync("t", 3, 2)
    assert partition(members).leader_recovery_state == RECOVERED, "its leader has asked for others in sync"


@pytest.mark.parametrize("resource", [(TOPIC, "t"), (BROKER, "")])
def test_it_leads_as_soon_as_its_topic_or_all_brokers_allow_that(
    begin: Callable[..., Members], resource: tuple[int, str]
) -> None:
    members = begin()
    all_down_and_the_follower_back(members)
    assert partition(members).leader == NO_LEADER
    (active,) = members.active()
    change = ConfigChange(*resource, {UNCLEAN_LEADER_ELECTION: "true"})
    (result,) = members.ask(lambda done: members.by_id[active].controller.alter_configs([change], done))
    assert result.error_code == 0
    assert partition(members).leader == 3


def test_a_topic_may_forbid_what_all_brokers_allow(begin: Callable[..., Members]) -> None:
    members = begin(unclean_leader_election_enable="true")
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    (active,) = members.active()
    change = ConfigChange(TOPIC, "t", {UNCLEAN_LEADER_ELECTION: "false"})
    members.ask(lambda done: members.by_id[active].controller.alter_configs([change], done))
    members.kill(3)
    members.kill(2)
    members.start(3)
    assert partition(members).leader == NO_LEADER


def test_a_living_replica_out_of_sync_takes_over_from_the_last_that_was_in_sync(
    begin: Callable[..., Members],
) -> None:
    members = begin(unclean_leader_election_enable="true")
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    members.alter_in_sync("t", 2)
    members.kill(2)
    assert (partition(members).leader, partition(members).isr) == (3, (3,))
