"""This broker's place in the cluster: from its start, through every loss of its session, to its end.

Owns: putting the live key, registering with the active controller, doing both again after the session was lost or the
controller fenced this broker, and leaving with leaderships handed over.  Does not own who else is alive
(``live_brokers``), who decides (``controller_election``) nor what a registration changes (``decisions/brokers``).

``TRANSITIONS`` has the states, and what leads from one to another.

Invariants:
- A registration follows the live key of the same process. Before it the log dirs say on the disk that they are this
  broker's. What is registered may be a replica at once, and after a crash has to come back with the same log dirs.
- The first image is published only once it has this broker's own registration: by an earlier one the broker would lead
  what it led before it died. It also has each replica in the log dir in which that was found (KIP-858): else another
  one would be made elsewhere.

Counterpart in Kafka: ``BrokerLifecycleManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum, auto
from itertools import islice
from typing import TYPE_CHECKING, Final

from pybroker.cluster_limits import GATHERED_PARTITIONS_MAX, STORE_RETRY_MS
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import FoundReplicas, Heartbeat, Registration
    from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
    from pybroker.cluster.image.cluster_image import BrokerRegistration
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.env import Cancellable, Env

# Until a registration is tried again at first; the controller sees a broker's live key about 20 ms after it was put.
REGISTRATION_RETRY_MS = 10
# Until the log tells why a broker is not registered: at a start there may be no controller for a moment.
REGISTRATION_LOG_AFTER_MS = 2_000

log = logging.getLogger(__name__)

# What no other try would change.
_FATAL: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "this broker's data directory belongs to another cluster",
    ErrorCode.INVALID_REGISTRATION: "the controller refuses this broker's registration",
}


class State(StrEnum):
    """Where this broker stands."""

    ENTERING = auto()  # its live key is being put
    REGISTERING = auto()  # the key is there, and the controller is asked
    REGISTERED = auto()  # the controller has granted that; the image shows it, or will
    WITHDRAWN = auto()  # the key is taken away, until another broker decides
    LEAVING = auto()  # leaderships are being handed over, before a stop
    LEFT = auto()  # they are handed over, or their time is over
    SUPERSEDED = auto()  # another process is this broker: this one registers no more, and has to end
    CLOSED = auto()


# What moves it.  Its live key is there; the controller has granted the registration; the image has that fenced, or no
# more; another broker decides in its place, or the time for that is over; no leadership is left.  The others come
# at any time, but the stop comes once.  A succession: the image has another process's registration, a later one.
Event = StrEnum("Event", "ENTERED GRANTED FORGOTTEN REPLACED HANDED_OVER SESSION_LOST WITHDRAWAL STOP SUCCESSION CLOSE")
ENTERING, REGISTERING, REGISTERED, WITHDRAWN, LEAVING, LEFT, SUPERSEDED, CLOSED = State

# A pair with None is a bug of ours; a test walks all of them.
# fmt: off
_ROWS: Final[dict[Event, tuple[State | None, ...]]] = {
    #                    ENTERING     REGISTERING REGISTERED   WITHDRAWN   LEAVING     LEFT        SUPERSEDED  CLOSED
    Event.ENTERED:      (REGISTERING, None,       None,        None,       None,       None,       None,       None),
    Event.GRANTED:      (None,        REGISTERED, None,        None,       None,       None,       None,       None),
    Event.FORGOTTEN:    (None,        None,       REGISTERING, None,       None,       None,       None,       None),
    Event.REPLACED:     (None,        None,       None,        ENTERING,   None,       None,       None,       None),
    Event.HANDED_OVER:  (None,        None,       None,        None,       LEFT,       None,       None,       None),
    Event.SESSION_LOST: (ENTERING,    ENTERING,   ENTERING,    ENTERING,   LEFT,       LEFT,       SUPERSEDED, CLOSED),
    Event.WITHDRAWAL:   (ENTERING,    WITHDRAWN,  WITHDRAWN,   WITHDRAWN,  LEFT,       LEFT,       SUPERSEDED, CLOSED),
    Event.STOP:         (LEAVING,     LEAVING,    LEAVING,     LEAVING,    None,       None,       SUPERSEDED, None),
    Event.SUCCESSION:   (SUPERSEDED,  SUPERSEDED, SUPERSEDED,  SUPERSEDED, SUPERSEDED, SUPERSEDED, SUPERSEDED, CLOSED),
    Event.CLOSE:        (CLOSED,      CLOSED,     CLOSED,      CLOSED,     CLOSED,     CLOSED,     CLOSED,     CLOSED),
}
# fmt: on
TRANSITIONS: Final = {
    (state, event): after for event, row in _ROWS.items() for state, after in zip(State, row, strict=True) if after
}


class BrokerLifecycle:
    """``claim()`` has the log dirs say whose they are, once the id is this process's, or tells why it cannot.

    ``on_entered()`` is called whenever the live key is there, ``on_registered()`` whenever the controller has
    registered this broker.  ``on_superseded()`` is called once, when another process is this broker, after the start.
    """

    def __init__(
        self,
        env: Env,
        live: LiveBrokers,
        follower: MetadataFollower,
        channel: ControllerChannel,
        registration: BrokerRegistration,
        cluster_id: str,
        previous_broker_epoch: int,
        found: FoundReplicas,
        claim: Callable[[], str | None],
        on_entered: Callable[[], None],
        on_registered: Callable[[], None],
        on_superseded: Callable[[], None],
    ) -> None:
        self._answered_epoch = -1  # as the controller said last, or the image
        self._env = env
        self._live = live
        self._follower = follower
        self._channel = channel
        self._registration = registration
        self._cluster_id = cluster_id
        self._previous_broker_epoch = previous_broker_epoch
        self._found = found  # not reported yet
        self._assigning = False
        self._claim = claim
        self._on_entered = on_entered
        self._tell_registered = on_registered
        self._tell_superseded = on_superseded
        self._state = ENTERING
        self._turn = 0  # grows when what is under way is to come to nothing
        self._unanswered = 0  # registrations, also of former turns
        self._is_known = False  # the image has had the registration
        self._started: Callable[[str | None], None] | None = None
        self._tell_left: Callable[[], None] = lambda: None
        self._enter_deadline_ms = 0
        self._pause_ms = REGISTRATION_RETRY_MS
        self._refused_since_ms: int | None = None
        self._pending_reason = "no answer has come"  # what keeps it from joining, as far as is known
        self._limited_log = RateLimitedLog(log, env.timers)
        self._timeouts: list[Cancellable] = []  # of the start, and of leaving

    @property
    def broker_epoch(self) -> int:
        """Under which this process is registered, -1 while it is not."""
        own = self.registered
        return self._answered_epoch if own is None else max(own.epoch, self._answered_epoch)  # an answer may be lost

    @property
    def registered(self) -> BrokerRegistration | None:
        """This process's own registration, as the newest image has it; None while it has another's, or none."""
        own = self._follower.image.brokers.get(self._registration.broker_id)
        return own if own is not None and own.incarnation_id == self._registration.incarnation_id else None

    def start(self, wait_ms: int, timeout_ms: int, done: Callable[[str | None], None]) -> None:
        """Enter and register; ``done(None)`` when the image has it, ``done(why)`` when it cannot come about.

        Another process with this broker's id is waited for as long as ``wait_ms``: it may be dead, and its session
        not over.  A controller, and the store, are waited for as long as ``timeout_ms``.
        """
        self._started = done
        self._enter_deadline_ms = self._env.clock.monotonic_ms() + wait_ms
        self._timeouts.append(self._env.timers.call_later(timeout_ms, self._give_up, timeout_ms))
        self._follower.listeners.append(self._look)
        self._enter()

    def close(self) -> None:
        """Nothing goes on, and no callback runs."""
        self._move(Event.CLOSE)
        self._started = None
        self._limited_log.close()
        for timeout in self._timeouts:
            timeout.cancel()

    def _give_up(self, timeout_ms: int) -> None:
        self._finish_start(f"this broker could not join its cluster within {timeout_ms} ms: {self._pending_reason}")

    def _move(self, event: Event) -> State:
        """The state that the table has for the event; what was under way in another one comes to nothing."""
        before, self._state = self._state, TRANSITIONS[self._state, event]
        if self._state is not before:
            self._turn += 1
            if before is LEAVING and self._state is not CLOSED:
                self._tell_left()
        return self._state

    def on_session_lost(self) -> None:
        """The store has forgotten this process: everybody takes it for dead."""
        if self._move(Event.SESSION_LOST) is ENTERING:
            log.warning("the session with the metadata store is lost; the broker registers anew")
            self._enter()

    def withdraw(self, wait_ms: int) -> None:
        """Be gone for the others, until one of them decides, and has fenced this broker, or for so long."""
        state = self._move(Event.WITHDRAWAL)
        if state in {WITHDRAWN, LEFT}:
            self._withdraw()
        if state is WITHDRAWN:
            self._env.timers.call_later(wait_ms, self._retry, self._turn, self._come_back)

    def _come_back(self) -> None:
        self._move(Event.REPLACED)
        self._enter()

    def _withdraw(self) -> None:
        turn = self._turn
        self._live.withdraw(lambda why: self._on_withdrawn(turn, why))

    def _on_withdrawn(self, turn: int, why: str | None) -> None:
        if turn == self._turn and why is not None:  # until it is gone no other broker decides
            self._limited_log.warning("the withdrawal", why, "this broker could not withdraw yet: %s", why)
            self._env.timers.call_later(STORE_RETRY_MS, self._retry, turn, self._withdraw)

    def lose_directory(self, directory: bytes) -> None:
        """A log dir failed: for the rest of the process's life it is no place for replicas."""
        log_dirs = tuple(each for each in self._registration.log_dirs if each != directory)
        self._registration = self._registration._replace(log_dirs=log_dirs)

    def _enter(self) -> None:
        self._turn = turn = self._turn + 1
        self._live.enter(lambda why: self._on_live(turn, why))

    def _on_live(self, turn: int, why: str | None) -> None:
        if turn != self._turn:
            return
        if why is None and self._started is not None and (failure := self._claim()) is not None:
            self._finish_start(failure)
        elif why is None:
            self._move(Event.ENTERED)
            turn = self._turn
            self._on_entered()
            self._retry(turn, self._register)  # unless it was withdrawn by that
        elif self._started is not None and self._env.clock.monotonic_ms() >= self._enter_deadline_ms:
            self._finish_start(why)
        else:
            self._note_pending(why)
            self._env.timers.call_later(STORE_RETRY_MS, self._retry, turn, self._enter)

    def _retry(self, turn: int, what: Callable[[], object]) -> None:
        if turn == self._turn:
            what()

    def _register(self) -> None:
        self._unanswered += 1
        turn = self._turn
        self._channel.register(
            self._registration,
            self._cluster_id,
            self._previous_broker_epoch,
            lambda answer: self._on_registered(turn, answer),
        )

    def _on_registered(self, turn: int, answer: Registration) -> None:
        self._unanswered -= 1
        if not answer.error_code:  # so it is, whether anybody waits for it or not
            self._answered_epoch = max(self._answered_epoch, answer.broker_epoch)
        if turn != self._turn:
            return
        fatal = _FATAL.get(ErrorCode(answer.error_code)) if answer.error_code else None
        if fatal is not None and self._started is not None:
            self._finish_start(fatal)
        elif answer.error_code:
            self._note_pending(f"the controller's answer is {ErrorCode(answer.error_code).name}")
            self._env.timers.call_later(self._pause_ms, self._retry, turn, self._register)
            self._pause_ms = min(2 * self._pause_ms, STORE_RETRY_MS)
        else:
            self._move(Event.GRANTED)
            self._pause_ms = REGISTRATION_RETRY_MS
            self._refused_since_ms = None
            # Its log is whole as long as the process lives.
            self._previous_broker_epoch = answer.broker_epoch
            self._pending_reason = "it is registered, but the metadata store has not reported that yet"
            self._tell_registered()
            self._look()

    def _note_pending(self, why: str) -> None:
        """Tell what keeps this broker from joining, once it does for longer than at each start."""
        self._pending_reason = why
        now_ms = self._env.clock.monotonic_ms()
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        if now_ms - self._refused_since_ms >= REGISTRATION_LOG_AFTER_MS:
            self._limited_log.warning("the registration", why, "this broker has not joined its cluster yet: %s", why)

    def _look(self) -> None:
        """The image may have this broker's registration now, or show it fenced."""
        own = self._follower.image.brokers.get(self._registration.broker_id)
        if own is self.registered:
            self._answered_epoch = self.broker_epoch
        elif own is not None and own.epoch > self._answered_epoch >= 0:
            self._on_superseded()
        if self._state is WITHDRAWN and (own is None or own.fenced):
            self._come_back()
        if self._state is not REGISTERED:
            return
        if own is None and self._is_known:
            log.warning("this broker was unregistered; it registers anew")
            self._is_known = False
            self._move(Event.FORGOTTEN)
            self._register()
            return
        if own is None or own.epoch < self._answered_epoch:
            return
        self._is_known = True
        if own.fenced:
            log.warning("this broker was fenced; it registers anew")
            self._move(Event.FORGOTTEN)
            self._register()
        elif self._started is not None and not self._has_replicas_to_report():
            self._follower.publish()
            self._finish_start(None)

    def _on_superseded(self) -> None:
        """Another process is this broker: what this one does from now on would be done in its name."""
        before = self._state
        if self._move(Event.SUCCESSION) is before:
            return
        why = f"another process has registered as broker {self._registration.broker_id} since; this one has to stop"
        log.error(why)
        if self._started is not None:
            self._finish_start(why)
        elif before not in {LEAVING, LEFT}:
            self._tell_superseded()

    def _has_replicas_to_report(self) -> bool:
        """Whether the image has a replica elsewhere than it was found; then the controller hears of it."""
        image, broker_id = self._follower.image, self._registration.broker_id
        self._found = {
            (topic_id, index): directory
            for (topic_id, index), directory in self._found.items()
            if (topic := image.topics_by_id.get(topic_id)) is not None
            and index < len(topic.partitions)
            and broker_id in topic.partitions[index].replicas
            and topic.partitions[index].directory(broker_id) != directory
        }
        if self._found and not self._assigning:
            self._assign()
        return bool(self._found)

    def _assign(self) -> None:
        self._assigning = True
        some = dict(islice(self._found.items(), GATHERED_PARTITIONS_MAX))
        self._channel.assign_replicas(some, self._on_assigned)

    def _on_assigned(self, error_code: int) -> None:
        if error_code:
            name = ErrorCode(error_code).name
            self._note_pending(f"the controller does not take where its replicas lie, and answers {name}")
        # What is done the image shows, soon; what is not, by then, is reported again.
        self._env.timers.call_later(STORE_RETRY_MS, self._assigned)

    def _assigned(self) -> None:
        self._assigning = False
        self._look()  # also where the session was lost meanwhile: no other call looks again

    def _finish_start(self, why: str | None) -> None:
        started, self._started = self._started, None
        if started is not None:
            started(why)

    def leave(self, timeout_ms: int, done: Callable[[], None]) -> None:
        """Hand the leaderships over before a stop; ``done`` runs when that is so, or the time is over.

        From now on a lost session is not begun anew.
        """
        if self._move(Event.STOP) is SUPERSEDED:
            self._env.timers.call_soon(done)
            return
        turn, timers, clock = self._turn, self._env.timers, self._env.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms

        def ask() -> None:
            self._channel.heartbeat(answered, wants_shutdown=True)

        def answered(heartbeat: Heartbeat) -> None:
            if turn != self._turn:
                return
            is_stale = heartbeat.error_code == ErrorCode.STALE_BROKER_EPOCH
            is_unknown = self.registered is None and not self._unanswered  # else the epoch is stale for a newer one
            if heartbeat.should_shut_down or (is_stale and is_unknown):
                self._move(Event.HANDED_OVER)
            elif clock.monotonic_ms() < deadline_ms:
                timers.call_later(STORE_RETRY_MS, self._retry, turn, ask)

        self._tell_left = done
        self._timeouts.append(timers.call_later(timeout_ms, self._retry, turn, lambda: self._move(Event.HANDED_OVER)))
        ask()
