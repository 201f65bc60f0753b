"""Who is heard: which datagrams are believed, and whose silence counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.failure_detection.liveness import (
    LIVENESS_OVERLOAD_FACTOR,
    LIVENESS_PROBE_AGAIN_MS,
    LIVENESS_SUSPECT_MS,
    TAG_BYTES,
    Liveness,
    ProbeResult,
    Progress,
    Report,
    decode,
    encode,
)
from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, Endpoint
from pybroker.cluster_limits import LIVENESS_INTERVAL_MS, SUSPICION_HOLD_MS
from pybroker.net.connection_probe import LIVENESS_PROBE_MS

from .fakes import LISTENER
from .members import SESSION_TIMEOUT_MS, Members

SECRET = b"of the cluster"
TIMEOUT_MS = 500


class Air:
    """Carries datagrams at once.  ``deaf``: pairs (from, to) between which nothing goes; ``record`` has all of them.

    ``refusing``: brokers at whose machine nobody listens; ``gone``: brokers whose machine answers nothing.
    """

    def __init__(self) -> None:
        self.refusing: set[int] = set()
        self.gone: set[int] = set()
        self.ears: dict[int, Callable[[bytes], None]] = {}
        self.deaf: set[tuple[int, int]] = set()
        self.record: list[tuple[int, int, bytes]] = []

    def antenna(self, broker_id: int) -> Antenna:
        return Antenna(self, broker_id)

    def connection_probe(self, world: VirtualWorld) -> Hand:
        return Hand(self, world)

    def kill(self, broker_id: int) -> None:
        """The broker's process has ended, and its machine says so."""
        self.stop(broker_id)
        self.refusing.add(broker_id)

    def stop(self, broker_id: int) -> None:
        """The broker does nothing, and its machine takes connections for it."""
        self.deaf |= {(broker_id, other) for other in range(10)}

    def cut_off(self, broker_id: int) -> None:
        """Nobody hears of the broker any more, nor of its machine."""
        self.stop(broker_id)
        self.gone.add(broker_id)

    def heal(self) -> None:
        """Whoever was cut off or stopped is there again."""
        self.deaf.clear()
        self.gone.clear()


class Antenna:
    """One broker's datagrams; its port is its id."""

    def __init__(self, air: Air, broker_id: int) -> None:
        self._air = air
        self._broker_id = broker_id

    def start(self, receive: Callable[[bytes], None]) -> None:
        self._air.ears[self._broker_id] = receive

    def send(self, host: str, port: int, data: bytes) -> None:
        self._air.record.append((self._broker_id, port, data))
        if (self._broker_id, port) not in self._air.deaf and port in self._air.ears:
            self._air.ears[port](data)

    def close(self) -> None:
        self._air.ears.pop(self._broker_id, None)


class Hand:
    """One broker's probes; the answer comes in the next turn."""

    def __init__(self, air: Air, world: VirtualWorld) -> None:
        self._air = air
        self._world = world

    def probe(self, host: str, port: int, done: Callable[[ProbeResult], None]) -> None:
        if port in self._air.gone:
            self._world.timers.call_later(LIVENESS_PROBE_MS, done, ProbeResult.UNANSWERED)
        else:
            refuses = port in self._air.refusing or port not in self._air.ears
            self._world.timers.call_soon(done, ProbeResult.REFUSED if refuses else ProbeResult.TAKEN)

    def close(self) -> None:
        pass


class Brokers:
    """Brokers 1 to ``count`` on one loop."""

    def __init__(self, count: int) -> None:
        self.world = VirtualWorld()
        self.air = Air()
        self.image = ClusterImage(
            epoch=1,
            brokers={
                number: BrokerRegistration(number, 0, bytes(16), {LISTENER: Endpoint("host", number)})
                for number in range(1, count + 1)
            },
        )
        self.suspected_brokers: dict[int, SuspectedBrokers] = {}
        self.by_id = {number: self._start(number) for number in self.image.brokers}

    def _start(self, broker_id: int) -> Liveness:
        liveness = Liveness(
            self.world.env,
            broker_id,
            lambda: self.image.brokers[broker_id].epoch if broker_id in self.image.brokers else -1,
            lambda: self.image,
            SECRET,
            Antenna(self.air, broker_id),
            Hand(self.air, self.world),
            LISTENER,
            self.suspected_brokers.setdefault(broker_id, SuspectedBrokers(self.world.env)),
            TIMEOUT_MS,
        )
        liveness.start()
        return liveness

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // 20):
            self.world.advance(20)

    def unregister(self, broker_id: int) -> None:
        brokers = {number: broker for number, broker in self.image.brokers.items() if number != broker_id}
        self.image = ClusterImage(epoch=self.image.epoch + 1, brokers=brokers)

    def fence(self, broker_id: int) -> None:
        brokers = {**self.image.brokers, broker_id: self.image.brokers[broker_id]._replace(fenced=True)}
        self.image = ClusterImage(epoch=self.image.epoch + 1, brokers=brokers)

    def register_anew(self, broker_id: int) -> None:
        brokers = dict(self.image.brokers)
        brokers[broker_id] = brokers[broker_id]._replace(epoch=brokers[broker_id].epoch + 1)
        self.image = ClusterImage(epoch=self.image.epoch + 1, brokers=brokers)

    def silent(self, broker_id: int) -> list[int]:
        """Those for whom the broker is silent."""
        return [other for other, liveness in self.by_id.items() if liveness.is_silent(broker_id)]


def test_whoever_speaks_is_not_silent() -> None:
    brokers = Brokers(3)
    brokers.pass_time(5_000)
    assert [brokers.silent(number) for number in (1, 2, 3)] == [[], [], []]


def test_a_broker_that_falls_silent_is_silent_for_all_others_after_the_time_out() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.cut_off(3)
    brokers.pass_time(TIMEOUT_MS - 120)
    assert brokers.silent(3) == []
    brokers.pass_time(240)
    assert brokers.silent(3) == [1, 2]


def test_where_there_are_three_a_lone_witness_is_not_believed() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.deaf.add((3, 1))
    brokers.pass_time(2_000)
    assert brokers.silent(3) == []


@pytest.mark.parametrize("way", [(3, 1), (1, 3)])
def test_two_brokers_are_cut_off_from_each_other_where_either_does_not_hear_the_other(way: tuple[int, int]) -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    assert not brokers.by_id[1].is_cut_off(3)
    brokers.air.deaf.add(way)
    brokers.pass_time(2_000)
    assert [brokers.by_id[1].is_cut_off(3), brokers.by_id[3].is_cut_off(1)] == [True, True]
    assert [brokers.by_id[2].is_cut_off(each) for each in (1, 3)] == [False, False]
    brokers.register_anew(3)
    assert not brokers.by_id[1].is_cut_off(3), "it is judged anew once it is heard"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_broker_that_is_cut_off_from_most_takes_no_other_for_cut_off_but_where_there_are_two(count: int) -> None:
    brokers = Brokers(count)
    brokers.pass_time(1_000)
    brokers.air.deaf |= {(other, 1) for other in range(2, count + 1)}
    brokers.pass_time(2_000)
    assert [brokers.by_id[1].is_cut_off(other) for other in range(2, count + 1)] == [count == 2] * (count - 1)
    assert brokers.by_id[2].is_cut_off(1)


def test_what_a_fenced_broker_finds_takes_nobody_for_dead() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.fence(3)
    brokers.air.deaf |= {(1, 3), (3, 1)}
    brokers.pass_time(2_000)
    assert brokers.silent(1) == [], "the fenced one hears nothing of the first, and the second does"


def test_where_there_are_two_the_other_one_decides() -> None:
    brokers = Brokers(2)
    brokers.pass_time(1_000)
    brokers.air.cut_off(2)
    brokers.pass_time(1_000)
    assert brokers.silent(2) == [1]


def test_a_minority_that_hears_nobody_takes_nobody_for_dead() -> None:
    brokers = Brokers(5)
    brokers.pass_time(1_000)
    brokers.air.deaf |= {(left, right) for left in (1, 2) for right in (3, 4, 5)}
    brokers.air.deaf |= {(right, left) for left in (1, 2) for right in (3, 4, 5)}
    brokers.pass_time(2_000)
    assert [brokers.silent(number) for number in (3, 4, 5)] == [[], [], []]
    assert [brokers.silent(number) for number in (1, 2)] == [[3, 4, 5], [3, 4, 5]]


def test_a_killed_broker_is_silent_for_all_as_soon_as_connections_to_it_break() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.kill(3)
    for other in (1, 2):
        brokers.by_id[other].suspect(3)
    brokers.world.advance(0)
    assert brokers.silent(3) == [1, 2]


def test_a_killed_broker_to_which_nobody_is_connected_is_silent_soon() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.kill(3)
    brokers.pass_time(LIVENESS_SUSPECT_MS + LIVENESS_INTERVAL_MS)
    assert brokers.silent(3) == [1, 2]


def test_a_lone_witness_of_a_refusal_is_not_believed_where_there_are_three() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.refusing.add(3)
    brokers.by_id[1].suspect(3)
    brokers.world.advance(0)
    assert brokers.silent(3) == []


def test_a_broker_that_refuses_connections_and_is_heard_is_not_silent() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.refusing.add(3)
    for other in (1, 2):
        brokers.by_id[other].suspect(3)
    brokers.pass_time(LIVENESS_INTERVAL_MS)
    assert brokers.silent(3) == []


def test_a_broker_that_does_not_listen_yet_is_not_given_up_for_it() -> None:
    brokers = Brokers(3)
    brokers.air.refusing.add(3)
    brokers.register_anew(3)
    brokers.pass_time(200)
    brokers.air.stop(3)
    for other in (1, 2):
        brokers.by_id[other].suspect(3)
    brokers.pass_time(TIMEOUT_MS - 120)
    assert brokers.silent(3) == []


def test_the_last_words_of_a_killed_broker_do_not_keep_it_alive() -> None:
    brokers = Brokers(2)
    brokers.pass_time(1_000)
    brokers.air.kill(2)
    brokers.by_id[1].suspect(2)
    brokers.air.ears[1](encode(Report(2, 0, 10**6, 0, frozenset()), SECRET))
    brokers.world.advance(0)
    assert brokers.silent(2) == []
    brokers.world.advance(LIVENESS_PROBE_AGAIN_MS)
    assert brokers.silent(2) == [1]


def test_a_broker_whose_machine_takes_connections_for_it_has_more_time() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.stop(3)
    brokers.pass_time(LIVENESS_OVERLOAD_FACTOR * TIMEOUT_MS - 120)
    assert brokers.silent(3) == []
    brokers.pass_time(240)
    assert brokers.silent(3) == [1, 2]


def test_who_never_heard_a_broker_is_no_witness_of_its_silence() -> None:
    brokers = Brokers(3)
    brokers.air.deaf.add((3, 2))
    brokers.register_anew(3)
    brokers.pass_time(1_000)
    brokers.air.deaf.add((3, 1))
    brokers.air.gone.add(3)
    brokers.pass_time(2 * TIMEOUT_MS)
    assert brokers.silent(3) == []


def test_clients_wait_for_the_word_that_a_broker_lives() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.by_id[1].suspect(3)
    ends: list[int] = []
    brokers.suspected_brokers[1].wait(lambda: ends.append(brokers.world.clock.now_ms()))
    brokers.world.advance(0)
    assert ends == [brokers.world.clock.now_ms()]


def test_clients_do_not_wait_for_ever_for_what_becomes_of_a_dead_broker() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.kill(3)
    brokers.by_id[1].suspect(3)
    ends: list[int] = []
    brokers.suspected_brokers[1].wait(lambda: ends.append(brokers.world.clock.now_ms()))
    brokers.world.advance(SUSPICION_HOLD_MS - 1)
    assert ends == []
    brokers.world.advance(1)
    assert ends == [brokers.world.clock.now_ms()]


def fail() -> None:
    raise ZeroDivisionError


def test_a_client_that_cannot_be_told_of_certainty_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    world, told = VirtualWorld(), list[int]()
    suspected_brokers = SuspectedBrokers(world.env)
    suspected_brokers.begin(1)
    suspected_brokers.wait(fail)
    suspected_brokers.wait(lambda: told.append(1))
    suspected_brokers.end(1)
    world.run()
    assert told == [1]
    assert "a callback that waited for certainty about a broker failed" in caplog.text


def test_who_fails_to_hear_of_silence_keeps_nobody_from_hearing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    brokers, told = Brokers(2), list[bool]()
    brokers.pass_time(500)
    liveness = brokers.by_id[1]
    liveness.listeners += [fail, lambda: told.append(liveness.is_silent(2))]
    brokers.air.kill(2)
    brokers.pass_time(500)
    assert told[-1:] == [True]
    assert "a listener of which brokers are silent failed" in caplog.text


def test_whoever_was_never_heard_is_not_judged_by_its_silence() -> None:
    brokers = Brokers(3)
    brokers.register_anew(3)
    brokers.air.cut_off(3)
    brokers.pass_time(5_000)
    assert brokers.silent(3) == []


def test_a_broker_that_registers_anew_is_judged_anew() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.cut_off(3)
    brokers.pass_time(1_000)
    brokers.register_anew(3)
    assert brokers.silent(3) == []
    brokers.pass_time(1_000)
    assert brokers.silent(3) == []


def test_a_broker_that_is_unregistered_keeps_no_other_from_being_judged() -> None:
    brokers = Brokers(4)
    brokers.pass_time(300)
    brokers.unregister(2)
    brokers.air.stop(2)
    brokers.air.cut_off(3)
    brokers.pass_time(2 * TIMEOUT_MS)
    assert brokers.by_id[1].is_silent(3)
    assert 2 not in brokers.by_id[1]._reporting


def test_a_broker_that_is_heard_again_is_not_silent() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.cut_off(3)
    brokers.pass_time(1_000)
    brokers.air.heal()
    brokers.pass_time(200)
    assert brokers.silent(3) == []


def test_a_stall_of_ones_own_is_nobodys_silence() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.air.deaf |= {(2, 1), (3, 1)}
    brokers.world.clock.pass_ms(10_000)  # nothing ran meanwhile
    brokers.world.advance(0)
    brokers.world.advance(20)
    assert brokers.silent(2) == []


def test_a_stall_of_ones_own_is_nobodys_silence_also_where_another_one_is_heard_first() -> None:
    brokers = Brokers(3)
    brokers.pass_time(1_000)
    brokers.world.clock.pass_ms(10_000)  # nothing ran meanwhile
    brokers.air.ears[1](encode(Report(2, 0, 10**6, 0, frozenset({3})), SECRET))
    assert brokers.silent(3) == []


def test_how_far_a_broker_is_it_says_itself() -> None:
    brokers = Brokers(2)
    brokers.pass_time(200)
    brokers.air.cut_off(2)
    last_words = brokers.by_id[1].progress(2)
    assert last_words is not None
    assert last_words.metadata_epoch == brokers.image.epoch
    last_report_ms_ago = last_words.last_report_ms_ago
    brokers.pass_time(100)
    brokers.air.ears[1](encode(Report(2, 0, 10**6, brokers.image.epoch - 1, frozenset()), SECRET))
    assert brokers.by_id[1].progress(2) == Progress(brokers.image.epoch - 1, 0, last_report_ms_ago + 100)
    brokers.register_anew(2)
    assert brokers.by_id[1].progress(2) is None, "that was another life"


def test_who_has_committed_says_so_at_once_and_who_lacks_it_looks_for_it() -> None:
    brokers = Brokers(3)
    brokers.pass_time(200)
    looked: list[int] = []
    newer = ClusterImage(epoch=brokers.image.epoch + 1, brokers=brokers.image.brokers)
    for number in (1, 2):
        brokers.by_id[number]._image = lambda: newer
    for number, liveness in brokers.by_id.items():
        liveness.on_behind = partial(looked.append, number)
    brokers.by_id[1].tell_news()
    assert looked == [3]
    brokers.by_id[1].close()
    brokers.by_id[1].tell_news()
    assert looked == [3], "who has left says nothing any more"


@pytest.mark.parametrize("change", ["secret", "a bit", "length", "nothing"])
def test_a_datagram_is_believed_with_the_clusters_secret_alone(change: str) -> None:
    report = Report(3, 7, 9, 0, frozenset({1, 2}))
    data = encode(report, b"another" if change == "secret" else SECRET)
    if change == "a bit":
        data = data[:8] + bytes((data[8] ^ 1,)) + data[9:]
    if change == "length":
        data = data[:-TAG_BYTES] + bytes(4) + data[-TAG_BYTES:]
    assert decode(data, SECRET) == (report if change == "nothing" else None)


@pytest.mark.parametrize("data", [b"", bytes(10), bytes(100), b"pybk" + bytes(60)])
def test_what_is_no_datagram_of_ours_is_passed_over(data: bytes) -> None:
    assert decode(data, SECRET) is None


def test_what_was_said_before_is_not_heard_again() -> None:
    brokers = Brokers(2)
    brokers.pass_time(1_000)
    said = [data for sender, receiver, data in brokers.air.record if (sender, receiver) == (2, 1)]
    brokers.air.cut_off(2)
    brokers.pass_time(1_000)
    for data in said:
        brokers.air.ears[1](data)
    assert brokers.silent(2) == [1]


def test_what_a_former_life_of_a_broker_says_is_not_heard() -> None:
    brokers = Brokers(2)
    brokers.pass_time(1_000)
    brokers.register_anew(2)
    brokers.air.ears[1](encode(Report(2, 0, 10**6, 0, frozenset()), SECRET))
    brokers.pass_time(200)
    brokers.air.cut_off(2)
    brokers.pass_time(1_000)
    brokers.air.ears[1](encode(Report(2, 0, 10**7, 0, frozenset()), SECRET))
    assert brokers.silent(2) == [1]


# --- what follows from silence ----------------------------------------------------------------------------------------


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    cluster.air = Air()
    yield cluster
    cluster.close()


@pytest.mark.parametrize("was_active", [False, True], ids=["another broker", "the active controller"])
def test_a_dead_leader_is_replaced_long_before_its_session_ends(members: Members, was_active: bool) -> None:
    members.start(1, 2, 3)
    (active,) = members.active()
    dead = active if was_active else next(number for number in (1, 2, 3) if number != active)
    others = [number for number in (1, 2, 3) if number != dead]
    members.create_topic("t", (dead, *others))
    members.settle()
    members.vanish(dead)
    members.settle(800)
    for broker_id in others:
        partition = members.image(broker_id).partition("t", 0)
        assert partition is not None
        assert partition.leader == others[0]
        assert members.image(broker_id).brokers[dead].fenced


def test_a_broker_that_was_only_silent_comes_back_by_itself(members: Members) -> None:
    members.start(1, 2, 3)
    (active,) = members.active()
    quiet = next(number for number in (1, 2, 3) if number != active)
    before = members.image(active).brokers[quiet].epoch
    assert members.air is not None
    members.air.cut_off(quiet)
    members.settle(SESSION_TIMEOUT_MS)
    after = members.image(active).brokers[quiet]
    assert after.epoch == before + 1, "fenced once, and judged by its session from then on"
    assert not after.fenced
