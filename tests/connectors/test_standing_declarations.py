"""Standing queries as connectors: what a declaration has, and what may be asked of one.  No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness.waiting import PATIENCE_S

from pybroker.connectors.declared.validation import errors_of
from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient
from pybroker.sql.relations.catalog import Column, Format
from pybroker.sql.standing.standing_plans import SourcePlan, SparkPlan, declaration
from tests.connectors.rest_world import World, served

PLAN = SparkPlan(
    (SourcePlan("t_0", "orders", Format.JSON, (Column("who", "STRING", "who"),), {}),),
    "SELECT who FROM t_0",
    "append",
    (),
)
CONFIG = declaration(PLAN, "names", "CREATE STREAM names AS SELECT who FROM orders", "earliest")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Iterator[RestClient]:
    with served(world) as url:
        yield RestClient(url)


def test_declaration_of_a_plan_is_valid() -> None:
    assert errors_of({"name": "names", **CONFIG}) == {}


@pytest.mark.parametrize(
    ("changes", "wrong", "told"),
    [
        ({"plan": "{}"}, "plan", "it is no plan that `pybroker sql` has made"),
        ({"plan": json.dumps([1])}, "plan", "it is no plan"),
        ({"errors.tolerance": "all"}, "errors.tolerance", "Configuration is not defined"),
        ({"value.converter": "avro"}, "value.converter", "Configuration is not defined"),
        ({"topics": ""}, "topics", "Must configure one of topics or topics.regex"),
    ],
)
def test_what_a_query_cannot_have_is_refused(changes: dict[str, str], wrong: str, told: str) -> None:
    found = errors_of({"name": "names", **CONFIG, **changes})
    assert told in found[wrong][0]


def test_query_is_listed_paused_and_resumed_as_each_connector(world: World, client: RestClient) -> None:
    client.ask("POST", "connectors", body={"name": "names", "config": CONFIG})
    world.supervisor.step()
    found = client.ask("GET", "connectors", expand=("info", "status"))["names"]
    assert (found["info"]["config"]["topic"], found["status"]["tasks"][0]["state"]) == ("names", "RUNNING")
    for request, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        client.ask("PUT", "connectors", "names", request)
        world.supervisor.step()
        assert client.ask("GET", "connectors", "names", "status")["connector"]["state"] == state


def test_offsets_of_a_query_are_reset_and_not_altered(world: World, client: RestClient) -> None:
    client.ask("POST", "connectors", body={"name": "names", "config": CONFIG, "initial_state": "STOPPED"})
    world.supervisor.step()
    world.groups.offsets["connect-names"] = {("orders", 0): 7}
    (offset,) = client.ask("GET", "connectors", "names", "offsets")["offsets"]
    assert offset["offset"] == {"kafka_offset": 7}
    with pytest.raises(ReplyRefused, match="its offsets can be reset"):
        client.ask("PATCH", "connectors", "names", "offsets", body={"offsets": [offset]})
    client.ask("DELETE", "connectors", "names", "offsets")
    assert world.topics.known.runs["names"] == 2


def test_supervisor_needs_no_parser_of_sql() -> None:
    """Its extras are those of connectors."""
    loaded = (
        "import pybroker.connectors.connect_service, pybroker.sql.relations.format_options, sys; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert not {"sqlglot", "duckdb", "pyarrow", "prompt_toolkit"} & set(done.stdout.split())
