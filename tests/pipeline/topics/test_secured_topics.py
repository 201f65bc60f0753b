"""Topics behind TLS and logins: the options of security reach whatever talks to the cluster.  Starts a JVM.

The broker lets nobody in by another way, so that a client to which they get lost does not come back.  Needs what
`scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pybroker.testing import Broker
from pybroker.testing.security import Security
from tests.pipeline.topics.tables import Tables
from tests.pipeline.topics.test_epochs import Sink
from tests.pipeline.topics.test_lost_topics import Query

pytestmark = pytest.mark.jvm(needs="spark")

# The password has what a JAAS line has to quote.
USERS = {"admin": "admin-secret", "job": 's=e;c"r\\et', "other": "other-secret"}
SETTINGS: dict[str, str | int] = {
    "connection.failed.authentication.delay.ms": 20,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Nobody else may do anything that is not allowed: what a job does by another user's rights, or by none, fails.
    "super.users": "User:admin",
}
MARKS = [("TOPIC", "__pybroker_spark", "LITERAL", operation) for operation in ("READ", "CREATE", "ALTER")]
REFUSED = r"the cluster refuses the login: .*(Invalid username or password|invalid credentials)"


class Way(NamedTuple):
    """A broker, and how its clients get in."""

    broker: Broker
    mechanism: str | None

    def options(self, user: str = "admin") -> dict[str, str]:
        """As Spark's connector takes them, without the address."""
        java = self.broker.client_settings("java", user=user, mechanism=self.mechanism)
        return {f"kafka.{name}": value for name, value in java.items() if name != "bootstrap.servers"}

    def client(self, user: str = "admin") -> dict[str, Any]:
        """As librdkafka takes them."""
        return self.broker.client_settings("confluent-kafka", user=user, mechanism=self.mechanism)

    def allow(self, user: str, *permissions: tuple[str, str, str, str]) -> None:
        """Each is a kind of resource, its name, how that is meant, and an operation."""
        from confluent_kafka import admin

        bindings = [
            admin.AclBinding(
                admin.ResourceType[kind],
                name,
                admin.ResourcePatternType[pattern],
                f"User:{user}",
                "*",
                admin.AclOperation[operation],
                admin.AclPermissionType.ALLOW,
            )
            for kind, name, pattern, operation in permissions
        ]
        client = admin.AdminClient(self.client())
        for made in client.create_acls(bindings).values():
            made.result(30)


WAYS = {
    "plain": (Security("SASL_PLAINTEXT", USERS), "PLAIN"),
    "scram over tls": (Security("SASL_SSL", USERS), "SCRAM-SHA-512"),
    "certificates": (Security("SSL", USERS, client_auth=True), None),
}


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    security, mechanism = WAYS[request.param]
    with Broker(SETTINGS, security=security) as broker:
        yield Way(broker, mechanism)


@pytest.fixture
def topics(way: Way) -> tuple[str, str]:
    """One to be read and one to be written."""
    names = f"in-{uuid4()}", f"out-{uuid4()}"
    for name in names:
        way.broker.create_topic(name, partitions=2)
    return names


def test_a_job_gets_in_with_the_permissions_of_the_page_and_no_more(
    spark: Any, way: Way, topics: tuple[str, str], tmp_path: Path
) -> None:
    """It reads, writes in both ways that there are, shows its lag, and goes by that; see docs/pipeline/security.md."""
    from confluent_kafka.admin import AdminClient

    from pybroker.pipeline import BrokerTopics, Output, group_offsets, start

    source, target = topics
    way.allow(
        "job",
        ("TOPIC", source, "LITERAL", "READ"),
        ("TOPIC", "out-", "PREFIXED", "WRITE"),
        ("TOPIC", "out-", "PREFIXED", "READ"),
        ("GROUP", "pybroker-spark-", "PREFIXED", "READ"),
        ("GROUP", "pybroker-spark-", "PREFIXED", "DELETE"),
        ("TRANSACTIONAL_ID", "pybroker-spark-", "PREFIXED", "WRITE"),
        ("GROUP", "shop-", "PREFIXED", "READ"),
        *MARKS,
    )
    counted, job = f"{target}-counted", way.options("job")
    way.broker.create_topic(counted)
    tables = Tables(spark, way.broker.bootstrap, tmp_path)
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    tables.save(rows, topic=source, **way.options())

    def loud_and_counted(read: Any) -> Any:
        values = read.stream(source).selectExpr("upper(string(value)) value")
        counts = values.groupBy("value").count().selectExpr("value key", "string(count) value")
        return {target: values, counted: Output(counts, "update")}

    at = BrokerTopics(spark, way.broker.bootstrap, job)
    for query in start(loud_and_counted, at, tmp_path / "checkpoints", until_done=True, group="shop"):
        assert query.awaitTermination(100)
    tables.save(rows, topic=target, **job)
    assert sorted(row.value for row in at.batch(target).collect()) == [b"A", b"B", b"a", b"b"]
    assert sorted(row.key for row in at.batch(counted).collect()) == [b"A", b"B"]
    # By Spark's own connector, with the same options.
    assert tables.read("kafka", target, **job).count() == 4

    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    for group in (f"shop-{target}", f"shop-{counted}"):
        offsets = group_offsets(group, [source], way.client("job"))
        assert tables.read("pybroker", source, startingOffsets=offsets, **job).count() == 0
    admin = AdminClient(way.client())
    groups = admin.list_consumer_groups().result(30).valid
    assert not [each.group_id for each in groups if each.group_id.startswith("pybroker-spark-batch")]


def test_a_micro_batch_is_finished_by_another_run(way: Way, topics: tuple[str, str]) -> None:
    """All that the sink asks of a cluster: claims, fences, marks, rows held back, the driver's decision."""
    from pybroker.pipeline.topics import epoch_transactions

    _, target = topics
    sink = Sink(way.broker.bootstrap, way.options(), topic=target)
    sink.attempt(0, ["b"], task=1, run="first")
    assert sink.run_epoch(0, [["a"], ["b"]], run="second", anew=True) == ["held", "found"]
    epoch_transactions.close_idle()
    query = Query(way.broker.bootstrap, target, **way.options(), **{"kafka.isolation.level": "read_committed"})
    assert query.next() == ["a", "b"]


def test_marks_are_found_without_their_claim_by_who_may_read_their_groups(way: Way, topics: tuple[str, str]) -> None:
    from pybroker.pipeline.topics import epoch_transactions

    _, target = topics
    way.allow(
        "job",
        ("TOPIC", target, "LITERAL", "WRITE"),
        ("TOPIC", target, "LITERAL", "READ"),
        ("GROUP", "query-", "PREFIXED", "READ"),
        ("TRANSACTIONAL_ID", "query-", "PREFIXED", "WRITE"),
        *MARKS,
    )
    sink = Sink(way.broker.bootstrap, way.options("job"), topic=target)
    sink.attempt(0, ["b"], task=1, run="first")
    sink.lose_claim()
    assert sink.run_epoch(0, [["a"], ["b"]], run="second", anew=True) == ["held", "found"]
    epoch_transactions.close_idle()


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ((), "this user may not read it: .*authorization failed"),
        (("READ",), "it has 0 of the 16 partitions that are wanted, which this user may not make: .*uthoriz"),
    ],
    ids=["may not read", "may not make"],
)
def test_what_the_topic_of_marks_takes_is_said_where_it_is_lacking(
    way: Way, operations: tuple[str, ...], why: str
) -> None:
    from pybroker.pipeline.topics.claims import claimed
    from pybroker.pipeline.topics.marks_topic import MarksRefused
    from pybroker.pipeline.topics.task_commits import QueryRun

    name = f"marks-{uuid4()}"
    way.allow(
        "other",
        ("GROUP", "marked-", "PREFIXED", "READ"),
        ("TRANSACTIONAL_ID", "marked-", "PREFIXED", "WRITE"),
        *(("TOPIC", name, "LITERAL", operation) for operation in operations),
    )
    sink = Sink(way.broker.bootstrap, way.options("other"))
    with pytest.raises(MarksRefused, match=f"are marked in the topic {name}, and {why}.*the option marksTopic names"):
        claimed(sink.client, QueryRun(f"marked-{uuid4()}", "q", "r", name), 0, 0)


def test_a_login_that_is_refused_ends_a_read_and_a_write_at_once(
    spark: Any, way: Way, topics: tuple[str, str], tmp_path: Path
) -> None:
    """librdkafka would try for a minute, and then tell that nobody answers."""
    from pybroker.pipeline import group_offsets

    if way.mechanism is None:
        pytest.skip("certificates are no login")
    tables = Tables(spark, way.broker.bootstrap, tmp_path)
    wrong = {name: value.replace("other-secret", "wrong") for name, value in way.options("other").items()}
    with pytest.raises(Exception, match=REFUSED):
        tables.read("pybroker", topics[0], **wrong).count()
    rows = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(Exception, match=REFUSED):
        tables.save(rows, topic=topics[0], **wrong)
    client = {name.removeprefix("kafka."): value for name, value in wrong.items()}
    with pytest.raises(Exception, match=REFUSED):
        group_offsets("shop", [topics[0]], {"bootstrap.servers": way.broker.bootstrap, **client})


def test_a_topic_that_a_user_may_not_see_is_not_there(way: Way, topics: tuple[str, str]) -> None:
    with pytest.raises(RuntimeError, match=f"no such topic: {topics[0]}"):
        Query(way.broker.bootstrap, topics[0], **way.options("other"))


@pytest.mark.parametrize("left_out", ["kafka.ssl.truststore.location", "kafka.ssl.keystore.location"])
def test_tls_that_fails_is_told_at_once(way: Way, topics: tuple[str, str], left_out: str) -> None:
    """The broker is not trusted, or does not know who it is that comes."""
    given = {name: value for name, value in way.options().items() if name != left_out}
    if given == way.options():
        pytest.skip("there is none")
    began_s = monotonic()
    with pytest.raises(RuntimeError, match=r"TLS with the cluster fails: .*certificate"):
        Query(way.broker.bootstrap, topics[0], **given)
    assert monotonic() - began_s < 30
