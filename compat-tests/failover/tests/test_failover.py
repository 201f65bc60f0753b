"""A short run of ``scripts/failover``: nothing is lost, nobody is given up who lives, leaders are replaced at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.brokers import pybrokers
from failover.kills import at_work
from failover.load import stall_in_turn, watched

# Many times what it takes, and a fraction of a session or of the time-out of datagrams: a kill is known at once.
NEW_LEADER_MS = 400


@pytest.mark.slow
def test_a_killed_leader_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with pybrokers(tmp_path, "sqlite") as brokers, at_work(tmp_path, brokers, "kafka-python", seed=1) as run:
        steady = watched(brokers, lambda: stall_in_turn(brokers, 3, lambda _: None))
        kills = [run.kill_one(number) for number in range(3)]
        accounted, given_up = run.finish()
    assert steady.failures == 0
    assert [kill.was_controller for kill in kills] == [False, True, False]
    assert min(kill.metadata for kill in kills) < NEW_LEADER_MS
    assert (accounted.lost, accounted.repeated, given_up) == (0, 0, 0)
    assert accounted.acknowledged > 500
