"""The ISR of a partition that is led here, and the one change of it that may be on its way to the controller (KIP-497).

Owns: the committed ISR, the maximal one (with replicas that may have been added already), and the partition epoch. Also
owns what becomes of a change: asked for, tried again, taken back, given up. Does not own who is in sync
(``followers``), nor how the controller is reached (``replication_ports.IsrChanger``).

Invariants:
- One change at most is on its way.
- While its outcome is not known, the maximal ISR holds everybody who may be in the ISR, so that nothing counts as
  committed that one of them lacks.
- What the controller says, and what the image says, counts only with a newer partition epoch than is known.
- A replica that leaves counts until the image says that it has left. The controller may keep it eligible to lead by a
  ``min.insync.replicas`` that its answer does not tell. The image of the change has every setting that it was decided
  by.

Kafka counterpart: PartitionState with its pending states, Partition.submitAlterPartition and handleAlterPartitionError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker_protocol.errors import ErrorCode, error_name

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import InSyncState
    from pybroker.cluster.image.cluster_image import PartitionImage
    from pybroker.env import Cancellable, Env
    from pybroker.rate_limited_log import RateLimitedLog
    from pybroker.replication.replication_ports import IsrChanger

# Pauses between two tries to have an ISR changed: they double from the one to the other while the controller is away.
ISR_CHANGE_PAUSE_MIN_MS = 50
ISR_CHANGE_PAUSE_MAX_MS = 1_000

logger = logging.getLogger(__name__)

# The controller says that nothing was changed, and that the partition epoch was the right one.
_TAKEN_BACK = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The controller knows something else of the partition, which the image will tell.
_GIVEN_UP = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class AlteredLeader(Protocol):
    """The partition whose ISR it is."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int

    def on_appended(self) -> None:
        """The high watermark may have to move."""
        ...


class _Change:
    """A change on its way.  Its partition epoch is that of its begin: tried again, it cannot be done twice."""

    __slots__ = ("isr", "partition_epoch", "pause_ms")

    def __init__(self, isr: tuple[tuple[int, int], ...], partition_epoch: int) -> None:
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.pause_ms = ISR_CHANGE_PAUSE_MIN_MS


class InSyncReplicas:
    """``committed`` and ``maximal`` are broker ids."""

    __slots__ = (
        "_change",
        "_changer",
        "_env",
        "_limited_log",
        "_partition",
        "_retry",
        "committed",
        "maximal",
        "partition_epoch",
    )

    def __init__(
        self,
        env: Env,
        partition: AlteredLeader,
        state: PartitionImage,
        changer: Callable[[], IsrChanger | None],
        rate_limited_log: RateLimitedLog,
    ) -> None:
        self._env = env
        self._limited_log = rate_limited_log
        self._partition = partition
        self._changer = changer
        self._change: _Change | None = None
        self._retry: Cancellable | None = None
        self._commit(state.isr, state.partition_epoch)

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.committed = self.maximal = isr
        self.partition_epoch = partition_epoch
        self._change = None

    @property
    def is_changing(self) -> bool:
        """Whether a change is on its way, or its outcome is not known."""
        return self._change is not None

    def learn(self, state: PartitionImage) -> bool:
        """The image has the partition so; whether that is newer than what is known.  It settles what was on its way."""
        if state.partition_epoch <= self.partition_epoch:
            return False
        self._commit(state.isr, state.partition_epoch)
        return True

    def give_up(self) -> None:
        """Heed no answer any more."""
        self._change = None
        if self._retry is not None:
            self._retry.cancel()

    def expand(self, broker_id: int, isr: tuple[tuple[int, int], ...]) -> None:
        """Ask for ``isr`` (broker ids and epochs), which has ``broker_id`` beside the committed ones."""
        if self._changer() is not None:
            self.maximal = (*self.committed, broker_id)
            self._begin(isr)

    def shrink(self, isr: tuple[tuple[int, int], ...]) -> None:
        """Ask for ``isr``, which lacks some of the committed ones; they count until it is certain that they are out."""
        if self._changer() is not None:
            self._begin(isr)

    def _begin(self, isr: tuple[tuple[int, int], ...]) -> None:
        self._change = _Change(isr, self.partition_epoch)
        self._ask(self._change)

    def _ask(self, change: _Change) -> None:
        changer, partition = self._changer(), self._partition
        if self._change is not change or changer is None:
            return
        changer.alter_partition(
            partition.topic_id,
            partition.index,
            partition.leader_epoch,
            change.partition_epoch,
            change.isr,
            lambda error_code, altered: self._on_answer(change, error_code, altered),
        )

    def _on_answer(self, change: _Change, error_code: int, altered: InSyncState | None) -> None:
        if self._change is not change:
            return  # the image has settled it, or another leader epoch has begun
        if not error_code:
            assert altered is not None, "what was changed comes with its new state"
            if altered.leader_epoch != self._partition.leader_epoch or altered.partition_epoch < self.partition_epoch:
                return
            if set(self.committed) <= set(altered.isr):
                self._commit(altered.isr, altered.partition_epoch)
                self._partition.on_appended()
        elif error_code in _TAKEN_BACK:
            self._commit(self.committed, self.partition_epoch)
            self._partition.on_appended()
        elif error_code not in _GIVEN_UP:
            self._retry = self._env.timers.call_later(change.pause_ms, self._ask, change)
            change.pause_ms = min(2 * change.pause_ms, ISR_CHANGE_PAUSE_MAX_MS)
        if error_code:
            partition = self._partition
            reason = error_name(error_code)
            if self._limited_log.is_first("in-sync replicas that stay", reason, logging.INFO):
                logger.info("the ISR of %s-%d stays: %s", partition.topic, partition.index, reason)
