"""Producer ids for several that wait for the same block."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker.replication.producer_ids import Block, ProducerIds


class Given:
    first_producer_id = 100
    size = 10


@pytest.mark.parametrize(("block", "expected"), [(Given(), [100, 102]), (None, [None, None])])
def test_who_fails_to_take_its_id_keeps_nobody_from_theirs(block: Block | None, expected: list[int | None]) -> None:
    asked: list[Callable[[Block | None], None]] = []
    ids, given = ProducerIds(asked.append), list[int | None]()

    def fail(_: int | None) -> None:
        raise ZeroDivisionError

    for done in (given.append, fail, given.append):
        ids.next(done)
    (answer,) = asked
    answer(block)
    assert given == expected
