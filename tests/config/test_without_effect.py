"""A setting that restricts, hides or names code is never accepted without effect; every other has a line in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from pybroker.config.log_config import validate_topic_configs
from pybroker.config.resources import BROKER, AlterConfigOp
from pybroker.config.schema import CHECKED, CLASS, TUNES, USED, BuiltIn, ConfigError, NoBound, Not, Setting
from pybroker.config.topic_settings import TOPIC_SETTINGS
from pybroker.security.standard_authorizer import AuthorizerSettings
from pybroker_protocol.errors import ErrorCode
from tests.config.config_support import Configs

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values(), *CLIENT_METRICS_SETTINGS.values()]
# Held by a rule between settings, not by their validator: a value that the rule refuses.
BY_RULE = {"process.roles": "controller", "remote.storage.enable": "true"}
OAUTH = "org.apache.kafka.common.security.oauthbearer."
NO_CLASS_OF_OURS = "com.example.Mine"


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_each_row_says_whether_it_is_read_checked_or_only_tunes(setting: Setting) -> None:
    assert bin(setting.flags & (USED | CHECKED | TUNES)).count("1") == 1


@pytest.mark.parametrize(
    "setting", [each for each in ALL if each.flags & CHECKED and each.name not in BY_RULE], ids=lambda each: each.name
)
def test_what_is_checked_has_a_validator_that_lets_the_default_alone_through(setting: Setting) -> None:
    refused = {BuiltIn: NO_CLASS_OF_OURS, Not: "true", NoBound: "1"}
    assert isinstance(setting.valid, BuiltIn | Not | NoBound)
    setting.valid.check(setting.name, setting.default)
    with pytest.raises(ConfigError, match=setting.name):
        setting.parse(refused[type(setting.valid)])


def test_what_rules_check_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles"):
        BrokerConfig.load(settings=[("process.roles", BY_RULE["process.roles"])])
    assert "Tiered Storage" in (validate_topic_configs({"remote.storage.enable": "true"}) or "")


def names_code(setting: Setting) -> bool:
    """By its type, or by its name."""
    return setting.type == CLASS or setting.name.endswith((".class", ".class.name", ".reporters", ".providers"))


@pytest.mark.parametrize("setting", [each for each in ALL if names_code(each)], ids=lambda setting: setting.name)
def test_a_class_that_cannot_be_had_ends_the_start(setting: Setting) -> None:
    # Kafka loads these only where tiered storage is on, which is refused.
    if setting.name.startswith("remote.log."):
        assert setting.flags == TUNES
        return
    with pytest.raises(ConfigError, match=setting.name):
        AuthorizerSettings.of_config(BrokerConfig.load(settings=[(setting.name, NO_CLASS_OF_OURS)]))


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.x.plain.sasl.server.callback.handler.class",
        "listener.name.plaintext.principal.builder.class",
        "listener.name.x.ssl.engine.factory.class",
        "listener.name.x.oauthbearer.sasl.login.callback.handler.class",
    ],
)
def test_a_class_of_one_listener_ends_the_start_too(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.") + ": pybroker loads no Java classes"):
        BrokerConfig.load(settings=[(name, NO_CLASS_OF_OURS)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.server.callback.handler.class", f"{OAUTH}OAuthBearerValidatorCallbackHandler"),
        ("sasl.login.callback.handler.class", f"{OAUTH}OAuthBearerLoginCallbackHandler"),
        ("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        ("ssl.engine.factory.class", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"),
        ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("metric.reporters", ""),
        ("ssl.keymanager.algorithm", "PKIX"),
    ],
)  # fmt: skip
def test_kafkas_own_classes_are_what_is_here_anyhow(name: str, value: str) -> None:
    BrokerConfig.load(settings=[(name, value)])


@pytest.mark.parametrize(
    "name", ["metric.reporters", "principal.builder.class", "listener.name.plaintext.principal.builder.class"]
)
def test_a_class_that_cannot_be_had_is_refused_while_the_broker_runs(name: str) -> None:
    configs = Configs()
    outcome = configs.alter(BROKER, "1", AlterConfigOp(name, NO_CLASS_OF_OURS))
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert f"{name}: pybroker loads no Java classes" in (outcome.error_message or "")


def told(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    lines = [record.getMessage() for record in caplog.records if record.name == "pybroker.config"]
    return {line.split(" ")[0]: line.partition(": ")[2] for line in lines}


def start(caplog: pytest.LogCaptureFixture, tmp_path: Any, text: str) -> dict[str, str]:
    file = tmp_path / "server.properties"
    file.write_text(text)
    file.chmod(0o600)
    with caplog.at_level(logging.INFO, "pybroker.config"):
        BrokerConfig.load(config_file=str(file))
    return told(caplog)


def test_the_start_says_in_a_line_each_what_has_no_effect(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    tunes = "pybroker does without what it tunes"
    assert start(
        caplog,
        tmp_path,
        "num.io.threads=3\nnum.partitions=2\nconfluent.metrics=hunter2\nsuper.users=User:a\nprocess.roles=broker\n"
        "sasl.oauthbearer.client.credentials.client.secret=hunter2\nallow.everyone.if.no.acl.found=false\n"
        "listener.name.typo.ssl.client.auth=required\nlistener.name.plaintext.max.connections=5\n"
        "config.providers.env.class=com.Any\n",
    ) == {
        "num.io.threads": tunes,
        "confluent.metrics": "it is no setting that is known here",
        "super.users": "authorizer.class.name is not set",
        "allow.everyone.if.no.acl.found": "authorizer.class.name is not set",
        "sasl.oauthbearer.client.credentials.client.secret": tunes,
        "listener.name.typo.ssl.client.auth": "there is no listener typo",
        "config.providers.env.class": "config.providers does not name env",
    }
    assert "hunter2" not in caplog.text


def test_a_setting_that_is_not_read_for_one_listener_is_told_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    of_all = ("max.connections.per.ip", "auto.create.topics.enable", "authorizer.class.name", "log.retention.ms")
    values = {"auto.create.topics.enable": "false", "authorizer.class.name": "com.example.Any"}
    lines = [f"listener.name.plaintext.{name}={values.get(name, '5')}\n" for name in of_all]
    of_listeners = ("plain.ssl.client.auth=required", "plain.sasl.enabled.mechanisms=PLAIN", "plain.max.connections=5")
    lines += [f"listener.name.plaintext.{line}\n" for line in of_listeners]
    lines += ["listener.name.plaintext.max.connection.creation.rate=5\n"]
    assert start(caplog, tmp_path, "".join(lines)) == {
        **{f"listener.name.plaintext.{name}": f"{name} holds for all listeners alone" for name in of_all},
        **{
            f"listener.name.plaintext.plain.{name}": f"{name} is no setting of a SASL mechanism"
            for name in ("ssl.client.auth", "sasl.enabled.mechanisms", "max.connections")
        },
    }


def test_a_setting_of_a_protocol_or_mechanism_that_a_listener_has_not_is_told_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=hunter2;"
    lines = [
        "listeners=IN://127.0.0.1:9092,OUT://127.0.0.1:9093,TLS://127.0.0.1:9094",
        "listener.security.protocol.map=IN:PLAINTEXT, OUT:SASL_PLAINTEXT,TLS:SSL",
        "inter.broker.listener.name=IN",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "listener.name.out.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.out.plain.sasl.jaas.config={jaas}",
        "listener.name.out.plain.connections.max.reauth.ms=5",
        "listener.name.tls.ssl.client.auth=none",
        f"listener.name.out.gssapi.sasl.jaas.config={jaas}",
        "listener.name.out.scram-sha-256.connections.max.reauth.ms=5",
        f"listener.name.in.plain.sasl.jaas.config={jaas}",
        "listener.name.tls.connections.max.reauth.ms=5",
        "listener.name.in.ssl.client.auth=required",
        "listener.name.out.ssl.client.auth=required",
    ]
    assert start(caplog, tmp_path, "".join(f"{line}\n" for line in lines)) == {
        "listener.name.out.gssapi.sasl.jaas.config": "listener out does not enable GSSAPI",
        "listener.name.out.scram-sha-256.connections.max.reauth.ms": "listener out does not enable SCRAM-SHA-256",
        "listener.name.in.plain.sasl.jaas.config": "listener in asks for no login by SASL",
        "listener.name.tls.connections.max.reauth.ms": "listener tls asks for no login by SASL",
        "listener.name.in.ssl.client.auth": "listener in speaks no TLS",
        "listener.name.out.ssl.client.auth": "listener out speaks no TLS",
    }
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("resource", ["", "1"])
@pytest.mark.parametrize("name", ["config.providers", "config.providers.env.class", "config.providers.env.param.x"])
def test_config_providers_are_refused_while_the_broker_runs(name: str, resource: str) -> None:
    outcome = Configs().alter(BROKER, resource, AlterConfigOp(name, "env"))
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert outcome.error_message == f"Cannot update these configs dynamically: [{name}]"


def test_where_all_has_an_effect_nothing_is_said(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert start(caplog, tmp_path, f"num.partitions=2\nsuper.users=User:a\nauthorizer.class.name={authorizer}\n") == {}


def test_an_alteration_without_effect_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    configs = Configs()
    with caplog.at_level(logging.INFO, "pybroker.config"):
        configs.alter(BROKER, "1", AlterConfigOp("background.threads", "9"), AlterConfigOp("log.retention.ms", "9"))
        configs.alter(BROKER, "1", AlterConfigOp("my.plugin", "hunter2"))
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["background.threads", "my.plugin"]
    assert "hunter2" not in caplog.text
