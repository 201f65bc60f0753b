"""The topics of a supervisor on a broker, and who of several supervisors works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.state.state_records import (
    State,
    Status,
    Target,
    config_record,
    offset_record,
    run_record,
    status_records,
    target_record,
)
from pybroker.connectors.state.state_topics import Replaced, StateTopics, create_topics
from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.connectors.supervision.membership import GroupRefused, Idle, Membership, Waits
from pybroker.pipeline.topics.librdkafka_settings import client_settings
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def settings(broker: Broker, request: pytest.FixtureRequest) -> WorkerSettings:
    made = settings_of(broker, request.node.name.replace("[", "-").replace("]", "")[:60])
    create_topics(made)
    return made


def settings_of(broker: Broker, name: str) -> WorkerSettings:
    return WorkerSettings(
        {"bootstrap.servers": broker.bootstrap}, name, f"{name}-configs", f"{name}-offsets", f"{name}-status"
    )


def test_topics_are_made_once(settings: WorkerSettings) -> None:
    create_topics(settings)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("which", ["config_topic", "offset_topic", "status_topic"])
def test_a_topic_that_would_lose_records_is_refused(broker: Broker, which: str, policy: str) -> None:
    settings = settings_of(broker, f"{which}-{policy.replace(',', '-')}")
    topic = getattr(settings, which)
    broker.create_topic(topic, partitions=1, configs={"cleanup.policy": policy})
    with pytest.raises(ValueError, match=f"{topic} must have cleanup.policy=compact, and has cleanup.policy={policy}"):
        create_topics(settings)


def test_a_topic_of_configurations_has_one_partition(broker: Broker) -> None:
    settings = settings_of(broker, "several")
    broker.create_topic(settings.config_topic, partitions=2, configs={"cleanup.policy": "compact"})
    with pytest.raises(ValueError, match="must have one partition, and has 2"):
        create_topics(settings)


class Guarded:
    """A broker with ACLs, and a supervisor whose user may do some things."""

    def __init__(self, broker: Broker) -> None:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username={} password=a;"
        self.settings, admin = (
            WorkerSettings({"bootstrap.servers": broker.bootstrap, **login, "sasl.jaas.config": plain.format(user)})
            for user in ("alice", "admin")
        )
        create_topics(admin)
        self._admin = AdminClient({**client_settings(admin.client)})
        for topic in (admin.config_topic, admin.offset_topic, admin.status_topic):
            self.allow(ResourceType.TOPIC, topic, AclOperation.READ)

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        wanted = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for future in self._admin.create_acls([wanted]).values():
            future.result(PATIENCE_S)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a" user_alice="a";'
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
    }
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        yield Guarded(broker)


def test_a_policy_that_may_not_be_seen_is_a_warning(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    create_topics(guarded.settings)
    for topic in ("connect-configs", "connect-offsets", "connect-status"):
        assert f"whether {topic} has cleanup.policy=compact is not known" in caplog.text


def test_a_group_that_refuses_a_supervisor_is_told_with_the_reason_until_it_does_not(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Idle | None] = []
    member = Membership(guarded.settings, heard.append)
    member.start()
    try:
        wait_until(lambda: heard, "the refusal")
        assert isinstance(heard[0], GroupRefused)
        assert "authoriz" in heard[0].reason.lower()
        assert "the group of supervisors: " in caplog.text
        guarded.allow(ResourceType.GROUP, guarded.settings.group, AclOperation.READ)
        wait_until(lambda: heard[-1] is None, "that it works")
        assert [each for each in heard if each is not None] == [heard[0]]
    finally:
        member.close()


def test_what_was_written_is_known_to_the_next_supervisor(settings: WorkerSettings) -> None:
    first, second = StateTopics(settings), StateTopics(settings)
    first.take_over()
    first.write_configs([config_record("a", {"x": "1"}), target_record("a", Target.PAUSED), run_record("a", 2)])
    first.write_configs([config_record("b", {"x": "2"}), config_record("b", None)])
    first.write_statuses(status_records("a", Status(State.RUNNING, None, "w")))
    first.write_offsets([offset_record("a", {"table": "t"}, {"incrementing": 7})])
    second.take_over()
    assert second.known == first.known
    assert second.known.configs == {"a": {"x": "1"}}


def test_a_supervisor_that_was_replaced_writes_nothing(settings: WorkerSettings) -> None:
    first, second = StateTopics(settings), StateTopics(settings)
    first.take_over()
    first.write_configs([config_record("a", {"x": "1"})])
    second.take_over()
    second.write_configs([config_record("a", {"x": "2"})])
    for _ in range(2):
        with pytest.raises(Replaced):
            first.write_configs([config_record("a", {"x": "3"})])
    assert first.known.configs == {"a": {"x": "1"}}
    second.take_over()
    assert second.known.configs == {"a": {"x": "2"}}


def test_one_of_two_supervisors_works_and_the_other_knows_it_and_takes_over(settings: WorkerSettings) -> None:
    heard: list[tuple[str, Idle | None]] = []
    first = Membership(settings, lambda waits: heard.append(("first", waits)))
    second = Membership(settings, lambda waits: heard.append(("second", waits)))
    first.start()
    try:
        wait_until(lambda: heard == [("first", None)], "the first supervisor works")
        second.start()
        try:
            wait_until(lambda: len(heard) > 1, "the second supervisor knows that it waits")
            assert heard[1:] == [("second", Waits.ANOTHER_WORKS)]
            first.close()
            wait_until(lambda: ("second", None) in heard, "the second supervisor works")
        finally:
            second.close()
    finally:
        first.close()
