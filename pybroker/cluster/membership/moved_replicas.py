"""Telling the controller in which log dirs replicas lie that have moved (KIP-858).

Owns what is not reported yet, and its report until the controller has it; of a replica that moves again meanwhile only
the last place counts.  Does not own what a start finds (``broker_lifecycle``).

Counterpart in Kafka: ``AssignmentsManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from pybroker.cluster_limits import GATHERED_PARTITIONS_MAX, STORE_RETRY_MS

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import FoundReplicas
    from pybroker.env import Cancellable, Timers


class MovedReplicas:
    """``assign(found, done)``: see ``ControllerChannel.assign_replicas``."""

    def __init__(self, timers: Timers, assign: Callable[[FoundReplicas, Callable[[int], None]], None]) -> None:
        self._timers = timers
        self._assign = assign
        self._moved: dict[tuple[bytes, int], bytes] = {}
        self._is_telling = False
        self._retry: Cancellable | None = None
        self._closed = False

    def tell(self, partition: tuple[bytes, int], directory: bytes) -> None:
        """The replica of a partition, by topic id and index, lies in the log dir of that id."""
        self._moved[partition] = directory
        if not self._is_telling:
            self._tell_all()

    def close(self) -> None:
        """Tell nothing more: the next start finds where replicas lie."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _tell_all(self) -> None:
        if self._closed:
            return
        self._is_telling = True
        reported = dict(islice(self._moved.items(), GATHERED_PARTITIONS_MAX))

        def answered(error_code: int) -> None:
            if error_code:
                self._retry = self._timers.call_later(STORE_RETRY_MS, self._tell_all)
                return
            self._moved = {key: directory for key, directory in self._moved.items() if reported.get(key) != directory}
            self._is_telling = False
            if self._moved:
                self._tell_all()

        self._assign(reported, answered)
