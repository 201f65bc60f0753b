"""Which broker's controller decides: one at a time, and another one when it is gone.

Owns: taking the controller key from a holder that is dead, giving it up, and what a new controller does first: fencing
the brokers that died meanwhile.  Does not own who is alive (``live_brokers``), who reaches the controller
(``broker_contacts``), nor any decision (``controller``).

Invariants:
- The key changes hands by compare-and-set alone, and every transaction of a controller checks it, so that a holder
  which was deposed can change nothing, whatever it believes.
- No broker takes the key from a holder that has its session and is heard (``liveness``).
- A fenced broker does not take it while another one can.
- A controller that most brokers do not reach for a session withdraws, so that others decide in its place.
- A controller decides only once its image has everything that was committed before it took the key.

A test walks the states (``tests/cluster/test_controller_election.py``).

Counterpart in Kafka: ``KafkaController.elect`` before KRaft, ``QuorumController.claim`` since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import (
    ABSENT,
    CommitResult,
    Entry,
    MetadataStore,
    Snapshot,
    StoreError,
    Transaction,
)
from pybroker.cluster.store.store_codec import ControllerKey
from pybroker.cluster_limits import STORE_RETRY_MS

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.failure_detection.broker_contacts import BrokerContacts
    from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
    from pybroker.cluster.failure_detection.liveness import Liveness
    from pybroker.cluster.image.cluster_image import BrokerRegistration
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.env import Env

log = logging.getLogger(__name__)


class ControllerElection:
    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        follower: MetadataFollower,
        live: LiveBrokers,
        controller: Controller,
        broker_id: int,
        liveness: Liveness | None = None,
        contacts: BrokerContacts | None = None,
    ) -> None:
        self.withdraw: Callable[[], None] = lambda: None  # take this broker's live key away for a while
        self._env = env
        self._store = store
        self._follower = follower
        self._live = live
        self._controller = controller
        self._broker_id = broker_id
        self._liveness = liveness
        self._contacts = contacts
        self._is_withdrawn = False
        self._term = 0  # grows whenever what is under way is to come to nothing
        self._taking = False
        self._wanted_ms: int | None = None  # since when, while the key is to be taken
        self._fencing: dict[int, int] = {}  # broker epochs by broker id
        self._takes_part = False
        self._closed = False
        self._is_leaving = False

    def start(self) -> None:
        """Take part; called whenever this broker's own live key is there, after a lost session again."""
        self._is_withdrawn = False
        if not self._takes_part:
            self._takes_part = True
            self._live.listeners.append(self._look)
            self._follower.listeners.append(self._look)
            if self._liveness is not None:
                self._liveness.listeners.append(self._look)
            if self._contacts is not None:
                self._contacts.look = self._look
        self._look()

    def close(self) -> None:
        """Take part no more."""
        self._closed = True
        self._term += 1

    def leave(self) -> None:
        """This broker stops: that another one decides from now on is nothing to warn of."""
        self._is_leaving = True

    def step_down(self) -> None:
        """Decide nothing more until the key is taken anew: this broker's session is lost, or its key."""
        self._term += 1
        self._taking = False
        if self._controller.is_active:
            level = logging.INFO if self._is_leaving else logging.WARNING
            log.log(level, "broker %d is no longer the active controller", self._broker_id)
            self._controller.deactivate()
        self._env.timers.call_later(STORE_RETRY_MS, self._look)

    def _look(self) -> None:
        """Who holds the key, and who is alive, may have changed."""
        if self._closed or self._is_withdrawn or not self._live.known:
            return
        holder = self._follower.image.controller_id
        if self._controller.is_active:
            if holder != self._broker_id or not self._live.has_own:  # another process may have the id by now
                self.step_down()
            elif self._is_cut_off():
                self._withdraw()
            else:
                self._fence_the_dead()
        elif self._live.has_own and (holder == self._broker_id or (self._is_gone(holder) and self._may_take())):
            self._take()
        else:
            self._wanted_ms = None

    def _is_gone(self, broker_id: int) -> bool:
        """Whether a broker's session is over, or the broker is silent."""
        return broker_id not in self._live.brokers or self._is_silent(broker_id)

    def _may_take(self) -> bool:
        """Whether this broker is no worse than another one: one that is fenced may be cut off from the others.

        Silence is not asked for: to a fenced broker only that one is silent of which most of the others say so, and
        those can take the key.
        """
        brokers = self._follower.image.brokers
        able = {each.broker_id for each in brokers.values() if self._lives_unfenced(each)}
        return self._broker_id in able or not able

    def _lives_unfenced(self, broker: BrokerRegistration) -> bool:
        return not broker.fenced and self._live.is_live(broker.broker_id, broker.incarnation_id)

    def _is_silent(self, broker_id: int) -> bool:
        return self._liveness is not None and self._liveness.is_silent(broker_id)

    # --- taking the key ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        if self._taking:
            return
        self._taking = True
        if self._wanted_ms is None:
            self._wanted_ms = self._env.clock.monotonic_ms()
        self._term += 1
        term = self._term
        self._store.read(store_codec.CONTROLLER, lambda snapshot, error: self._on_read(term, snapshot, error))

    def _on_read(self, term: int, snapshot: Snapshot | None, error: StoreError | None) -> None:
        if term != self._term:
            return
        if snapshot is None:
            self._try_later(str(error))
            return
        entry = snapshot.entries.get(store_codec.CONTROLLER)
        before = None if entry is None else store_codec.decode_controller(entry.value)
        if before is None or before.broker_id == self._broker_id or self._is_silent(before.broker_id):
            self._take_from(term, entry, before)
        elif before.broker_id in self._live.brokers:
            self._taking = False  # another one was faster, and the image will say so
        else:
            live_key = store_codec.live_key(before.broker_id)
            self._store.read(live_key, lambda found, error: self._on_holder(term, entry, before, found, error))

    def _on_holder(
        self, term: int, entry: Entry | None, holder: ControllerKey, found: Snapshot | None, error: StoreError | None
    ) -> None:
        """Whether the holder lives, by the store itself: one that has just come it may not have reported yet."""
        if term != self._term:
            return
        if found is None or store_codec.live_key(holder.broker_id) in found.entries:  # that of 10 begins like that of 1
            self._try_later(str(error or f"broker {holder.broker_id} lives"))
        else:
            self._take_from(term, entry, holder)

    def _take_from(self, term: int, entry: Entry | None, before: ControllerKey | None) -> None:
        registered = self._follower.image.brokers.get(self._broker_id)
        broker_epoch = -1 if registered is None else registered.epoch
        key = store_codec.next_holder(before, self._broker_id, broker_epoch)
        version = _version(entry)
        puts = {store_codec.CONTROLLER: store_codec.encode_controller(key)}
        self._store.commit(
            Transaction({store_codec.CONTROLLER: version}, puts),
            lambda result: self._on_taken(term, version + 1, key, result),
        )

    def _on_taken(self, term: int, version: int, key: ControllerKey, result: CommitResult) -> None:
        if term != self._term:
            return
        if result.revision is None:
            self._try_later(str(result.error or f"{result.conflict} has changed"))
            return
        self._follower.when_at(result.revision, lambda: self._activate(term, version, key))

    def _activate(self, term: int, version: int, key: ControllerKey) -> None:
        if term != self._term:
            return
        self._taking = False
        taken_ms = 0 if self._wanted_ms is None else self._env.clock.monotonic_ms() - self._wanted_ms
        self._wanted_ms = None
        line = "broker %d is the active controller, epoch %d; to take the key took %d ms"
        log.info(line, self._broker_id, key.controller_epoch, taken_ms)
        self._fencing = {}
        self._controller.activate(version, key.controller_epoch, self.step_down)
        self._look()

    def _try_later(self, why: str) -> None:
        log.debug("the controller key could not be taken: %s", why)
        self._taking = False
        self._env.timers.call_later(STORE_RETRY_MS, self._look)

    # --- cut off ---------------------------------------------------------------------------------------------------

    def _is_over(self, broker_id: int) -> bool:
        """Whether the session of a broker with this controller is over."""
        live = self._live.brokers.get(broker_id)
        return (
            self._contacts is not None
            and live is not None
            and live.sends_heartbeats
            and self._contacts.is_over(broker_id)
        )

    def _is_cut_off(self) -> bool:
        """Whether it is this broker that is cut off, where sessions with it are over: from most of those that live.

        Of two brokers the controller is right.
        """
        contacts = self._contacts
        others = [
            each.broker_id
            for each in self._follower.image.brokers.values()
            if each.broker_id != self._broker_id and self._lives_unfenced(each)
        ]
        if contacts is None or len(others) < 2 or not any(map(self._is_over, others)):
            return False
        live = self._live.brokers
        reached = [each for each in others if not live[each].sends_heartbeats or contacts.is_in_touch(each)]
        return 2 * (1 + len(reached)) <= 1 + len(others)

    def _withdraw(self) -> None:
        """Others decide, and lead, in this broker's place: they take it for gone."""
        log.warning("broker %d decides, and most brokers do not reach it: it withdraws", self._broker_id)
        self._is_withdrawn = True
        self.step_down()
        self.withdraw()

    # --- fencing -----------------------------------------------------------------------------------------------------

    def _fence_the_dead(self) -> None:
        """Brokers whose process is gone, or is another one than the one that registered, lead nothing any more.

        Nor does one that this controller cannot instruct: whose heartbeats, or the answers to them, do not arrive.
        """
        dead = {
            broker_id: broker.epoch
            for broker_id, broker in self._follower.image.brokers.items()
            if not broker.fenced
            and (
                not self._live.is_live(broker_id, broker.incarnation_id)
                or self._is_silent(broker_id)
                or (broker_id != self._broker_id and self._is_over(broker_id))
            )
        }
        if not dead or dead == self._fencing:
            return
        self._fencing = dead
        term = self._term
        log.info("fencing brokers: %s", ", ".join(map(self._reason_of_end, sorted(dead))))
        self._controller.fence_brokers(dead, lambda fenced: self._on_fenced(term, fenced))

    def _reason_of_end(self, broker_id: int) -> str:
        """A broker, and why it is fenced."""
        if self._liveness is not None and self._liveness.is_silent(broker_id):
            return f"{broker_id} ({self._liveness.reason(broker_id)})"
        if self._contacts is not None and broker_id in self._live.brokers and self._is_over(broker_id):
            return f"{broker_id} (its last heartbeat came {self._contacts.silent_ms(broker_id)} ms ago)"
        return f"{broker_id} (the session of its process is over)"

    def _on_fenced(self, term: int, fenced: list[int]) -> None:
        if fenced:
            self._env.timers.call_soon(self._fence_again, term)
        else:  # it failed, or they have registered anew: the same again would come to the same
            self._env.timers.call_later(STORE_RETRY_MS, self._fence_again, term)

    def _fence_again(self, term: int) -> None:
        if term == self._term:
            self._fencing = {}
            self._look()


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version
