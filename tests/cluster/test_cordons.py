"""Which log dirs of a member of a cluster are cordoned: the controller hears of it until the image shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.image.supported_features import METADATA_VERSION, SUPPORTED
from pybroker.cluster.membership import cluster_member

from .members import Members, log_dir


@pytest.fixture
def members() -> Iterator[Members]:
    members = Members().start(1, 2)
    yield members
    for member in members.by_id.values():
        member.close()


def other(members: Members) -> int:
    """The broker whose controller is not active."""
    (active,) = members.active()
    return 3 - active


def cordoned(members: Members, broker_id: int) -> tuple[bytes, ...]:
    return members.image(members.active()[0]).brokers[broker_id].cordoned_log_dirs


def heard(members: Members, broker_id: int, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """What the broker tells the controller to be cordoned, from now on."""
    told: list[list[bytes]] = []
    channel = members.by_id[broker_id].channel
    heartbeat = channel.heartbeat

    def listen(done: Any, **fields: Any) -> None:
        if (said := fields.get("cordoned_directories")) is not None:
            told.append(list(said))
        heartbeat(done, **fields)

    monkeypatch.setattr(channel, "heartbeat", listen)
    return told


def test_a_cordon_that_a_controller_has_forgotten_is_told_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_id, controller = other(members), members.by_id[members.active()[0]].controller
    heartbeat = controller.heartbeat

    def forget(*args: Any, **fields: Any) -> None:
        """As one of an older version does, which does not know the field."""
        heartbeat(*args, **{**fields, "cordoned_directories": None})

    with monkeypatch.context() as older:
        older.setattr(controller, "heartbeat", forget)
        members.by_id[broker_id].cordon([log_dir(broker_id)])
        members.settle()
        assert cordoned(members, broker_id) == ()
    members.settle(20_000)
    assert cordoned(members, broker_id) == (log_dir(broker_id),)
    members.by_id[broker_id].cordon([])
    members.settle()
    assert cordoned(members, broker_id) == ()


def test_a_cluster_of_an_older_level_is_told_of_no_cordon_until_its_level_is_raised(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_id = other(members)
    told = heard(members, broker_id, monkeypatch)
    with monkeypatch.context() as older:
        older.setattr(cluster_member, "CORDONED_LOG_DIRS_LEVEL", SUPPORTED[METADATA_VERSION].max_version + 1)
        members.by_id[broker_id].cordon([log_dir(broker_id)])
        members.settle(20_000)
        assert told == []
    controller = members.by_id[members.active()[0]].controller
    members.ask(lambda done: controller.create_topics([NewTopic("t", 1, 1)], done))  # as any change of the metadata
    assert told == [[log_dir(broker_id)]]
    assert cordoned(members, broker_id) == (log_dir(broker_id),)


def test_a_broker_that_registers_anew_is_cordoned_as_before(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    broker_id = other(members)
    members.by_id[broker_id].cordon([log_dir(broker_id)])
    members.settle()
    told = heard(members, broker_id, monkeypatch)
    epoch = members.by_id[broker_id].broker_epoch
    members.stores[broker_id].expire()
    members.settle(10_000)
    assert members.by_id[broker_id].broker_epoch > epoch
    assert (cordoned(members, broker_id), told) == ((log_dir(broker_id),), [])
