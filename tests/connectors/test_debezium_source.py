"""Changes of PostgreSQL by Debezium's engine: the topic replayed is the table, whatever dies meanwhile.

Starts a JVM, which is not Spark's; needs what `scripts/spark-setup` installs, and Debezium's jars.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until

from examples.tour.postgres import DATABASE, SUPERUSER
from pybroker.testing import Broker
from tests.connectors.supervisor_world import World, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Broker() as broker, World(broker, tmp_path_factory.mktemp("connect"), {"wal_level": "logical"}) as made:
        yield made


def start(world: World, table: str) -> None:
    """A table with 500 rows, and a connector of its own, which has taken its snapshot."""
    world.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
    world.sql(f"INSERT INTO {table} SELECT id, 'customer ' || id FROM generate_series(1, 500) id")
    world.put(table, **configuration(world, table))
    wait_until(lambda: replayed(world, table)[1] == {"r": 500}, f"the snapshot of {table}")


def configuration(world: World, table: str) -> dict[str, str]:
    """As it is pasted from Kafka Connect, with a transform of Debezium's own and one of Connect's."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(world.postgres.port),
        "database.dbname": DATABASE,
        "database.user": SUPERUSER,
        "database.password": f"${{file:{world.directory / 'secret.properties'}:password}}",
        "plugin.name": "pgoutput",
        "slot.name": table,
        "publication.name": table,
        "publication.autocreate.mode": "filtered",
        "table.include.list": f"public.{table}",
        "topic.prefix": "shop",
        "exactly.once.support": "required",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "slim",
        "transforms.slim.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.slim.exclude": "source",
        "poll.interval.ms": "50",
    }


def replayed(world: World, table: str) -> tuple[dict[int, str], Counter[str]]:
    """The table as the topic has it, and how many events of each kind there are."""
    rows: dict[int, str] = {}
    kinds: Counter[str] = Counter()
    for message in values(world, f"shop.public.{table}"):
        key = json.loads(message.key())["id"]
        if message.value() is None:
            assert key not in rows, "a deletion stands before its tombstone"
            continue
        event: dict[str, Any] = json.loads(message.value())
        assert "source" not in event
        kinds[event["op"]] += 1
        rows.pop(key, None)
        if event["after"] is not None:
            rows[key] = event["after"]["name"]
    return rows, kinds


def in_database(world: World, table: str) -> dict[int, str]:
    rows = (row.split("|") for row in world.sql(f"SELECT id, name FROM {table}"))
    return {int(number): name for number, name in rows}


def test_the_topic_replayed_is_the_table_though_the_supervisor_is_killed_half_way(world: World) -> None:
    start(world, "customers")
    for part in range(1, 5):
        first = part * 1_000
        world.sql(f"INSERT INTO customers SELECT id, 'n' FROM generate_series({first}, {first + 499}) id")
        world.sql(f"UPDATE customers SET name = 'u{part}' WHERE id % 5 = 0 AND id >= {first}")
        world.sql(f"DELETE FROM customers WHERE id % 7 = 0 AND id >= {first}")
        if part in (1, 3):
            world.kill()  # its JVM ends with it: else the slot would stay in use
            world.start()
    wait_until(lambda: replayed(world, "customers")[0] == in_database(world, "customers"), "the table")
    deleted = sum(number % 7 == 0 for part in range(1, 5) for number in range(part * 1_000, part * 1_000 + 500))
    assert replayed(world, "customers")[1] == {"r": 500, "c": 2_000, "u": 400, "d": deleted}


def test_offsets_are_told_as_debezium_has_them_and_the_database_may_forget_what_is_written(world: World) -> None:
    start(world, "offsets")
    world.sql("INSERT INTO offsets VALUES (1000, 'next')")
    behind = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn < 10000 FROM pg_replication_slots"
    wait_until(lambda: world.sql(f"{behind} WHERE slot_name = 'offsets'") == ["t"], "what is confirmed to the database")
    (told,) = world.client.ask("GET", "connectors", "offsets", "offsets")["offsets"]
    assert told["partition"] == {"server": "shop"}
    assert "lsn" in told["offset"]


def test_a_database_that_was_away_is_read_on(world: World) -> None:
    start(world, "outages")
    world.sql("INSERT INTO outages VALUES (999, 'before the outage')")
    wait_until(lambda: replayed(world, "outages")[0].get(999) == "before the outage", "the change before")
    world.postgres.stop()
    with socket.create_server(("127.0.0.1", world.postgres.port)) as nothing_answers:
        nothing_answers.settimeout(PATIENCE_S)
        asks, _ = nothing_answers.accept()  # it has noticed
        asks.close()
    world.postgres.start()
    world.sql("INSERT INTO outages VALUES (1000, 'behind the outage')")
    wait_until(lambda: replayed(world, "outages")[0].get(1_000) == "behind the outage", "the next change")
    assert replayed(world, "outages")[1] == {"r": 500, "c": 2}


def test_a_column_that_is_added_is_in_the_changes_behind_it(world: World) -> None:
    start(world, "widened")
    world.sql("INSERT INTO widened VALUES (1000, 'narrow')")
    world.sql("ALTER TABLE widened ADD COLUMN email text")
    world.sql("INSERT INTO widened VALUES (1001, 'wide', 'a@b'); UPDATE widened SET email = 'c@d' WHERE id = 1")
    wait_until(lambda: replayed(world, "widened")[1] == {"r": 500, "c": 2, "u": 1}, "the changes")
    narrow, wide, changed = [json.loads(each.value())["after"] for each in values(world, "shop.public.widened")][-3:]
    assert narrow == {"id": 1_000, "name": "narrow"}
    assert wide == {"id": 1_001, "name": "wide", "email": "a@b"}
    assert changed == {"id": 1, "name": "customer 1", "email": "c@d"}
    assert world.state("widened") == "RUNNING"


def test_what_debezium_refuses_is_the_connectors_failure(world: World) -> None:
    world.put("wrong", **{**configuration(world, "wrong"), "database.dbname": "none"})
    wait_until(lambda: world.state("wrong") == "FAILED", "the failure")
    assert 'database "none" does not exist' in world.status("wrong")["tasks"][0]["trace"]


def test_transform_that_is_not_there_is_the_connectors_failure(world: World) -> None:
    world.put("strange", **{**configuration(world, "strange"), "transforms.slim.type": "no.such.Transform"})
    wait_until(lambda: world.state("strange") == "FAILED", "the failure")
    assert "no.such.Transform" in world.status("strange")["tasks"][0]["trace"]
