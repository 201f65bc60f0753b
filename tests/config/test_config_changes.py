"""Changed settings over the wire: effective at once, and still there after a restart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from harness.batches import batch

from pybroker.config.connections import OVERRIDES
from pybroker.config.resources import APPEND, BROKER, CLIENT_METRICS, SET, TOPIC
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import WireClient

TELEMETRY_KEYS = {71, 72}


def alter(wire: WireClient, kind: int, name: str, key: str, value: str, operation: int = SET) -> int:
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    code: int = wire.ask(request, 1).responses[0].error_code
    return code


def value_of(wire: WireClient, kind: int, name: str, key: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    (config,) = wire.ask(request, 4).results[0].configs
    value: str | None = config.value
    return value


def served_keys(wire: WireClient) -> set[int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {api.api_key for api in wire.ask(request, 3).api_keys}


def test_topic_setting_holds_for_the_next_batch(pybroker: Broker, pybroker_topic: str) -> None:
    large = batch(b"x" * 1000)
    with WireClient((pybroker.host, pybroker.port)) as wire:
        assert wire.produce(pybroker_topic, large).error_code == ErrorCode.NONE
        assert alter(wire, TOPIC, pybroker_topic, "max.message.bytes", "500") == ErrorCode.NONE
        assert wire.produce(pybroker_topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert wire.produce(pybroker_topic, batch(b"x")).error_code == ErrorCode.NONE


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    for start in range(2):
        with Broker(data_dir=tmp_path) as broker, WireClient((broker.host, broker.port)) as wire:
            if start == 0:
                assert alter(wire, BROKER, "", "log.retention.ms", "70000") == ErrorCode.NONE
                assert alter(wire, BROKER, "", "log.cleanup.policy", "compact", APPEND) == ErrorCode.NONE
            assert value_of(wire, BROKER, "1", "log.retention.ms") == "70000"
            assert value_of(wire, BROKER, "1", "log.cleanup.policy") == "delete,compact"


def test_brokers_default_holds_for_topics_at_once(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, WireClient((broker.host, broker.port)) as wire:
        broker.create_topic("inherits")
        large = batch(b"x" * 1000)
        assert wire.produce("inherits", large).error_code == ErrorCode.NONE
        assert alter(wire, BROKER, "1", "message.max.bytes", "500") == ErrorCode.NONE
        assert wire.produce("inherits", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert value_of(wire, TOPIC, "inherits", "max.message.bytes") == "500"


def test_telemetry_is_announced_while_a_subscription_exists(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, WireClient((broker.host, broker.port)) as wire:
        assert not TELEMETRY_KEYS & served_keys(wire)
        assert alter(wire, CLIENT_METRICS, "all", "metrics", "*") == ErrorCode.NONE
        assert served_keys(wire) >= TELEMETRY_KEYS


def test_bad_value_that_an_older_version_stored_does_not_shut_clients_out(tmp_path: Path) -> None:
    stored = b'{"max.connections.per.ip.overrides": "127.0.0.1:abc", "log.cleaner.threads": "0"}'
    for start in range(2):
        with Broker(data_dir=tmp_path) as broker, WireClient((broker.host, broker.port)) as wire:
            assert alter(wire, BROKER, "1", OVERRIDES, "127.0.0.1:abc") == ErrorCode.INVALID_REQUEST
            if start == 0:
                assert alter(wire, BROKER, "1", "log.retention.ms", "70000") == ErrorCode.NONE
            else:
                assert value_of(wire, BROKER, "1", "log.cleaner.threads") == "1"
                broker.create_topic("reachable")
        if start == 0:
            with closing(sqlite3.connect(tmp_path / "pybroker-metadata.db")) as store, store:
                changed = store.execute("UPDATE entries SET value = ? WHERE key = ?", (stored, "/configs/4/1"))
                assert changed.rowcount == 1
