"""The last offset of each key in the dirty part of a log, in bounded memory.  Kafka's SkimpyOffsetMap.

Owns two tiers. What came last is a dict, at the price of six times the memory. It takes and answers a batch of keys at
a fraction of the cost of anything that is written in Python. Once it has no space the keys go to an open-addressing
table of 24 bytes a slot: 128 bits of hash and the offset. The hash is the interpreter's own SipHash, keyed anew in
every process, taken twice: 128 bits, at a fifth of a digest's cost. As in Kafka, keys of equal hashes count as equal.

Invariants:
- Both together never take more than the bytes that were allowed; a table that grows has its former beside it for a
  moment. The table holds at most ``load_factor`` of its slots.
- An offset in the dict is newer than one in the table.

Half of the cleaner's time over keys of one length is the update of the dict; huge pages for it gave nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import cast

ENTRY_BYTES = 24
# What a key takes in the dict besides its bytes: the objects of key and offset, and its share of the dict's own table.
RECENT_ENTRY_BYTES = 150
_RECENT_SHARE = 8
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

    __slots__ = ("_bytes_max", "_recent", "_recent_bytes", "_table", "latest_offset")

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        self._bytes_max = bytes_max
        self._table = _Table(bytes_max - bytes_max // _RECENT_SHARE, load_factor)
        self._recent: dict[bytes, int] = {}
        self._recent_bytes = 0
        self.latest_offset = -1

    @property
    def size(self) -> int:
        """How many keys there are; those that were put again after they went to the table count twice."""
        return self._table.size + len(self._recent)

    def put_all(self, keys: Sequence[bytes], offsets: Iterable[int]) -> bool:
        """Note that these keys were last written at these offsets, in ascending order; whether there was space."""
        if self.size + len(keys) > self._table.capacity_max and not self._fits(keys):
            return False
        recent = self._recent
        before = len(recent)
        recent.update(zip(keys, offsets, strict=True))
        if added := len(recent) - before:
            self._recent_bytes += added * (RECENT_ENTRY_BYTES + max(map(len, keys)))
        if self._recent_bytes > max(self._bytes_max - self._table.size_bytes, self._bytes_max // _RECENT_SHARE):
            self._spill()
        return True

    def _fits(self, keys: Sequence[bytes]) -> bool:
        self._spill()
        table = self._table
        free = table.capacity_max - table.size
        return len(keys) <= free or sum(table.get(key) < 0 for key in set(keys)) <= free

    def _spill(self) -> None:
        place = self._table.place
        for key, offset in self._recent.items():
            place(*_hashes(key), offset)
        self._recent = {}
        self._recent_bytes = 0

    def last_offsets(self, keys: Sequence[bytes | None]) -> list[int]:
        """The last offset of each key, -1 where it is not in the map (or none)."""
        recent = self._recent.get
        found = [recent(key, -1) for key in cast(Sequence[bytes], keys)]
        if self._table.size:
            get = self._table.get
            for i, key in enumerate(keys):
                if found[i] < 0 and key is not None:
                    found[i] = get(key)
        return found

    def offsets_in_order(self) -> list[int] | None:
        """All the offsets that the map answers; ``None`` where they are too many for a list."""
        return None if self._table.size else sorted(self._recent.values())


class _Table:
    """The open-addressing table; begins small and grows with its keys."""

    __slots__ = ("_capacity", "_high", "_load_factor", "_low", "_offsets", "_slots", "_slots_max", "size")

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        self._load_factor = load_factor
        self._slots_max = _prime_at_most(max(bytes_max // ENTRY_BYTES, 2))
        self.size = 0
        self._allocate(min(_FIRST_SLOTS, self._slots_max))

    @property
    def size_bytes(self) -> int:
        return self._slots * ENTRY_BYTES

    @property
    def capacity_max(self) -> int:
        return self._capacity_of(self._slots_max)

    def _capacity_of(self, slots: int) -> int:
        # A free slot has to be left: it is where a search ends.
        return max(min(int(slots * self._load_factor), slots - 1), 1)

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        self._capacity = self._capacity_of(slots)
        self._low = array("Q", [0]) * slots
        self._high = array("Q", [0]) * slots
        self._offsets = array("q", [0]) * slots

    def get(self, key: bytes) -> int:
        low, high = _hashes(key)
        table, slots = self._low, self._slots
        slot, step = low % slots, 1 + high % (slots - 1)
        while found := table[slot]:
            if found == low and self._high[slot] == high:
                return self._offsets[slot]
            slot = (slot + step) % slots
        return -1

    def place(self, low: int, high: int, offset: int) -> None:
        if self.size >= self._capacity and self._slots < self._slots_max:
            self._grow()
        table, slots = self._low, self._slots
        slot, step = low % slots, 1 + high % (slots - 1)
        while found := table[slot]:
            if found == low and self._high[slot] == high:
                self._offsets[slot] = offset
                return
            slot = (slot + step) % slots
        table[slot], self._high[slot], self._offsets[slot] = low, high, offset
        self.size += 1

    def _grow(self) -> None:
        # While the keys move both tables are there: a quarter more than allowed at the last step, for a moment.
        former = zip(self._low, self._high, self._offsets, strict=True)
        self._allocate(min(_prime_at_most(self._slots * _GROWTH), self._slots_max))
        self.size = 0
        for low, high, offset in former:
            if low:
                self.place(low, high, offset)


def _hashes(key: bytes) -> tuple[int, int]:
    """128 bits that tell keys apart; the first 64 are never 0, which marks a free slot."""
    return hash(key) & _MASK or 1, hash(b"\x00" + key) & _MASK
