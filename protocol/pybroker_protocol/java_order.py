"""The order in which Kafka's hash tables list their elements, where answers show it and clients' tests depend on it.

Owns: the hash codes of Java's strings, and the order of ``HashMap`` and of Kafka's ``TimelineHashMap``, of elements
that were put into a table that has grown with them.  A table of Kafka's that was larger once keeps its order of then,
which is not followed here.

Counterparts: ``java.util.HashMap``, and ``BaseHashTable`` with the iterator of ``SnapshottableHashTable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import TypeVar

T = TypeVar("T")

_INT_MASK = 0xFFFF_FFFF
_LONG_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SIGN = 1 << 31
# Knuth's multiplicative hashing by the golden ratio, as ``BaseHashTable`` has it.
_GOLDEN = 0x9E37_79B9_7F4A_7C15
HASH_MAP_SLOTS = 16  # of a table that is made without a size
_TIMELINE_SLOTS_MIN = 2
_powers = [1]


def string_hash(text: str) -> int:
    """``String.hashCode()`` without a sign: a polynomial of 31 over the text's UTF-16."""
    units: Sequence[int] = text.encode("ascii") if text.isascii() else _utf16(text)
    while len(_powers) < len(units):
        _powers.append(_powers[-1] * 31 & _INT_MASK)
    return sum(map(mul, units, _powers[len(units) - 1 :: -1])) & _INT_MASK if units else 0


def _utf16(text: str) -> Sequence[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]


def in_hash_map_order(
    elements: Iterable[T],
    hash_of: Callable[[T], int],
    slots_min: int = HASH_MAP_SLOTS,
    table_size: int = 0,
) -> list[T]:
    """Elements in the order of a ``HashMap`` into which they were put one after another.

    ``slots_min`` is what the table was made with, a power of two; ``table_size`` how many elements it has, where these
    are some of them.
    """
    ordered = list(elements)
    slots = slots_min
    while 4 * max(table_size, len(ordered)) > 3 * slots:
        slots *= 2

    def slot_of(element: T) -> int:
        code = hash_of(element)
        return (code ^ code >> 16) & (slots - 1)

    ordered.sort(key=slot_of)
    return ordered


def in_timeline_order(elements: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Elements in the order of a ``TimelineHashMap`` into which they were put one after another: of one slot the last
    comes first.
    """
    ordered = list(elements)
    slots = _TIMELINE_SLOTS_MIN
    while 3 * len(ordered) > 4 * slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot_of(element: T) -> int:
        code = hash_of(element)
        return ((code - 2 * (code & _SIGN)) * _GOLDEN & _LONG_MASK) >> shift

    ordered.reverse()
    ordered.sort(key=slot_of)
    return ordered
