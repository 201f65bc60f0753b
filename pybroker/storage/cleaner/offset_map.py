"""The last offset of each key in the dirty part of a log, in bounded memory.  Kafka's SkimpyOffsetMap.

Owns an open-addressing table of 24 bytes a slot: 128 bits of hash and the offset.  A Python dict of digests takes six
times as much.  The hash is the interpreter's own SipHash, keyed anew in every process, taken twice: 128 bits, at a
fifth of a digest's cost.  As in Kafka, keys of equal hashes count as equal.

Invariant: a table holds at most ``load_factor`` of its slots, and is never larger than the bytes it was allowed; it
begins small and grows with its keys.
"""

from __future__ import annotations

from array import array

ENTRY_BYTES = 24
_FIRST_SLOTS = 4093
_GROWTH = 4
_MASK = (1 << 64) - 1


def _prime_at_most(number: int) -> int:
    """The largest prime not above ``number``: any step visits all slots then."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number


class OffsetMap:
    """Keys to offsets; ``latest_offset`` is the last one that the map speaks for, -1 while there is none."""

    __slots__ = (
        "_capacity",
        "_high",
        "_load_factor",
        "_low",
        "_offsets",
        "_slots",
        "_slots_max",
        "latest_offset",
        "size",
    )

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        self._load_factor = load_factor
        self._slots_max = _prime_at_most(max(bytes_max // ENTRY_BYTES, 2))
        self.size = 0
        self.latest_offset = -1
        self._allocate(min(_FIRST_SLOTS, self._slots_max))

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        # A free slot has to be left: it is where a search ends.
        self._capacity = max(min(int(slots * self._load_factor), slots - 1), 1)
        self._low = array("Q", [0]) * slots
        self._high = array("Q", [0]) * slots
        self._offsets = array("q", [0]) * slots

    def put(self, key: bytes, offset: int) -> bool:
        """Note that ``key`` was last written at ``offset``; whether there was room."""
        if self.size >= self._capacity and not self._grow():
            return False
        low, high = _hashes(key)
        self._place(low, high, offset)
        return True

    def get(self, key: bytes) -> int:
        """The last offset of ``key``, -1 if it is not in the map."""
        low, high = _hashes(key)
        table, slots = self._low, self._slots
        slot, step = low % slots, 1 + high % (slots - 1)
        while found := table[slot]:
            if found == low and self._high[slot] == high:
                return self._offsets[slot]
            slot = (slot + step) % slots
        return -1

    def _place(self, low: int, high: int, offset: int) -> None:
        table, slots = self._low, self._slots
        slot, step = low % slots, 1 + high % (slots - 1)
        while found := table[slot]:
            if found == low and self._high[slot] == high:
                self._offsets[slot] = offset
                return
            slot = (slot + step) % slots
        table[slot], self._high[slot], self._offsets[slot] = low, high, offset
        self.size += 1

    def _grow(self) -> bool:
        if self._slots >= self._slots_max:
            return False
        # While the keys move both tables are there: a quarter more than allowed at the last step, for a moment.
        former = zip(self._low, self._high, self._offsets, strict=True)
        self._allocate(min(_prime_at_most(self._slots * _GROWTH), self._slots_max))
        self.size = 0
        for low, high, offset in former:
            if low:
                self._place(low, high, offset)
        return True


def _hashes(key: bytes) -> tuple[int, int]:
    """128 bits that tell keys apart; the first 64 are never 0, which marks a free slot."""
    return hash(key) & _MASK or 1, hash(b"\x00" + key) & _MASK
