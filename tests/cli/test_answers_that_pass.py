"""What passes by itself is asked again, and no failure of a command's."""

from __future__ import annotations

import json

import pytest

from pybroker.replication.partition import Partition
from pybroker.testing import Broker
from tests.cli.command import CommandLine


def test_a_new_leader_that_does_not_know_the_high_watermark_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        cli = CommandLine(broker.bootstrap)
        cli.ok("topics", "create", "t")
        looks = iter([True, True])
        # As behind an election, until the followers have fetched.
        monkeypatch.setattr(Partition, "_may_have_shown_more", lambda self: next(looks, False))
        (described,) = json.loads(cli.ok("topics", "describe", "t", "--json"))
    assert next(looks, None) is None
    assert [each["end_offset"] for each in described["partitions"]] == [0]
