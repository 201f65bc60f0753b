"""What Kafka's own tool shows of a job's progress and of its marks, on any broker."""

from pathlib import Path
from typing import Any

from harness.apache_kafka import CONSUMER_GROUP_COMMAND, run_kafka_tool
from harness.waiting import wait_until

from tests.pipeline.topics.tables import Tables


def check_lag_by_kafkas_tool(tables: Tables, checkpoints_dir: Path) -> None:
    """A job's query is as far behind as the tool says, and what it notes of its writes is not behind."""
    from pybroker.pipeline import BrokerTopics, start

    orders, loud = tables.topic(), tables.topic()

    def job(topics: Any) -> Any:
        return {loud: topics.stream(orders).selectExpr("upper(string(value)) as value")}

    def lag(group: str, topic: str) -> dict[str, list[str]]:
        """By partition: where the group stands, where the log ends, and what lies between."""
        shown = run_kafka_tool(
            CONSUMER_GROUP_COMMAND, "--bootstrap-server", tables.bootstrap, "--describe", "--group", group
        ).stdout
        lines = [line.split() for line in shown.splitlines() if topic in line]
        return {line[2]: line[3:6] for line in lines}

    tables.fill(orders, [b"tea", b"milk", b"rum"])
    (query,) = start(job, BrokerTopics(tables.spark, tables.bootstrap), checkpoints_dir, until_done=True, group="shop")
    assert query.awaitTermination(100)
    tables.fill(orders, [b"gin", b"ale", b"wine"])
    behind = {"0": ["2", "4", "2"], "1": ["1", "2", "1"]}
    wait_until(lambda: lag(f"shop-{loud}", orders) == behind, "the lag of both partitions", 60)
    marks = lag(f"pybroker-spark-{query.id}-marks", "__pybroker_spark")
    assert set(map(tuple, marks.values())) == {("0", "0", "0")}
