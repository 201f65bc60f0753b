"""Memory that a burst has left free in the C library goes back to the system.

Owns: when that is done. What connections, TLS sessions and large requests have freed stays in the allocator's heap,
between pieces that live on. A crowd of 5,000 TLS handshakes that were never finished left 200 MB there for good. It
goes back once it is much and the process is not busy: to give back takes some 0.3 ms of the loop for each MB, in one
go. A thread would hold the loop as long. ``malloc_trim`` has the lock of the heap until it ends, and the loop's first
allocation of more than a kilobyte waits for that. With 400 MB it took 600 ms beside a busy loop, all of which the loop
waited, and 36 ms on the loop of the same idle process. The C library has no call that gives back a part. Does not own
any memory; the receive buffers that are kept for reuse are ``buffers``.

Invariants: a look costs some 50 microseconds in each sweep; a busy process keeps what it may need again.  Where the C
library cannot give back (it is not glibc), nothing is looked at.

Kafka counterpart: none; the heap of a JVM is the collector's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.env import Clock

# How much the process has to have grown before what is free in the C library's heap is given back, and what it may use
# of a processor then, in percent: that holds the loop for 0.3 ms of each MB, and costs a fault for each page that is
# needed again.
HEAP_TRIM_BYTES = 4 << 20
QUIET_PERCENT = 25

_STATM = "/proc/self/statm"  # pages of the process: all, resident, of those from files


class Heap(Protocol):
    """The memory of this process."""

    def resident_bytes(self) -> int:
        """What is resident and comes from no file."""
        ...

    def free_bytes(self) -> int:
        """What is free in the C library's heap, whether it is resident or was given back."""
        ...

    def give_back(self) -> None:
        """Return to the system what is free."""
        ...


class HeapTrim:
    """``look`` is called from time to time; ``busy_ns()`` is the processor time that the process has used."""

    def __init__(self, clock: Clock, heap: Heap, busy_ns: Callable[[], int] = time.process_time_ns) -> None:
        self._clock = clock
        self._heap = heap
        self._busy_ns = busy_ns
        self._used_ns = busy_ns()
        self._looked_ms = clock.monotonic_ms()
        self._least_free, self._resident = heap.free_bytes(), heap.resident_bytes()

    def look(self) -> None:
        """Give back what was freed since the last time, if it is much and the process has little to do."""
        if not self._is_quiet():
            return
        free, resident = self._heap.free_bytes(), self._heap.resident_bytes()
        # What was given back is free, too: what was freed since is what is more than the least, or has become resident.
        self._least_free = min(self._least_free, free)
        freed = max(free - self._least_free, min(free, resident - self._resident))
        if freed >= HEAP_TRIM_BYTES:
            self._heap.give_back()
            self._least_free, self._resident = self._heap.free_bytes(), self._heap.resident_bytes()

    def _is_quiet(self) -> bool:
        """Whether the process has used little of the time since the last look."""
        used_ns, looked_ms = self._used_ns, self._looked_ms
        self._used_ns, self._looked_ms = self._busy_ns(), self._clock.monotonic_ms()
        passed_ns = (self._looked_ms - looked_ms) * 1_000_000
        return (self._used_ns - used_ns) * 100 < passed_ns * QUIET_PERCENT


class GlibcHeap:
    """The heap of a process on Linux whose C library is glibc 2.33 or later.

    Raises OSError or AttributeError where it is not.
    """

    def __init__(self) -> None:
        import ctypes

        class MallInfo2(ctypes.Structure):
            """mallinfo2(3)."""

            _fields_ = [
                (name, ctypes.c_size_t)
                for name in (
                    "arena", "ordblks", "smblks", "hblks", "hblkhd",
                    "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
                )
            ]  # fmt: skip

        library = ctypes.CDLL(None)
        self._trim, self._info = library.malloc_trim, library.mallinfo2
        self._info.restype = MallInfo2
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self.resident_bytes()

    def resident_bytes(self) -> int:
        with open(_STATM, "rb", buffering=0) as file:
            _, resident, of_files, *_ = file.read().split()
        return (int(resident) - int(of_files)) * self._page_bytes

    def free_bytes(self) -> int:
        free: int = self._info().fordblks
        return free

    def give_back(self) -> None:
        self._trim(0)


def heap_trim(clock: Clock, own_process: bool) -> HeapTrim | None:
    """None where the process is another's, whose memory is its own affair, or nothing can be given back."""
    if sys.platform == "linux" and own_process:
        with contextlib.suppress(AttributeError, OSError):
            return HeapTrim(clock, GlibcHeap())
    return None
