"""``pybroker sql`` against a broker: questions, outputs, and that nothing of them is left on the cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S

from pybroker.connectors.supervision.membership import Waits
from pybroker.testing import Cluster
from tests.cli.command import CommandLine
from tests.connectors.rest_world import World, served


@pytest.fixture
def orders(cli: CommandLine, topic: str) -> str:
    """A topic of three partitions with twelve orders."""
    cli.ok("topics", "create", topic, "--partitions", "3")
    lines = "".join(
        f'k{number}\t{{"id": {number}, "amount": {number}.5, "who": "{"ab"[number % 2]}"}}\n' for number in range(12)
    )
    cli.ok("produce", topic, "-K", "\t", stdin=lines.encode())
    return topic


def asked(cli: CommandLine, text: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.lines("sql", "--json", *options, "-e", text)]


def test_question_is_answered_in_a_table_json_and_csv(cli: CommandLine, orders: str) -> None:
    question = f"SELECT who, count(*) AS n, sum(amount) AS total FROM {orders} GROUP BY who ORDER BY who"
    assert cli.lines("sql", "-e", question) == ["who\tn\ttotal", "a\t6\t33.0", "b\t6\t39.0"]
    assert asked(cli, question)[0] == {"who": "a", "n": 6, "total": 33.0}
    assert cli.lines("sql", "--csv", "-e", question) == ["who,n,total", "a,6,33.0", "b,6,39.0"]


def test_statements_come_from_a_file_and_from_standard_input(cli: CommandLine, orders: str, tmp_path: Path) -> None:
    text = f"CREATE TEMP STREAM o (id BIGINT) WITH (topic='{orders}', format='json');\nSELECT max(id) AS id FROM o;\n"
    file = tmp_path / "question.sql"
    file.write_text(text, encoding="utf-8-sig")  # as editors of Windows write it
    assert cli.lines("sql", "--json", "-f", str(file)) == ['{"id":11}']
    assert cli.lines("sql", "--json", stdin=text.encode()) == ['{"id":11}']


def test_values_are_written_as_the_records_that_questions_read(cli: CommandLine, orders: str) -> None:
    columns = f"CREATE TEMP STREAM o (who VARCHAR KEY, id BIGINT, amount DOUBLE) WITH (topic='{orders}', format='json')"
    written = cli.run("sql", "-e", f"{columns}; INSERT INTO o VALUES ('eve', 100, 1.5), ('ada', 101, 2)")
    assert written.returncode == 0
    assert f"2 records written to {orders}" in written.stderr.decode()
    found = asked(cli, f"SELECT _key, id, amount FROM {orders} WHERE id >= 100 ORDER BY id")
    assert found == [{"_key": "eve", "id": 100, "amount": 1.5}, {"_key": "ada", "id": 101, "amount": 2.0}]
    refused = cli.run("sql", "-e", f"INSERT INTO {orders} (id) VALUES ('x')")
    assert refused.returncode == 1


def test_question_imports_no_pandas(cli: CommandLine, orders: str) -> None:
    """PyArrow would, with its first array: a third of the time to the first row."""
    command = [sys.executable, "-X", "importtime", "-m", "pybroker", "sql", "-e", f"SELECT * FROM {orders} LIMIT 1"]
    done = subprocess.run(command, env=cli.environment(), capture_output=True, check=True, timeout=PATIENCE_S)
    imported = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"pyarrow" in imported
    # Its own line is there for the attempt, too.
    assert b"pandas._libs" not in imported


def test_nothing_is_committed_and_no_group_is_left(cli: CommandLine, orders: str) -> None:
    asked(cli, f"SELECT count(*) FROM {orders}")
    asked(cli, f"SET 'auto.offset.reset' = 'earliest'; SELECT id FROM {orders} EMIT CHANGES LIMIT 1")
    assert cli.json("groups", "list") == []


def test_key_partition_offset_time_and_headers_are_columns(cli: CommandLine, pybroker: Any, topic: str) -> None:
    cli.ok("topics", "create", topic)
    producer = Producer({"bootstrap.servers": pybroker.bootstrap})
    producer.produce(topic, b'{"n": 1}', b"k", timestamp=1_769_860_800_000, headers=[("h", b"x"), ("h", None)])
    assert producer.flush(PATIENCE_S) == 0
    (row,) = asked(cli, f"SELECT n, _key, _partition, _offset, _timestamp, _headers FROM {topic}")
    assert row == {
        "n": 1,
        "_key": "k",
        "_partition": 0,
        "_offset": 0,
        "_timestamp": "2026-01-31 12:00:00.000",
        "_headers": [{"key": "h", "value": "x"}, {"key": "h", "value": None}],
    }


def test_records_of_aborted_and_open_transactions_are_not_there(cli: CommandLine, pybroker: Any, topic: str) -> None:
    cli.ok("topics", "create", topic)
    for number, ending in enumerate(("commit_transaction", "abort_transaction")):
        producer = Producer({"bootstrap.servers": pybroker.bootstrap, "transactional.id": f"{topic}-{number}"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"n": number}).encode())
        getattr(producer, ending)()
    assert asked(cli, f"SELECT n FROM {topic}") == [{"n": 0}]
    open_one = Producer({"bootstrap.servers": pybroker.bootstrap, "transactional.id": f"{topic}-open"})
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce(topic, b'{"n": 7}')
    assert open_one.flush(PATIENCE_S) == 0
    assert asked(cli, f"SELECT count(*) AS n FROM {topic}") == [{"n": 1}]
    open_one.abort_transaction()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_read(cli: CommandLine, topic: str, codec: str) -> None:
    cli.ok("topics", "create", topic)
    cli.ok("produce", topic, "--compression", codec, stdin=b"".join(b'{"n": %d}\n' % n for n in range(5_000)))
    assert asked(cli, f"SELECT sum(n) AS n FROM {topic}") == [{"n": 12_497_500}]


def test_explain_and_show_and_describe(cli: CommandLine, orders: str) -> None:
    rows = asked(cli, f"EXPLAIN SELECT id FROM {orders} WHERE _partition IN (0, 2) AND id > 3")
    assert [row["partition"] for row in rows] == [0, 2]
    assert {row["pushed"] for row in rows} == {"_partition in [0, 2]"}
    assert {"topic": orders, "partitions": 3} in asked(cli, "SHOW TOPICS")
    assert asked(cli, f"DESCRIBE {orders}")[1] == {"column": "amount", "type": "DOUBLE", "from": "inferred, as json"}


def test_failures_are_said_on_standard_error_with_their_codes(cli: CommandLine, orders: str) -> None:
    failed = cli.run("sql", "-e", f"SELECT amnt FROM {orders}")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert b"there is no column amnt; amount?" in failed.stderr
    assert b"^^^^" in failed.stderr
    wrong = cli.run("sql", "-e", "SELEC 1")
    assert wrong.returncode == 1
    assert b"no statement begins with SELEC; SELECT?" in wrong.stderr
    assert cli.run("sql", "-e", "SELECT 1", "-f", "x").returncode == 2
    assert cli.run("sql", "--misfits", "perhaps").returncode == 2
    bare = cli.run("sql", "SELECT 1")
    assert bare.returncode == 2
    assert b"a statement is given by --execute (-e), as -e 'SELECT 1'" in bare.stderr
    missing = cli.run("sql", "-f", "/nowhere.sql")
    assert missing.stderr == b"pybroker: --file /nowhere.sql: no such file\n"


def test_syntax_error_is_told_where_no_broker_is() -> None:
    failed = CommandLine("127.0.0.1:1").run("sql", "-e", "SELECT a FROM")
    assert b"syntax error" in failed.stderr
    failed = CommandLine("127.0.0.1:1").run("sql", "-e", "COPY t TO 'x.csv' (HEADER) 1")
    assert failed.stderr.startswith(b"pybroker: line 1, column 1: ")


def test_misfits_are_counted_or_stop(cli: CommandLine, orders: str) -> None:
    cli.ok("produce", orders, "-p", "0", stdin=b"nonsense\n")
    question = f"SELECT count(id) AS n FROM {orders}"
    skipped = cli.run("sql", "--json", "-e", question)
    assert skipped.stdout == b'{"n":12}\n'
    assert b"1 record does not fit and was left out; the first: " in skipped.stderr
    stopped = cli.run("sql", "--misfits", "stop", "-e", question)
    assert stopped.returncode == 1
    assert b"a record does not fit: " in stopped.stderr


def test_topic_that_is_deleted_under_a_tail_ends_it_with_a_sentence(cli: CommandLine, orders: str) -> None:
    tail = cli.start("sql", "-e", f"SET 'auto.offset.reset'='earliest'; SELECT id FROM {orders} EMIT CHANGES")
    assert tail.stdout is not None
    while b"11" not in tail.stdout.readline():
        pass
    cli.ok("topics", "delete", orders)
    _, told = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 1
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in told


def test_rows_arrive_until_ctrl_c(cli: CommandLine, orders: str) -> None:
    tail = cli.start("sql", "--json", "-e", f"SET 'auto.offset.reset'='earliest'; SELECT id FROM {orders} EMIT CHANGES")
    assert tail.stdout is not None
    seen = {json.loads(tail.stdout.readline())["id"] for _ in range(12)}
    assert seen == set(range(12))
    cli.ok("produce", orders, stdin=b'{"id": 99}\n')
    assert json.loads(tail.stdout.readline()) == {"id": 99}
    tail.send_signal(signal.SIGINT)
    tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 130


def test_rows_go_on_when_the_leader_dies(topic: str) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic(topic, partitions=1, replication_factor=3)
        cli = CommandLine(cluster.bootstrap)
        from_begin = "SET 'auto.offset.reset'='earliest'"
        tail = cli.start("sql", "--json", "-e", from_begin, "-e", f"SELECT value FROM {topic} EMIT CHANGES LIMIT 2")
        assert tail.stdout is not None
        cli.ok("produce", topic, stdin=b"before\n")
        first = json.loads(tail.stdout.readline())
        leader = cluster.leader(topic)
        assert leader is not None
        cluster.kill(leader)
        cli.ok("produce", topic, stdin=b"behind\n")
        assert [first, json.loads(tail.stdout.readline())] == [{"value": "before"}, {"value": "behind"}]
        tail.communicate(timeout=PATIENCE_S)
        assert tail.returncode == 0


def test_query_without_a_supervisor_is_one_line(cli: CommandLine) -> None:
    done = cli.run("sql", "--url", "http://127.0.0.1:1", "-e", "SHOW QUERIES")
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("pybroker: standing queries need a supervisor, and http://127.0.0.1:1 does not answer")
    assert line.endswith("`pybroker connect serve` is one, and --url names it")


def test_supervisor_of_another_cluster_is_refused(cli: CommandLine) -> None:
    with served(World()) as url:
        done = cli.run("sql", "--url", url, "-e", "SHOW QUERIES")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "it works for another cluster" in done.stderr.decode()


def test_supervisor_that_does_not_work_yet_is_waited_for(cli: CommandLine) -> None:
    world = World(cluster_id=cluster_id(cli))
    world.refusals = 2
    with served(world) as url:
        done = cli.run("sql", "--json", "--url", url, "-e", "SHOW QUERIES")
    assert (done.returncode, done.stdout) == (0, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("no supervisor of this name works yet at ")


def test_one_ctrl_c_ends_the_wait_for_a_supervisor(cli: CommandLine) -> None:
    world = World(cluster_id=cluster_id(cli))
    world.waits = Waits.NONE_WORKS_YET
    with served(world) as url, cli.start("sql", "--url", url, "-e", "SHOW QUERIES") as waits:
        assert waits.stderr is not None
        assert b"it is waited for" in waits.stderr.readline()
        waits.send_signal(signal.SIGINT)
        waits.communicate(timeout=PATIENCE_S)
    assert waits.returncode == 130


def cluster_id(cli: CommandLine) -> str:
    admin = AdminClient({"bootstrap.servers": cli.bootstrap})
    found: str = admin.describe_cluster().result(PATIENCE_S).cluster_id
    return found


def test_declaration_is_seen_by_another_command(cli: CommandLine, orders: str) -> None:
    cli.ok("sql", "-e", f"CREATE STREAM {orders}_s (id BIGINT) WITH (topic='{orders}', format='json')")
    assert asked(cli, f"SELECT max(id) AS id FROM {orders}_s WHERE id < 12") == [{"id": 11}]
    cli.ok("sql", "-e", f"DROP STREAM {orders}_s")
    assert cli.run("sql", "-e", f"SELECT * FROM {orders}_s").returncode == 1


def test_topic_that_is_there_has_to_be_as_it_is_declared(cli: CommandLine, topic: str) -> None:
    declared = f"CREATE TEMP STREAM s (a INT) WITH (topic='{topic}', format='json', partitions=1, {{}})"
    cli.ok("sql", "-e", declared.format("replicas=1, retention_ms=60000"))
    cli.ok("sql", "-e", declared.format("replicas=1, retention_ms=60000"))
    for wanted, told in (("replicas=2", "has 1 replica, not 2"), ("retention_ms=1", "has retention.ms=60000, not 1")):
        refused = cli.run("sql", "-e", declared.format(wanted))
        assert (
            refused.stderr.decode()
            == f"pybroker: the topic {topic} {told}; `pybroker topics` changes topics that are there\n"
        )


def test_each_execute_is_a_text_of_its_own(cli: CommandLine, orders: str) -> None:
    texts = [
        f"SELECT max(id) AS id FROM {orders} -- all",
        f"SELECT min(id) AS id FROM {orders}; EXIT",
        "SELECT 3 AS id",
    ]
    assert cli.lines("sql", "--json", *(part for text in texts for part in ("-e", text))) == ['{"id":11}', '{"id":0}']
