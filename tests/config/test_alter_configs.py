"""AlterConfigs and IncrementalAlterConfigs: operations, rules per resource type, and when changes take effect."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pybroker.config.resources import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Alteration,
    AlterConfigOp,
    Outcome,
)
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import alter_configs as legacy
from pybroker_protocol.messages import incremental_alter_configs as incremental
from pybroker_protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.config.config_support import TOPIC_NAME, Configs

OK = Outcome(ErrorCode.NONE)
POLICY = "cleanup.policy"


@pytest.fixture
def configs() -> Configs:
    return Configs()


def assert_refused(outcome: Outcome, code: int, message: str) -> None:
    """The error is ``code``, and the client reads ``message`` somewhere in its words."""
    assert outcome.error_code == code
    assert message in (outcome.error_message or "")


# --- operations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        (None, AlterConfigOp(POLICY, "compact"), "compact"),
        ("compact", AlterConfigOp(POLICY, None, DELETE), None),
        (None, AlterConfigOp(POLICY, None, DELETE), None),
        (None, AlterConfigOp(POLICY, "compact", APPEND), "delete,compact"),
        ("compact", AlterConfigOp(POLICY, "compact", APPEND), "compact"),
        ("compact", AlterConfigOp(POLICY, "delete,compact,delete", APPEND), "compact,delete"),
        ("compact,delete", AlterConfigOp(POLICY, "compact", SUBTRACT), "delete"),
        ("compact", AlterConfigOp(POLICY, "delete", SUBTRACT), "compact"),
        ("compact", AlterConfigOp(POLICY, "compact", SUBTRACT), ""),
    ],
)
def test_operation_on_a_list(configs: Configs, before: str | None, operation: AlterConfigOp, after: str | None) -> None:
    if before is not None:
        assert configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp(POLICY, before)) == OK
    assert configs.alter(TOPIC, TOPIC_NAME, operation) == OK
    assert configs.overrides(TOPIC, TOPIC_NAME).get(POLICY) == after


@pytest.mark.parametrize(
    ("resource_type", "resource_name", "name", "form"),
    [
        (BROKER, "", "pybroker.links.west.promote", "topic-{:06}"),
        (TOPIC, TOPIC_NAME, "leader.replication.throttled.replicas", "{}:1000000"),
    ],
)
def test_a_value_does_not_grow_beyond_what_a_reply_can_show(
    configs: Configs, resource_type: int, resource_name: str, name: str, form: str
) -> None:
    for first in (0, 1_000):
        text = ",".join(form.format(number) for number in range(first, first + 1_000))
        assert configs.alter(resource_type, resource_name, AlterConfigOp(name, text, APPEND)) == OK
    before = configs.overrides(resource_type, resource_name)
    text = ",".join(form.format(number) for number in range(2_000, 4_000))
    outcome = configs.alter(resource_type, resource_name, AlterConfigOp(name, text, APPEND))
    assert_refused(outcome, ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {name}: it has ")
    assert configs.overrides(resource_type, resource_name) == before


@pytest.mark.parametrize(("kind", "verb"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
def test_only_lists_can_be_appended_to(configs: Configs, kind: int, verb: str) -> None:
    outcome = configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("retention.ms", "1", kind))
    message = f"Can't {verb} to key retention.ms because its type is not LIST."
    assert outcome == Outcome(ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ((AlterConfigOp("a", "1"), AlterConfigOp("a", None, DELETE)), "Error due to duplicate config keys"),
        ((AlterConfigOp("retention.ms", None),), "Null value not supported for : retention.ms"),
        ((AlterConfigOp("retention.ms", "1", 9),), "Unknown operations type 9"),
    ],
)
def test_malformed_operations_are_refused(
    configs: Configs, operations: tuple[AlterConfigOp, ...], message: str
) -> None:
    assert configs.alter(TOPIC, TOPIC_NAME, *operations) == Outcome(ErrorCode.INVALID_REQUEST, message)


def test_resource_is_changed_wholly_or_not_at_all(configs: Configs) -> None:
    outcome = configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "7"), AlterConfigOp("segment.bytes", "x"))
    assert outcome.error_code == ErrorCode.INVALID_CONFIG
    assert configs.overrides(TOPIC, TOPIC_NAME) == {}


def test_validate_only_changes_nothing(configs: Configs) -> None:
    assert configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "7"), validate_only=True) == OK
    refused = configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "x"), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert configs.store.writes == 0


def test_incremental_change_keeps_other_overrides_and_replacing_does_not(configs: Configs) -> None:
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "7"))
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("retention.ms", "8"))
    assert configs.overrides(TOPIC, TOPIC_NAME) == {"flush.ms": "7", "retention.ms": "8"}
    assert configs.replace(TOPIC, TOPIC_NAME, {"retention.ms": "9"}) == OK
    assert configs.overrides(TOPIC, TOPIC_NAME) == {"retention.ms": "9"}


def test_changes_wait_for_the_write_before_them(configs: Configs) -> None:
    configs.store.hold()
    answers: list[list[Outcome]] = []
    for policy in ("compact", "delete"):
        kind = SUBTRACT if policy == "delete" else APPEND
        alteration = Alteration(TOPIC, TOPIC_NAME, (AlterConfigOp(POLICY, policy, kind),))
        configs.service.alter([alteration], False, answers.append)
    assert answers == []
    assert configs.store.release() == 1
    assert answers == [[OK], [OK]]
    assert configs.overrides(TOPIC, TOPIC_NAME) == {POLICY: "compact"}


# --- topics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("missing", AlterConfigOp("flush.ms", "1"), 3, "The topic 'missing' does not exist."),
        ("missing", AlterConfigOp("nope", "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        ("", AlterConfigOp("flush.ms", "1"), ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            TOPIC_NAME,
            AlterConfigOp("flush.ms", "x"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration flush.ms: Not a number of type LONG",
        ),
    ],
)
def test_topic_is_refused_in_kafkas_words(
    configs: Configs, name: str, operation: AlterConfigOp, code: int, message: str
) -> None:
    assert_refused(configs.alter(TOPIC, name, operation), code, message)


def test_unknown_override_can_be_deleted(configs: Configs) -> None:
    assert configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("nope", None, DELETE)) == OK


# --- brokers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("", AlterConfigOp("num.partitions", "7"), 42, "Cannot update these configs dynamically: [num.partitions]"),
        ("2", AlterConfigOp("num.io.threads", "7"), 42, "Unexpected broker id, expected 1, but received 2"),
        ("x", AlterConfigOp("num.io.threads", "7"), 42, "Node id must be an integer, but it is: x"),
        ("", AlterConfigOp("num.io.threads", "0"), 42, "num.io.threads: Value must be at least 1"),
        ("", AlterConfigOp("num.io.threads", "1", APPEND), 40, "append is not allowed for config key: num.io.threads"),
        ("1", AlterConfigOp("my.thing", "1", SUBTRACT), 40, "Unknown config name: my.thing"),
        ("1", AlterConfigOp("ssl.keystore.password", "p"), 42, "using the listener prefix: [ssl.keystore.password]"),
        ("", AlterConfigOp("ssl.protocol", "x"), 42, "broker id must be specified: [ssl.protocol]"),
        (
            "",
            AlterConfigOp("listener.name.a.ssl.keystore.type", "x"),
            42,
            "[listener.name.a.ssl.keystore.type]",
        ),
        ("1", AlterConfigOp("log.retention.ms", "0"), 42, "requirement failed: log.retention.ms must be unlimited"),
        ("1", AlterConfigOp("listeners", "PLAINTEXT://x:1"), 42, "listeners cannot be changed while pybroker runs"),
    ],
)
def test_broker_is_refused_in_kafkas_words(
    configs: Configs, name: str, operation: AlterConfigOp, code: int, message: str
) -> None:
    assert_refused(configs.alter(BROKER, name, operation), code, message)


def test_broker_takes_settings_that_kafka_does_not_know(configs: Configs) -> None:
    assert configs.alter(BROKER, "", AlterConfigOp("my.plugin.setting", "1")) == OK


def test_broker_setting_takes_effect_at_once_and_subscribers_hear_of_it(configs: Configs) -> None:
    heard: list[frozenset[str]] = []
    configs.service.subscribe(heard.append)
    assert configs.alter(BROKER, "", AlterConfigOp("log.retention.ms", "70000")) == OK
    assert configs.config["log.retention.ms"] == 70000
    assert configs.alter(BROKER, "1", AlterConfigOp("log.retention.ms", "60000")) == OK
    assert configs.config["log.retention.ms"] == 60000
    assert configs.alter(BROKER, "01", AlterConfigOp("log.retention.ms", None, DELETE)) == OK
    assert configs.config["log.retention.ms"] == 70000
    assert heard == [frozenset({"log.retention.ms"})] * 3


def test_subscribers_hear_nothing_when_no_value_changes(configs: Configs) -> None:
    heard: list[frozenset[str]] = []
    configs.service.subscribe(heard.append)
    configs.alter(BROKER, "", AlterConfigOp("num.io.threads", "8"))
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "5"))
    assert heard == []


def test_append_on_a_broker_starts_from_the_default(configs: Configs) -> None:
    assert configs.alter(BROKER, "", AlterConfigOp("log.cleanup.policy", "compact", APPEND)) == OK
    assert configs.config["log.cleanup.policy"] == ("delete", "compact")


PAUSE = "pybroker.links.west.pause"


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        (None, AlterConfigOp(PAUSE, "c", APPEND), "a,b,c"),
        (None, AlterConfigOp(PAUSE, "a", SUBTRACT), "b"),
        ("d", AlterConfigOp(PAUSE, "c", APPEND), "d,c"),
        ("", AlterConfigOp(PAUSE, "c", APPEND), "c"),
        (None, AlterConfigOp(PAUSE, "c"), "c"),
        ("d", AlterConfigOp(PAUSE, None, DELETE), None),
    ],
)
def test_a_list_of_a_link_is_added_to_as_it_is_in_force(
    before: str | None, operation: AlterConfigOp, after: str | None
) -> None:
    configs = Configs({PAUSE: "a,b"})
    if before is not None:
        assert configs.alter(BROKER, "", AlterConfigOp(PAUSE, before)) == OK
    assert configs.alter(BROKER, "", operation) == OK
    assert configs.overrides(BROKER, "").get(PAUSE) == after


# --- groups and client metrics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("", AlterConfigOp("consumer.session.timeout.ms", "50000"), 42, "Default group resources are not allowed."),
        ("g", AlterConfigOp("nope", "1"), 40, "Unknown group config name: nope"),
        ("g", AlterConfigOp("consumer.session.timeout.ms", "1"), 40, "equal to group.consumer.min.session.timeout.ms"),
        (
            "g",
            AlterConfigOp("consumer.session.timeout.ms", "70000"),
            40,
            "to group.consumer.max.session.timeout.ms",
        ),
        (
            "g",
            AlterConfigOp("streams.num.standby.replicas", "5"),
            40,
            "less than or equal to group.streams.max.standby.replicas",
        ),
        (
            "g",
            AlterConfigOp("share.partition.max.record.locks", "9999"),
            40,
            "to group.share.max.partition.max.record.locks",
        ),
        ("g", AlterConfigOp("share.record.lock.duration.ms", "1"), 40, "Value must be at least 1000"),
        ("g", AlterConfigOp("consumer.session.timeout.ms", "x"), 40, "Not a number of type INT"),
    ],
)
def test_group_is_refused_in_kafkas_words(
    configs: Configs, name: str, operation: AlterConfigOp, code: int, message: str
) -> None:
    assert_refused(configs.alter(GROUP, name, operation), code, message)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT3H4M5.5S"])
def test_share_group_starts_where_it_is_told(configs: Configs, reset: str) -> None:
    assert configs.alter(GROUP, "g", AlterConfigOp("share.auto.offset.reset", reset)) == OK


@pytest.mark.parametrize("reset", ["foo", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"])
def test_share_group_cannot_start_nowhere(configs: Configs, reset: str) -> None:
    outcome = configs.alter(GROUP, "g", AlterConfigOp("share.auto.offset.reset", reset))
    assert outcome.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("", AlterConfigOp("interval.ms", "500"), 42, "Subscription name can't be empty"),
        ("m", AlterConfigOp("nope", "1"), 42, "Unknown client metrics configuration: nope"),
        ("m", AlterConfigOp("interval.ms", "50"), 42, "interval must be between 100 and 3600000 (1 hour)"),
        ("m", AlterConfigOp("interval.ms", "x"), 40, "configuration interval.ms: Not a number of type INT"),
        ("m", AlterConfigOp("match", "foo=bar"), 40, "Illegal client matching pattern: foo=bar"),
        ("m", AlterConfigOp("match", "client_id=["), 40, "Illegal client matching pattern: client_id=["),
        ("m", AlterConfigOp("match", "client_id="), 40, "Illegal client matching pattern: client_id="),
        ("m", AlterConfigOp("metrics", "a", APPEND), 40, "because its type is not LIST."),
    ],
)
def test_client_metrics_are_refused_in_kafkas_words(
    configs: Configs, name: str, operation: AlterConfigOp, code: int, message: str
) -> None:
    assert_refused(configs.alter(CLIENT_METRICS, name, operation), code, message)


# --- loggers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """One of the broker's loggers, and its parent, put back afterwards."""
    logger, parent = logging.getLogger("pybroker.config"), logging.getLogger("pybroker")
    levels = logger.level, parent.level
    yield logger
    logger.setLevel(levels[0])
    parent.setLevel(levels[1])


def test_logger_level_is_set_and_inherited_again(configs: Configs, logger: logging.Logger) -> None:
    assert configs.alter(BROKER_LOGGER, "1", AlterConfigOp(logger.name, "TRACE")) == OK
    assert configs.entry(BROKER_LOGGER, "1", logger.name).value == "TRACE"
    assert configs.alter(BROKER_LOGGER, "1", AlterConfigOp("root", "FATAL")) == OK
    assert configs.alter(BROKER_LOGGER, "1", AlterConfigOp(logger.name, None, DELETE)) == OK
    assert configs.entry(BROKER_LOGGER, "1", logger.name).value == "FATAL"
    assert configs.store.writes == 0


def test_validating_a_logger_level_leaves_it(configs: Configs, logger: logging.Logger) -> None:
    before = logger.level
    assert configs.alter(BROKER_LOGGER, "1", AlterConfigOp(logger.name, "FATAL"), validate_only=True) == OK
    assert logger.level == before


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("2", AlterConfigOp("root", "INFO"), 42, "Unexpected node id. Expected 1, but received 2"),
        ("", AlterConfigOp("root", "INFO"), 42, "Node id must be an integer, but it is: "),
        (
            "1",
            AlterConfigOp("root", "INFO", APPEND),
            42,
            "APPEND operation is not allowed for the BROKER_LOGGER",
        ),
        ("1", AlterConfigOp("root", None, DELETE), 42, "Removing the log level of the root logger is not allowed"),
        ("1", AlterConfigOp("kafka.server", "INFO"), 40, "Logger kafka.server does not exist!"),
        ("1", AlterConfigOp("asyncio", "INFO"), 40, "Logger asyncio does not exist!"),
        ("1", AlterConfigOp("root", "info"), 40, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
    ],
)
def test_logger_is_refused_in_kafkas_words(
    configs: Configs, name: str, operation: AlterConfigOp, code: int, message: str
) -> None:
    assert_refused(configs.alter(BROKER_LOGGER, name, operation), code, message)


def test_loggers_cannot_be_replaced(configs: Configs) -> None:
    refused = Outcome(ErrorCode.INVALID_REQUEST, "Unknown resource type 8")
    assert configs.replace(BROKER_LOGGER, "1", {"root": "INFO"}) == refused


# --- handlers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_incremental_handler_answers_each_resource_in_order(configs: Configs, version: int) -> None:
    def resource(
        kind: int, name: str, key: str, value: str | None, operation: int = SET
    ) -> incremental.AlterConfigsResource:
        config = incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            resource(TOPIC, "no good", "flush.ms", "1"),
            resource(TOPIC, TOPIC_NAME, POLICY, "compact", APPEND),
            resource(77, "x", "a", "1"),
        ],
        validate_only=False,
    )
    responses = configs.call("incremental_alter_configs", request, version).responses
    assert [(r.error_code, r.resource_type, r.resource_name) for r in responses] == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC, "no good"),
        (ErrorCode.NONE, TOPIC, TOPIC_NAME),
        (ErrorCode.INVALID_REQUEST, 77, "x"),
    ]
    assert responses[1].error_message is None
    assert configs.overrides(TOPIC, TOPIC_NAME) == {POLICY: "delete,compact"}


@pytest.mark.parametrize("between", [1, 1_000], ids=["in one portion", "portions apart"])
def test_resource_named_twice_is_refused_and_the_others_are_served(configs: Configs, between: int) -> None:
    def resource(kind: int, name: str, key: str, value: str) -> incremental.AlterConfigsResource:
        config = incremental.AlterableConfig(name=key, config_operation=SET, value=value)
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    twice = resource(TOPIC, TOPIC_NAME, "flush.ms", "7")
    groups = [resource(GROUP, f"g{each}", "consumer.session.timeout.ms", "50000") for each in range(between)]
    request = incremental.IncrementalAlterConfigsRequest(resources=[twice, *groups, twice], validate_only=False)
    first, *others, last = configs.call("incremental_alter_configs", request, 1).responses
    for refused in (first, last):
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "Each resource must appear at most once."
    assert [other.error_code for other in others] == [0] * between
    assert configs.overrides(TOPIC, TOPIC_NAME) == {}
    for group in groups:
        assert configs.overrides(GROUP, group.resource_name) == {"consumer.session.timeout.ms": "50000"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_legacy_handler_replaces_all_overrides(configs: Configs, version: int) -> None:
    configs.alter(TOPIC, TOPIC_NAME, AlterConfigOp("flush.ms", "7"))
    config = legacy.AlterableConfig(name="retention.ms", value="9000")
    resource = legacy.AlterConfigsResource(resource_type=TOPIC, resource_name=TOPIC_NAME, configs=[config])
    request = legacy.AlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = configs.call("alter_configs", request, version).responses
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert configs.overrides(TOPIC, TOPIC_NAME) == {"retention.ms": "9000"}


# --- listing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "version", "listed"),
    [
        ([], 0, [(CLIENT_METRICS, "m")]),
        ([], 1, [(GROUP, "g"), (CLIENT_METRICS, "m"), (BROKER_LOGGER, "1"), (BROKER, "1"), (TOPIC, TOPIC_NAME)]),
        ([TOPIC, GROUP], 1, [(GROUP, "g"), (TOPIC, TOPIC_NAME)]),
        ([BROKER], 1, [(BROKER, "1")]),
    ],
)
def test_resources_with_settings_are_listed(
    configs: Configs, types: list[int], version: int, listed: list[tuple[int, str]]
) -> None:
    configs.alter(GROUP, "g", AlterConfigOp("consumer.session.timeout.ms", "50000"))
    configs.alter(CLIENT_METRICS, "m", AlterConfigOp("interval.ms", "500"))
    request = ListConfigResourcesRequest(resource_types=types) if version else ListConfigResourcesRequest()
    response = configs.call("list_config_resources", request, version)
    assert response.error_code == ErrorCode.NONE
    assert [(resource.resource_type, resource.resource_name) for resource in response.config_resources] == listed


def test_unknown_resource_type_cannot_be_listed(configs: Configs) -> None:
    response = configs.call("list_config_resources", ListConfigResourcesRequest(resource_types=[3]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
