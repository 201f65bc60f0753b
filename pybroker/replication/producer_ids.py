"""Producer ids, handed out of blocks that belong to this broker alone.

Owns: the broker's current block and who waits for the next one.  Does not own the blocks (the controller allocates
them durably, so that no id is ever given twice).

Kafka counterpart: RPCProducerIdManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol


class Block(Protocol):
    """Ids ``first_producer_id`` up to ``first_producer_id + size`` exclusive."""

    @property
    def first_producer_id(self) -> int: ...

    @property
    def size(self) -> int: ...


Allocate = Callable[[Callable[[Block | None], None]], None]
IdDone = Callable[[int | None], None]


logger = logging.getLogger(__name__)


class ProducerIds:
    """Hands out one id after another; asks for the next block when one is used up."""

    __slots__ = ("_allocate", "_end", "_next", "_waiting", "first")

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self.first = 0  # see ``ProducerIdSource``
        self._next = 0
        self._end = 0
        self._waiting: list[IdDone] = []

    def begin_at(self, first_producer_id: int) -> None:
        """Hand out no id below that one any more; the controller allocates none any more."""
        self.first = first_producer_id
        if self._next < first_producer_id:
            self._next = self._end = 0

    def next(self, done: IdDone) -> None:
        """``done(producer_id)``, at once while the block lasts; ``done(None)`` when no block could be had."""
        if self._next < self._end:
            self._next += 1
            done(self._next - 1)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._allocate(self._on_block)

    def _on_block(self, block: Block | None) -> None:
        waiting, self._waiting = self._waiting, []
        if block is not None and block.first_producer_id >= self.first:
            self._next, self._end = block.first_producer_id, block.first_producer_id + block.size
        for done in waiting:
            try:
                done(None) if block is None else self.next(done)
            except Exception:  # the others wait for theirs
                logger.exception("a producer id could not be delivered")
