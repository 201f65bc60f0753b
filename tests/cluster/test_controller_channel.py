"""What a broker asks of the controller is answered once and later, also where the request cannot even be made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EMFILE
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.controller.auto_topic_creation import AutoTopicCreation
from pybroker.cluster.decisions.operations import InSyncChange, NewTopic
from pybroker.cluster.image.cluster_image import BrokerRegistration
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.membership.controller_channel import ControllerChannel
from pybroker.handlers.own_requests import serve_own
from pybroker.replication.isr_changes import IsrChanges
from pybroker_protocol.errors import ErrorCode

from .fakes import FakeCluster

MESSAGES = "pybroker_protocol.messages."


class NoDescriptors:
    """No module of a message can be opened."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.startswith(MESSAGES):
            raise OSError(EMFILE, "Too many open files")


@contextmanager
def no_descriptors() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith(MESSAGES)]:
            patch.delitem(sys.modules, name)
        patch.setattr(sys, "meta_path", [NoDescriptors(), *sys.meta_path])
        yield


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Its channel is served by the handlers, as a broker's."""
    cluster = FakeCluster(tmp_path).start()
    services = cluster.context(7).services
    services.inter_broker_listener = None
    cluster.standalone.channel.serve = partial(serve_own, services)
    yield cluster
    cluster.close()


def error_of(answer: Any) -> int | None:
    """The error code of any answer; of a producer id block there is none."""
    if isinstance(answer, list):
        answer = answer[0]
    code: int | None = getattr(answer, "error_code", answer)
    return code


REQUESTS: dict[str, Callable[[ControllerChannel, Callable[[Any], None]], None]] = {
    "register": lambda channel, done: channel.register(BrokerRegistration(1, 0, bytes(16), {}), "c", -1, done),
    "beat": lambda channel, done: channel.beat(done, timeout_ms=100),
    "heartbeat": lambda channel, done: channel.heartbeat(done),
    "report_mirrors": lambda channel, done: channel.report_mirrors([], done),
    "assign_replicas": lambda channel, done: channel.assign_replicas({(bytes(16), 0): bytes(16)}, done),
    "alter_partitions": lambda channel, done: channel.alter_partitions(
        [InSyncChange(bytes(16), 0, 0, 0, ((1, 1),))], done
    ),
    "create_topics": lambda channel, done: channel.create_topics([NewTopic("a", 1, 1)], done),
    "allocate_producer_ids": lambda channel, done: channel.allocate_producer_ids(done),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_that_cannot_be_made_is_answered_once_and_not_inside_of_the_call(
    cluster: FakeCluster, name: str
) -> None:
    answers: list[Any] = []
    with no_descriptors():
        REQUESTS[name](cluster.standalone.channel, answers.append)
        assert not answers
        cluster.world.run()
    (answer,) = answers
    assert error_of(answer) == (None if name == "allocate_producer_ids" else ErrorCode.UNKNOWN_SERVER_ERROR)


def test_changes_of_in_sync_replicas_are_asked_for_again_behind_a_request_that_could_not_be_made(
    cluster: FakeCluster,
) -> None:
    changes = IsrChanges(cluster.env.timers, cluster.standalone.channel)
    answers: list[int] = []

    def ask() -> None:
        changes.alter_partition(bytes(16), 0, 0, 0, ((1, 1),), lambda error_code, _: answers.append(error_code))
        cluster.world.run()

    with no_descriptors():
        ask()
    ask()
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_ID]
    changes.close()


def test_creation_that_cannot_begin_is_answered_and_leaves_the_name_and_the_others_free(cluster: FakeCluster) -> None:
    channel = cluster.standalone.channel
    creation = AutoTopicCreation(cluster.env, cluster.config, cluster.cache, channel.create_topics)
    answers: list[int] = []

    def ask() -> None:
        creation.ensure(GROUPS.topic, answers.append)
        creation.begin(["a", "b"])
        cluster.world.run()

    with no_descriptors():
        ask()
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]
    ask()
    assert set(cluster.cache.image.topics_by_name) == {GROUPS.topic, "a", "b"}
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    creation.close()
