"""The authorizer: super users, the default, what it remembers, and its audit log."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import limits, rate_limited_log
from pybroker.config.broker import BrokerConfig
from pybroker.config.loggers import AUDIT_LOGGER
from pybroker.config.schema import ConfigError
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER, AuthorizerSettings, StandardAuthorizer

ANNA_READS = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:anna", "*", AclOperation.READ, Permission.ALLOW)
READ, TOPIC = AclOperation.READ, Resource.TOPIC


def request_of(principal: str, host: str = "/10.0.0.1", *, is_brokers: bool = False) -> Any:
    return SimpleNamespace(principal=principal, client_host=host, api_key=1, is_brokers=is_brokers)


def settings_of(users: str = "", default: str = "", name: str = STANDARD_AUTHORIZER) -> AuthorizerSettings:
    static = {
        "authorizer.class.name": name,
        "super.users": users,
        "allow.everyone.if.no.acl.found": default,
    }
    settings = AuthorizerSettings.of_config(BrokerConfig(static))
    assert settings is not None
    return settings


def authorizer_of(*acls: Acl, users: str = "", default: str = "") -> StandardAuthorizer:
    authorizer = StandardAuthorizer(settings_of(users, default), VirtualWorld().timers)
    by_id = {acl.acl_id(): acl for acl in acls}
    authorizer.on_acls(by_id, list(by_id))
    return authorizer


def test_without_acls_nobody_may_do_anything_but_super_users() -> None:
    authorizer = authorizer_of(users=" User:root ;;User:CN=a;")
    assert authorizer.allows(request_of("User:root"), READ, TOPIC, "t")
    assert authorizer.allows(request_of("User:CN=a"), READ, TOPIC, "t")
    assert authorizer.allows_by_resource_type(request_of("User:root"), READ, TOPIC)
    assert not authorizer.allows(request_of("User:ROOT"), READ, TOPIC, "t")
    assert not authorizer.allows_by_resource_type(request_of("User:anna"), READ, TOPIC)


def test_broker_of_the_cluster_may_do_everything() -> None:
    authorizer = authorizer_of()
    broker = request_of("User:ANONYMOUS", is_brokers=True)
    assert authorizer.allows(broker, AclOperation.CLUSTER_ACTION, Resource.CLUSTER, "kafka-cluster")
    assert authorizer.allows_by_resource_type(broker, READ, TOPIC)
    assert not authorizer.allows(request_of("User:ANONYMOUS"), READ, TOPIC, "t")


def test_super_user_is_not_denied() -> None:
    denied = ANNA_READS._replace(permission_type=Permission.DENY)
    assert authorizer_of(denied, users="User:anna").allows(request_of("User:anna"), READ, TOPIC, "t")


def test_default_holds_where_no_acl_concerns_the_resource() -> None:
    authorizer = authorizer_of(ANNA_READS, default=" True ")
    assert authorizer.allows(request_of("User:bert"), READ, TOPIC, "other")
    assert not authorizer.allows(request_of("User:bert"), READ, TOPIC, "t")
    assert not authorizer_of(default="yes").allows(request_of("User:bert"), READ, TOPIC, "t")


def test_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"super\.users.*anna"):
        settings_of("User:root;anna")


def test_only_kafkas_standard_authorizer_is_known() -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        settings_of(name="org.example.Custom")
    assert AuthorizerSettings.of_config(BrokerConfig({"super.users": "User:root"})) is None


@pytest.mark.parametrize(
    ("told", "written"),
    [
        ("/127.0.0.1", "127.0.0.1"),
        ("/::1", "0:0:0:0:0:0:0:1"),
        ("/fe80::a%eth0", "fe80:0:0:0:0:0:0:a%eth0"),
        ("/::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_written_as_java_writes_them(told: str, written: str) -> None:
    authorizer = authorizer_of(ANNA_READS._replace(host=written))
    assert authorizer.allows(request_of("User:anna", told), READ, TOPIC, "t")
    assert not authorizer.allows(request_of("User:anna", "/10.9.9.9"), READ, TOPIC, "t")


def test_change_of_acls_holds_at_once() -> None:
    authorizer, anna = authorizer_of(), request_of("User:anna")
    acls = {ANNA_READS.acl_id(): ANNA_READS}
    assert not authorizer.allows(anna, READ, TOPIC, "t")
    authorizer.on_acls(acls, list(acls))
    assert authorizer.allows(anna, READ, TOPIC, "t")
    assert authorizer.allows_by_resource_type(anna, READ, TOPIC)
    authorizer.on_acls({}, list(acls))
    assert not authorizer.allows(anna, READ, TOPIC, "t")
    assert not authorizer.allows_by_resource_type(anna, READ, TOPIC)


def test_memory_of_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUTHORIZER_DECISIONS", 10)
    authorizer, anna = authorizer_of(ANNA_READS), request_of("User:anna")
    for number in range(100):
        assert not authorizer.allows(anna, READ, TOPIC, f"other-{number}")
        assert authorizer.allows(anna, READ, TOPIC, "t")
    assert len(authorizer._decisions) <= 10


def test_denials_are_told_as_kafka_tells_them(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(ANNA_READS._replace(permission_type=Permission.DENY))
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        authorizer.allows(request_of("User:anna"), READ, TOPIC, "t")
        authorizer.allows(request_of("User:bert"), READ, TOPIC, "other")
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:anna is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for "
        "request = Fetch with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, "
        "resourceName=t, patternType=LITERAL, principal=User:anna, host=*, operation=READ, permissionType=DENY])",
        "Principal = User:bert is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:other for "
        "request = Fetch with resourceRefCount = 1 based on rule DefaultDeny",
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_grants_are_told_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(ANNA_READS)
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        authorizer.allows(request_of("User:anna"), READ, TOPIC, "t")
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, AUDIT_LOGGER):
        authorizer.allows(request_of("User:anna"), READ, TOPIC, "t")
    (record,) = caplog.records
    assert record.getMessage().startswith("Principal = User:anna is Allowed operation = READ from host = 10.0.0.1")


def test_question_behind_which_no_refusal_stands_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        assert not authorizer_of().allows(request_of("User:anna"), READ, TOPIC, "t", log_if_denied=False)
    assert not caplog.records


def test_denials_at_will_are_counted_and_hide_nobody_elses(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of()
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for number in range(1_000):
            name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
            authorizer.allows(request_of("User:mallory"), READ, TOPIC, name)
        authorizer.allows(request_of("User:bert"), READ, TOPIC, "t")
        authorizer.close()
    lines = [record.getMessage() for record in caplog.records]
    told = [line for line in lines if line.startswith("Principal = User:mallory")]
    assert len(told) == rate_limited_log.FOLDED_LOG_KINDS_OF_ONE
    assert any(line.startswith("Principal = User:bert") for line in lines)
    count = 1_000 - len(told)
    assert f"… and {count} more of denials of User:mallory from 10.0.0.1 in the last 10 s: other reasons" in lines


def test_name_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        authorizer_of().allows(request_of("User:anna"), READ, TOPIC, "t\nPrincipal = User:root is Allowed\x1b[2J")
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert "t\\nPrincipal" in record.getMessage()


def test_names_without_end_fill_neither_the_log_nor_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of()
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        assert not authorizer.allows(request_of("User:" + "m" * 60_000), READ, TOPIC, "t")
        assert not authorizer.allows(request_of("User:anna"), READ, TOPIC, "t" * 30_000)
        authorizer.allows_by_resource_type(request_of("User:" + "m" * 60_000), READ, TOPIC)
        authorizer.close()
    assert len(caplog.records) == 2
    assert all(len(record.getMessage()) < 3_000 for record in caplog.records)
    assert "(60005 characters) is Denied" in caplog.text
    assert not authorizer._decisions
    assert not authorizer.allows(request_of("User:anna"), READ, TOPIC, "t")
    assert len(authorizer._decisions) == 1
