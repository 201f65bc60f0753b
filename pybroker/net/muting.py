"""What holds a connection up: the mute that its client's quotas ask for, and a peer that takes no replies.

Owns: whether anything is started, and for how many sweeps the peer has taken nothing.  Does not own for how long a
client is to rest (``metering``), nor what a connection leaves undone while it is held up (``connection``).

Invariant: nothing is started while either of the two lasts.

Kafka counterpart: the mute states of KafkaChannel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.net.metering import Meter, RequestServer

WRITE_STALL_MS = 30_000  # a peer that takes no byte of its replies for so long is closed: its views pin mapped segments


class Muting:
    """What may hold a connection up: the mute that its meter asks for, and a peer that takes no replies.

    ``_is_held_up``: nothing is started.  ``meter`` is None while there are no quotas.
    """

    __slots__ = ("_is_held_up", "_last_unsent_bytes", "_stalled_sweeps", "_write_paused", "meter")

    is_broker: bool
    closed: bool
    _requests: RequestServer

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self._is_held_up = False
        self._write_paused = False
        self._stalled_sweeps = 0
        self._last_unsent_bytes = 0

    def pause_writing(self) -> None:
        """Called by the transport: the peer takes no replies."""
        self._write_paused = self._is_held_up = True

    def resume_writing(self) -> None:
        """Called by the transport: it takes them again."""
        self._write_paused = False
        self._is_held_up = self.meter is not None and self.meter.is_muted
        self._stalled_sweeps = 0
        self._serve_on()

    def _has_stalled(self, unsent_bytes: int) -> bool:
        """Once a sweep, while writing is paused: whether the peer has taken nothing for too long."""
        self._stalled_sweeps = self._stalled_sweeps + 1 if unsent_bytes >= self._last_unsent_bytes else 0
        self._last_unsent_bytes = unsent_bytes
        return self._stalled_sweeps * limits.SWEEP_INTERVAL_MS >= WRITE_STALL_MS

    def measure(self, meter: Meter | None) -> None:
        """Hold its client to its quotas from now on, or, for None, to none; another broker is held to none."""
        before, self.meter = self.meter, None if self.is_broker else meter
        if before is not None and before is not self.meter:
            before.close()
            self.on_unmuted()

    @property
    def requests(self) -> RequestServer:
        return self._requests

    def on_muted(self) -> None:
        """Read and start nothing from now on."""
        self._is_held_up = True
        self._read_on()

    def on_unmuted(self) -> None:
        """Go on."""
        self._is_held_up = self._write_paused
        if not self.closed:
            self._read_on()
            self._serve_on()

    def _read_on(self) -> None:
        raise NotImplementedError

    def _serve_on(self) -> None:
        raise NotImplementedError
