"""The short form of ``scripts/exactly-once``.  Starts JVMs, Spark's.

Needs what `scripts/spark-setup` installs; without it this test fails, and does not skip.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(600)]


def test_each_record_is_there_once_though_executor_task_driver_and_broker_are_killed(tmp_path: Path) -> None:
    from exactly_once.trial import Stage, run

    with Stage(tmp_path, records=40_000) as stage:
        outcome = run(stage, "pybroker", seed=2)
    assert len(outcome.kills) == 4
    assert (outcome.repeated, outcome.missing) == (0, 0)
