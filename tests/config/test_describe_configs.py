"""DescribeConfigs: values, sources, synonyms and flags, as Apache Kafka gives them."""

from __future__ import annotations

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.describe import new_topic_entries
from pybroker.config.resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC,
    TOPIC_CONFIG,
    AlterConfigOp,
    Synonym,
)
from pybroker.config.schema import INT, PASSWORD, UNKNOWN
from pybroker.config.topic_settings import TOPIC_SETTINGS
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.config.config_support import TOPIC_NAME, Configs

VERSIONS = range(1, 5)


def request(
    kind: int, name: str, keys: list[str] | None = None, synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms, include_documentation=documentation)


def only_result(response: DescribeConfigsResponse) -> DescribeConfigsResult:
    (result,) = response.results
    return result


def test_topic_synonyms_list_every_layer_from_the_strongest() -> None:
    configs = Configs({"log.retention.hours": "24"})
    configs.alter(BROKER, "", AlterConfigOp("log.retention.ms", "70000"))
    configs.alter(BROKER, "1", AlterConfigOp("log.retention.ms", "60000"))
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("retention.ms", "5000"))
    entry = configs.entry(TOPIC, TOPIC_NAME, "retention.ms")
    assert (entry.value, entry.source, entry.read_only) == ("5000", TOPIC_CONFIG, False)
    assert entry.synonyms == (
        Synonym("retention.ms", "5000", TOPIC_CONFIG),
        Synonym("log.retention.ms", "60000", DYNAMIC_BROKER_CONFIG),
        Synonym("log.retention.ms", "70000", DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.retention.hours", "24", STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", DEFAULT_CONFIG),
    )


def test_value_from_another_unit_is_a_default_without_synonyms() -> None:
    entry = Configs({"log.retention.hours": "24"}).entry(TOPIC, TOPIC_NAME, "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("86400000", DEFAULT_CONFIG, ())


def test_topic_setting_without_a_broker_setting_has_itself_as_synonym() -> None:
    configs = Configs()
    name = "follower.replication.throttled.replicas"
    assert configs.entry(TOPIC, TOPIC_NAME, name).synonyms == ()
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp(name, "*"))
    assert configs.entry(TOPIC, TOPIC_NAME, name).synonyms == (Synonym(name, "*", TOPIC_CONFIG),)


def test_cleanup_policy_keeps_its_order() -> None:
    configs = Configs()
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("cleanup.policy", "delete,compact"))
    assert configs.entry(TOPIC, TOPIC_NAME, "cleanup.policy").value == "delete,compact"
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("cleanup.policy", "compact, delete"))
    assert configs.entry(TOPIC, TOPIC_NAME, "cleanup.policy").value == "compact,delete"


def test_internal_settings_are_described_only_where_they_are_set() -> None:
    configs = Configs()
    names = {entry.name for entry in configs.service.describe(TOPIC, TOPIC_NAME).entries}
    assert names == {name for name, setting in TOPIC_SETTINGS.items() if not setting.internal}
    assert "internal.segment.bytes" not in names
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("internal.segment.bytes", "1000"))
    assert configs.entry(TOPIC, TOPIC_NAME, "internal.segment.bytes").value == "1000"


def test_every_setting_of_the_broker_is_described() -> None:
    names = {entry.name for entry in Configs().service.describe(BROKER, "1").entries}
    assert names == {name for name, setting in BROKER_SETTINGS.items() if not setting.internal}


def test_broker_setting_shows_what_the_file_said() -> None:
    entry = Configs({"num.partitions": "3"}).entry(BROKER, "1", "num.partitions")
    assert (entry.value, entry.source, entry.type, entry.read_only) == ("3", STATIC_BROKER_CONFIG, INT, True)
    assert entry.synonyms == (
        Synonym("num.partitions", "3", STATIC_BROKER_CONFIG),
        Synonym("num.partitions", "1", DEFAULT_CONFIG),
    )


def test_node_id_is_static_even_when_nobody_set_it() -> None:
    entry = Configs().entry(BROKER, "1", "node.id")
    assert entry.synonyms == (Synonym("node.id", "1", STATIC_BROKER_CONFIG),)
    assert Configs().entry(BROKER, "1", "broker.id").synonyms[-1] == Synonym("broker.id", "-1", DEFAULT_CONFIG)


def test_passwords_and_unknown_settings_are_sensitive() -> None:
    configs = Configs({"ssl.key.password": "secret", "my.plugin.setting": "x"})
    password = configs.entry(BROKER, "1", "ssl.key.password")
    assert (password.value, password.is_sensitive, password.type, password.read_only) == (None, True, PASSWORD, False)
    assert password.synonyms == (Synonym("ssl.key.password", None, STATIC_BROKER_CONFIG),)
    unknown = configs.entry(BROKER, "1", "my.plugin.setting")
    assert (unknown.value, unknown.is_sensitive, unknown.type, unknown.read_only) == (None, True, UNKNOWN, True)


def test_setting_of_one_listener_falls_back_to_the_plain_one() -> None:
    configs = Configs()
    configs.alter(BROKER, "", AlterConfigOp("max.connections", "20"))
    configs.alter(BROKER, "1", AlterConfigOp("listener.name.plaintext.max.connections", "10"))
    entry = configs.entry(BROKER, "1", "listener.name.plaintext.max.connections")
    assert (entry.value, entry.type, entry.read_only) == ("10", INT, True)
    assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [
        ("listener.name.plaintext.max.connections", DYNAMIC_BROKER_CONFIG),
        ("max.connections", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("max.connections", DEFAULT_CONFIG),
    ]


def test_broker_default_has_only_what_is_set() -> None:
    configs = Configs()
    assert configs.service.describe(BROKER, "").entries == ()
    configs.alter(
        BROKER, "", AlterConfigOp("num.io.threads", "9"), AlterConfigOp("leader.replication.throttled.rate", "5")
    )
    entries = configs.service.describe(BROKER, "").entries
    assert [(entry.name, entry.value, entry.source, entry.read_only) for entry in entries] == [
        ("num.io.threads", "9", DYNAMIC_DEFAULT_BROKER_CONFIG, False),
        ("leader.replication.throttled.rate", "5", DYNAMIC_DEFAULT_BROKER_CONFIG, False),
    ]


def test_group_shows_the_brokers_value_until_it_has_its_own() -> None:
    configs = Configs({"group.consumer.session.timeout.ms": "46000"})
    name = "consumer.session.timeout.ms"
    before = configs.entry(GROUP, "g", name)
    assert (before.value, before.source) == ("46000", STATIC_BROKER_CONFIG)
    configs.alter(GROUP, "g", AlterConfigOp(name, "50000"))
    after = configs.entry(GROUP, "g", name)
    assert (after.value, after.source) == ("50000", GROUP_CONFIG)
    assert after.synonyms[0] == Synonym(name, "50000", GROUP_CONFIG)
    assert after.synonyms[1].name == "group.consumer.session.timeout.ms"


def test_group_setting_without_a_broker_setting_is_its_own_synonym() -> None:
    configs = Configs()
    name = "share.auto.offset.reset"
    default = Synonym(name, "latest", DEFAULT_CONFIG)
    assert configs.entry(GROUP, "g", name).synonyms == (default,)
    configs.alter(GROUP, "g", AlterConfigOp(name, "earliest"))
    entry = configs.entry(GROUP, "g", name)
    assert (entry.value, entry.source) == ("earliest", GROUP_CONFIG)
    assert entry.synonyms == (Synonym(name, "earliest", GROUP_CONFIG), default)


def test_client_metrics_subscription_that_does_not_exist_has_the_defaults() -> None:
    configs = Configs()
    entry = configs.entry(CLIENT_METRICS, "new", "interval.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("300000", DEFAULT_CONFIG, ())
    configs.alter(CLIENT_METRICS, "new", AlterConfigOp("interval.ms", "500"))
    entry = configs.entry(CLIENT_METRICS, "new", "interval.ms")
    assert (entry.value, entry.source) == ("500", CLIENT_METRICS_CONFIG)


def test_broker_loggers_have_a_level() -> None:
    entry = Configs().entry(BROKER_LOGGER, "1", "root")
    assert entry.value in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    assert (entry.source, entry.type, entry.read_only) == (DYNAMIC_BROKER_LOGGER_CONFIG, UNKNOWN, False)


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (TOPIC, "no good", ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (
            BROKER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (77, "x", ErrorCode.INVALID_REQUEST, None),
    ],
)
def test_resource_that_cannot_be_described_gets_kafkas_error(
    kind: int, name: str, code: int, message: str | None
) -> None:
    result = only_result(Configs().call("describe_configs", request(kind, name), 4))
    assert (result.error_code, result.configs, result.resource_name) == (code, [], name)
    if message is not None:
        assert result.error_message == message


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_describes_the_keys_asked_for(version: int) -> None:
    asked = request(TOPIC, TOPIC_NAME, ["retention.ms", "no.such"], synonyms=True, documentation=version >= 3)
    (config,) = only_result(Configs().call("describe_configs", asked, version)).configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "604800000", DEFAULT_CONFIG)
    assert bool(config.documentation) == (version >= 3)


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_means_all(keys: list[str] | None) -> None:
    result = only_result(Configs().call("describe_configs", request(TOPIC, TOPIC_NAME, keys), 4))
    assert {config.name for config in result.configs} == set(TOPIC_SETTINGS) - {"internal.segment.bytes"}


def test_synonyms_are_sent_only_when_asked_for() -> None:
    for asked in (True, False):
        result = only_result(Configs().call("describe_configs", request(BROKER, "1", ["node.id"], asked), 4))
        assert bool(result.configs[0].synonyms) == asked


@pytest.mark.parametrize("given", [{}, {"pybroker.validate.records": "true"}, {"retention.ms": "5"}])
def test_new_topic_tells_the_settings_that_kafka_knows_and_those_that_were_given(given: dict[str, str]) -> None:
    """Clients count and compare what CreateTopics answers."""
    told = [entry.name for entry in new_topic_entries(BrokerConfig.load(), given)]
    assert told == sorted(told)
    known = {name for name, setting in TOPIC_SETTINGS.items() if not setting.internal}
    assert set(told) == {name for name in known if not name.startswith("pybroker.")} | set(given)
