"""Topics behind a login: the options of security reach the reader, the sink and who shows the lag.  Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.testing import Broker
from tests.pipeline.topics.tables import Tables

pytestmark = pytest.mark.jvm(needs="spark")

SETTINGS: dict[str, str | int] = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_job="job-secret" user_other="x";'
    ),
    "connection.failed.authentication.delay.ms": 20,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Nobody else may do anything: what a job does with another user's rights, or with none, fails.
    "super.users": "User:job",
}

REFUSED = r"the cluster refuses the login: .*Invalid username or password"


def login(user: str = "job", password: str = "job-secret") -> dict[str, str]:
    """Options as Spark's connector takes them."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        yield broker


def test_a_job_logs_in_to_read_to_write_and_to_show_its_lag(spark: Any, secured: Broker, tmp_path: Path) -> None:
    from pybroker.pipeline import BrokerTopics, group_offsets, start

    secured.create_topic("in", partitions=2)
    secured.create_topic("out")
    tables = Tables(spark, secured.bootstrap, tmp_path)
    tables.save(spark.createDataFrame([("a",), ("b",)], "value string"), topic="in", **login())

    topics = BrokerTopics(spark, secured.bootstrap, login())
    (query,) = start(
        lambda topics: {"out": topics.stream("in").selectExpr("upper(string(value)) value")},
        topics,
        tmp_path / "checkpoints",
        until_done=True,
        group="readers",
    )
    assert query.awaitTermination(100)
    assert sorted(row.value for row in topics.batch("out").collect()) == [b"A", b"B"]
    # By Spark's own connector, with the same options.
    assert tables.read("kafka", "out", **login()).count() == 2

    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    settings = {name.removeprefix("kafka."): value for name, value in topics.connection.items()}
    offsets = group_offsets("readers-out", ["in"], settings)
    assert tables.read("pybroker", "in", startingOffsets=offsets, **login()).count() == 0


def test_a_login_that_is_refused_ends_a_read_and_a_write_at_once(spark: Any, secured: Broker, tmp_path: Path) -> None:
    """librdkafka would try for a minute, and then tell that nobody answers."""
    tables = Tables(spark, secured.bootstrap, tmp_path)
    with pytest.raises(Exception, match=REFUSED):
        tables.read("pybroker", "in", **login(password="wrong")).count()
    rows = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(Exception, match=REFUSED):
        tables.save(rows, topic="in", **login(password="wrong"))


def test_a_topic_that_a_user_may_not_see_is_not_there(spark: Any, secured: Broker, tmp_path: Path) -> None:
    secured.create_topic("secret")
    tables = Tables(spark, secured.bootstrap, tmp_path)
    with pytest.raises(Exception, match="no such topic: secret"):
        tables.read("pybroker", "secret", **login("other", "x")).count()
