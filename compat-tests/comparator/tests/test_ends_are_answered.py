"""The comparator's requests from the ends of their types, sent to pybroker alone: it can say all that it has to say."""

from __future__ import annotations

import pytest

from comparator.broker import Broker as Asked
from comparator.compare import transcript
from comparator.registry import Scenario, all_scenarios
from comparator.run import PROPERTIES
from pybroker.testing import Broker

BOUNDARIES = [scenario for scenario in all_scenarios() if scenario.name.startswith("boundaries_")]
# What the log says of a reply that the codec refused, and of a handler that failed.
OUR_MISTAKES = ("cannot be encoded", "failed; closing")


@pytest.mark.parametrize("scenario", BOUNDARIES, ids=lambda scenario: scenario.name)
def test_no_value_from_the_end_of_its_type_makes_a_handler_or_a_reply_fail(
    scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has a broker of its own: what another has left there may stand in for what does not exist."""
    with Broker(PROPERTIES) as broker:
        assert transcript(scenario, Asked((broker.host, broker.port)).opened).failure is None
    assert [line for line in caplog.messages if any(mistake in line for mistake in OUR_MISTAKES)] == []
