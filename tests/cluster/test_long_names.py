"""Names that clients choose and keys of the store have: how long they may be, and that the keys fit then."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.controller.write_queue import WriteOperation, WriteQueue
from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.decisions.operations import QuotaAlteration, ScramUpsertion
from pybroker.cluster.decisions.quota_changes import alter_client_quotas
from pybroker.cluster.decisions.scram_changes import alter_scram_credentials
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.quota_entities import QuotaEntity
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import CommitResult, RefusedWriteError, StoreError
from pybroker.cluster.store.store_names import STORE_NAMES_BYTES_MAX
from pybroker.cluster.store.zookeeper import zookeeper_codec
from pybroker.config.resources import CLIENT_METRICS, GROUP, ConfigChange
from pybroker.security.scram import BY_TYPE, ITERATIONS_MIN
from pybroker_protocol.errors import ErrorCode
from tests.steps import end_of

LONGEST = "/" * (STORE_NAMES_BYTES_MAX // 3)
TOO_LONG = LONGEST[:-1] + "\u00e4"
LONGEST_OF_LETTERS = "x" * 32_767
SAYS = "The name, percent-encoded, is longer than 65000 bytes"
QUOTA = (("request_percentage", 1.0),)
MECHANISM = next(iter(BY_TYPE))


def both(name: str) -> QuotaEntity:
    return ("client-id", name), ("user", name)


def upsertion(user: str) -> ScramUpsertion:
    return ScramUpsertion(user, MECHANISM, ITERATIONS_MIN, b"salt", b"password")


def settings(name: str, value: str | None = "50000") -> list[ConfigChange]:
    return [
        ConfigChange(GROUP, name, {"consumer.session.timeout.ms": value}),
        ConfigChange(CLIENT_METRICS, name, {"interval.ms": value}),
    ]


def written(builder: ImageBuilder) -> bytes:
    writes = store_codec.encode(ClusterImage(), builder.view(), builder.delta())
    return zookeeper_codec.encode_writes(writes.puts, writes.deletes)


def test_keys_of_the_longest_names_fit_in_zookeeper() -> None:
    builder = ImageBuilder(ClusterImage())
    assert {result.error_code for result in alter_configs(builder, settings(LONGEST))} == {0}
    assert [
        result.error_code
        for result in alter_client_quotas(builder, [QuotaAlteration(both(LONGEST[: len(LONGEST) // 2]), QUOTA)])
    ] == [0]
    assert [result.error_code for result in end_of(alter_scram_credentials(builder, [], [upsertion(LONGEST)]))] == [0]
    puts, _ = zookeeper_codec.decode_writes(written(builder))
    assert len(puts) == 4


def test_longest_name_of_letters_that_a_request_can_have_is_taken() -> None:
    builder = ImageBuilder(ClusterImage())
    assert {result.error_code for result in alter_configs(builder, settings(LONGEST_OF_LETTERS))} == {0}
    entity = (("user", LONGEST_OF_LETTERS),)
    assert [result.error_code for result in alter_client_quotas(builder, [QuotaAlteration(entity, QUOTA)])] == [0]
    users = end_of(alter_scram_credentials(builder, [], [upsertion(LONGEST_OF_LETTERS)]))
    assert [result.error_code for result in users] == [0]
    assert len(zookeeper_codec.decode_writes(written(builder))[0]) == 4


def test_longer_names_are_refused_and_others_of_the_request_are_not() -> None:
    builder = ImageBuilder(ClusterImage())
    configs = alter_configs(builder, [*settings(TOO_LONG), *settings("a")])
    refused = (ErrorCode.INVALID_REQUEST, SAYS)
    assert [result[1:] for result in configs] == [refused, refused, (0, None), (0, None)]
    alterations = [QuotaAlteration(entity, QUOTA) for entity in (both(TOO_LONG), both("a"))]
    assert [result[1:] for result in alter_client_quotas(builder, alterations)] == [refused, (0, None)]
    users = end_of(alter_scram_credentials(builder, [], [upsertion(TOO_LONG), upsertion("a")]))
    assert {name: (code, message) for name, code, message in users} == {
        "a": (0, None),
        TOO_LONG: (ErrorCode.UNACCEPTABLE_CREDENTIAL, SAYS),
    }
    image = builder.view()
    assert {name for _, name in (*image.configs, *image.scram_credentials)} == {"a"}
    assert image.quotas.keys() == {both("a")}


def test_what_has_a_longer_name_since_before_can_be_removed() -> None:
    credential: Any = None
    before = ClusterImage(
        configs={(GROUP, TOO_LONG): {"consumer.session.timeout.ms": "50000"}},
        quotas={both(TOO_LONG): {"request_percentage": 1.0}},
        scram_credentials={(MECHANISM, TOO_LONG): credential},
    )
    builder = ImageBuilder(before)
    assert alter_configs(builder, settings(TOO_LONG, None)[:1])[0].error_code == 0
    removal = QuotaAlteration(both(TOO_LONG), (("request_percentage", None),))
    assert alter_client_quotas(builder, [removal])[0].error_code == 0
    assert end_of(alter_scram_credentials(builder, [(MECHANISM, TOO_LONG)], []))[0].error_code == 0
    image = builder.view()
    assert not image.configs
    assert not image.quotas
    assert not image.scram_credentials


class _Images:
    image = ClusterImage()

    def apply(self, *_: object) -> None:
        raise AssertionError("nothing was written")


class _Store:
    """It has one answer for every transaction."""

    def __init__(self, world: VirtualWorld, error: StoreError) -> None:
        self._world = world
        self._error = error

    def commit(self, _: object, done: Any) -> None:
        self._world.timers.call_soon(done, CommitResult(error=self._error))


@pytest.mark.parametrize(("error", "deposed"), [(RefusedWriteError("too long"), 0), (StoreError("disk full"), 1)])
def test_controller_stays_where_the_store_has_surely_written_nothing(error: StoreError, deposed: int) -> None:
    world = VirtualWorld()
    answers: list[object] = []
    depositions: list[None] = []
    store: Any = _Store(world, error)
    queue = WriteQueue(world.env, store, _Images(), 1, lambda: depositions.append(None))
    for change in settings("a"):
        decide = partial(alter_configs, changes=[change])
        queue.submit(WriteOperation(decide, lambda code, message: (code, message), answers.append))
    world.run()
    assert answers == [(ErrorCode.KAFKA_STORAGE_ERROR, str(error))] * 2
    assert len(depositions) == deposed
    queue.close()
