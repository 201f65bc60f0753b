"""Kafka Connect's REST interface over a supervisor whose topics and connectors are doubles.

What stock Connect answers to the same requests was compared once: codes and texts here are Connect's, unless a test
says otherwise.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pybroker.connectors.rest.rest_server import BODY_BYTES_MAX, ListenRefused, check_listen
from pybroker.connectors.state.state_records import offset_record
from pybroker.connectors.supervision.membership import GroupRefused, Idle, Waits
from tests.connectors.rest_world import World

SOURCE = {"connector.class": "FileSource", "path": "/in", "format": "text", "topic": "lines"}
SINK = {
    "connector.class": "JdbcSink",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://h/d",
    "connection.password": "${file:/p:k}",
}
JSON = {"Content-Type": "application/json"}
# Of Connect's `ConfigKeyInfo`.
KEY_DOCUMENT = {
    *("name", "type", "required", "default_value", "importance", "documentation"),
    *("group", "order_in_group", "width", "display_name", "dependents"),
}

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ask(world: World) -> Iterator[Ask]:
    with asyncio.Runner() as runner:
        client = runner.run(_client_of(world))

        def one(method: str, path: str, body: Any = None, **given: Any) -> tuple[int, Any]:
            return runner.run(_asked(client, method, path, body, **given))

        yield one
        runner.run(client.close())


async def _client_of(world: World) -> Any:
    client = TestClient(TestServer(world.app))
    await client.start_server()
    return client


async def _asked(client: Any, method: str, path: str, body: Any, **given: Any) -> tuple[int, Any]:
    if body is not None:
        given["json"] = body
    async with client.request(method, path, **given) as reply:
        text = await reply.text()
        return reply.status, json.loads(text) if text else None


def error(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"error_code": code, "message": message}


def test_a_connector_is_created_once(world: World, ask: Ask) -> None:
    created = {
        "name": "a",
        "config": {"name": "a", **SOURCE},
        "tasks": [],
        "type": "source",
    }
    assert ask("POST", "/connectors", {"name": "a", "config": SOURCE}) == (201, created)
    assert ask("POST", "/connectors", {"name": "a", "config": SOURCE}) == error(409, "Connector a already exists")
    assert ask("GET", "/connectors") == (200, ["a"])
    world.supervisor.step()
    assert ask("GET", "/connectors/a") == (200, {**created, "tasks": [{"connector": "a", "task": 0}]})
    assert ask("GET", "/connectors/a/config") == (200, {"name": "a", **SOURCE})
    assert ask("GET", "/connectors/a/tasks") == (
        200,
        [{"id": {"connector": "a", "task": 0}, "config": {"name": "a", **SOURCE}}],
    )


def test_put_creates_and_then_replaces(ask: Ask) -> None:
    assert ask("PUT", "/connectors/a/config", SOURCE)[0] == 201
    code, info = ask("PUT", "/connectors/a/config", {**SOURCE, "path": "/other"})
    assert (code, info["config"]["path"]) == (200, "/other")


def test_patch_changes_and_removes_keys(ask: Ask) -> None:
    ask("PUT", "/connectors/a/config", {**SOURCE, "tasks.max": "2"})
    code, info = ask("PATCH", "/connectors/a/config", {"path": "/other", "tasks.max": None})
    assert (code, info["config"]) == (200, {"name": "a", **SOURCE, "path": "/other"})
    assert ask("PATCH", "/connectors/b/config", {}) == error(404, "Connector b not found")


def test_a_status_follows_what_is_done(world: World, ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE})
    assert ask("GET", "/connectors/a/status")[1]["connector"]["state"] == "UNASSIGNED"
    world.supervisor.step()
    assert ask("GET", "/connectors/a/status") == (
        200,
        {
            "name": "a",
            "connector": {"state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "0.1.0"},
            "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "0.1.0"}],
            "type": "source",
        },
    )
    world.runs[-1].failure = "the disk is full"
    world.supervisor.step()
    status = ask("GET", "/connectors/a/status")[1]
    assert (status["connector"]["state"], status["tasks"][0]["state"]) == ("RUNNING", "FAILED")
    assert status["tasks"][0]["trace"] == "the disk is full"
    assert ask("GET", "/connectors/a/tasks/0/status")[1] == status["tasks"][0]
    assert ask("GET", "/connectors/a/topics") == (200, {"a": {"topics": ["lines"]}})


@pytest.mark.parametrize(("verb", "code", "state"), [("pause", 202, "PAUSED"), ("stop", 204, "STOPPED")])
def test_a_connector_is_paused_or_stopped_and_resumed(world: World, ask: Ask, verb: str, code: int, state: str) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE})
    assert ask("PUT", f"/connectors/a/{verb}") == (code, None)
    world.supervisor.step()
    assert ask("GET", "/connectors/a/status")[1]["connector"]["state"] == state
    assert ask("PUT", "/connectors/a/resume") == (202, None)
    world.supervisor.step()
    assert ask("GET", "/connectors/a/status")[1]["connector"]["state"] == "RUNNING"


def test_a_connector_that_is_stopped_has_no_task_to_be_restarted(world: World, ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE, "initial_state": "STOPPED"})
    world.supervisor.step()
    assert ask("POST", "/connectors/a/tasks/0/restart") == error(404, "Unknown task: a-0")
    assert ask("GET", "/connectors/a/tasks/0/status") == error(404, "No status found for task a-0")


def test_topics_of_a_connector_that_is_not_there_are_none(ask: Ask) -> None:
    assert ask("GET", "/connectors/b/topics") == (200, {"b": {"topics": []}})
    assert ask("PUT", "/connectors/b/topics/reset") == (202, None)


def test_a_connector_may_begin_paused_or_stopped(world: World, ask: Ask) -> None:
    body = {"name": "a", "config": SOURCE, "initial_state": "STOPPED"}
    assert ask("POST", "/connectors", body)[1]["tasks"] == []
    world.supervisor.step()
    assert world.runs == []


def test_a_restart_answers_with_the_status_where_tasks_are_named(world: World, ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE})
    world.supervisor.step()
    assert ask("POST", "/connectors/a/restart") == (204, None)
    code, status = ask("POST", "/connectors/a/restart?includeTasks=true&onlyFailed=false")
    assert (code, status["connector"]["state"], status["tasks"][0]["state"]) == (202, "RESTARTING", "RESTARTING")
    world.supervisor.step()
    assert len(world.runs) == 2
    code, status = ask("POST", "/connectors/a/restart?includeTasks=true&onlyFailed=true")
    assert (code, status["tasks"][0]["state"]) == (202, "RUNNING")
    world.supervisor.step()
    assert len(world.runs) == 2
    assert ask("POST", "/connectors/a/tasks/0/restart") == (204, None)
    world.supervisor.step()
    assert len(world.runs) == 3


def test_what_is_deleted_is_gone_and_one_of_its_name_begins_a_new_checkpoint(world: World, ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE})
    assert ask("DELETE", "/connectors/a") == (204, None)
    assert ask("GET", "/connectors") == (200, [])
    assert ask("GET", "/connectors/a/status") == error(404, "No status found for connector a")
    assert world.topics.known.runs == {"a": 2}


def test_expand_gives_the_documents_of_all(ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "a", "config": SOURCE})
    code, found = ask("GET", "/connectors?expand=status&expand=info")
    assert (code, list(found), list(found["a"])) == (200, ["a"], ["status", "info"])
    assert found["a"]["info"]["config"]["path"] == "/in"


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/connectors/b", "Connector b not found"),
        ("GET", "/connectors/b/config", "Connector b not found"),
        ("GET", "/connectors/b/tasks", "Connector b not found"),
        ("GET", "/connectors/b/status", "No status found for connector b"),
        ("GET", "/connectors/b/offsets", "Connector b not found"),
        ("DELETE", "/connectors/b", "Connector b not found"),
        ("DELETE", "/connectors/b/offsets", "Connector b not found"),
        ("PUT", "/connectors/b/pause", "Unknown connector b"),
        ("PUT", "/connectors/b/resume", "Unknown connector b"),
        ("PUT", "/connectors/b/stop", "Unknown connector b"),
        ("GET", "/connectors/b/tasks/0/status", "No status found for task b-0"),
        ("POST", "/connectors/b/restart", "Unknown connector: b"),
        ("POST", "/connectors/b/tasks/0/restart", "Unknown connector: b"),
        ("GET", "/connector-plugins/Nope/config", "Unknown plugin Nope."),
        ("GET", "/nothing", "HTTP 404 Not Found"),
    ],
)
def test_what_is_not_there_is_404(ask: Ask, method: str, path: str, message: str) -> None:
    assert ask(method, path) == error(404, message)


def test_a_configuration_that_is_wrong_is_refused_with_all_its_errors(ask: Ask) -> None:
    code, body = ask("POST", "/connectors", {"name": "a", "config": {**SOURCE, "tasks.max": "x", "pth": "y"}})
    assert code == 400
    assert body["message"].splitlines()[0] == (
        "Connector configuration is invalid and contains the following 2 error(s):"
    )
    assert "Configuration is not defined: pth; is path meant?" in body["message"]
    assert ask("GET", "/connectors") == (200, [])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"config": {}}, "1 to 200 characters"),
        (
            {"config": {**SOURCE, "name": "b"}},
            "Connector name configuration (b) doesn't match connector name in the URL ()",
        ),
        ({"name": [], "config": SOURCE}, "name must be a text"),
        ({"name": "a", "config": {**SOURCE, "name": "b"}}, "Connector name configuration (b) doesn't match"),
        ({"name": "a/b", "config": SOURCE}, "no slash"),
        ({"name": "..", "config": SOURCE}, "more than one or two dots"),
        ({"name": "\ud800", "config": SOURCE}, "half of a pair of surrogates"),
        ({"name": "a", "config": {**SOURCE, "tasks.max": float("nan")}}, "NaN is no number of JSON"),
        ({"name": "", "config": SOURCE}, "1 to 200 characters"),
        ({"name": "a", "config": []}, "an object of texts"),
        ({"name": "a", "config": {"x": {}}}, "x must be a text"),
        ({"name": "a", "confg": {}}, "Unrecognized field: confg"),
        ([], "an object with name and config"),
        ({"name": "a", "config": SOURCE, "initial_state": "x"}, "initial_state must be one of"),
    ],
)
def test_a_body_that_cannot_be_meant_is_refused(ask: Ask, body: Any, told: str) -> None:
    code, reply = ask("POST", "/connectors", body)
    assert (code, reply["error_code"]) == (400, 400)
    assert told in reply["message"]


def test_numbers_and_booleans_are_texts_as_connect_reads_them(ask: Ask) -> None:
    code, info = ask("PUT", "/connectors/a/config", {**SOURCE, "tasks.max": 3, "header": True})
    assert (code, info["config"]["tasks.max"], info["config"]["header"]) == (201, "3", "true")


def test_a_key_that_stands_twice_is_refused(ask: Ask) -> None:
    raw = {"data": b'{"a": 1, "a": 2}', "headers": {"Content-Type": "application/json"}}
    assert ask("PUT", "/connectors/a/config", **raw) == error(400, "the body is no JSON: a stands twice")


def test_a_body_is_bounded(ask: Ask) -> None:
    raw = {"data": io.BytesIO(b" " * (BODY_BYTES_MAX + 1)), "headers": {"Content-Type": "application/json"}}
    assert ask("PUT", "/connectors/a/config", **raw)[0] == 413


@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_a_deeply_nested_body_is_refused(ask: Ask, depth: int) -> None:
    """Also one that can be read: what is kept of it has to be read by the next supervisor."""
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    raw = {"data": b'{"offsets":[{"partition":' + deep + b',"offset":{}}]}', "headers": JSON}
    code, reply = ask("PATCH", "/connectors/a/offsets", **raw)
    assert (code, reply["message"][:20]) == (400, "the body is no JSON:")


@pytest.mark.parametrize("charset", ["none", "zip", "hex", "utf-32"])
def test_a_charset_in_which_the_body_is_no_text_is_refused(ask: Ask, charset: str) -> None:
    raw = {"data": b"{}", "headers": {"Content-Type": f"application/json; charset={charset}"}}
    assert ask("PUT", "/connectors/a/config", **raw)[0] == 400


def test_a_body_that_is_packed_is_bounded_by_what_it_unpacks_to(ask: Ask) -> None:
    raw = {"data": gzip.compress(b" " * (50 * BODY_BYTES_MAX)), "headers": {**JSON, "Content-Encoding": "gzip"}}
    assert ask("PUT", "/connectors/a/config", **raw)[0] == 413


@pytest.mark.parametrize("name", ["a b", "50%", "é:connector-x", "a+b", "..."])
def test_a_connector_is_found_by_any_name_that_it_may_have(world: World, ask: Ask, name: str) -> None:
    assert ask("POST", "/connectors", {"name": name, "config": SOURCE})[0] == 201
    world.supervisor.step()
    path = f"/connectors/{quote(name, safe='')}"
    assert ask("GET", f"{path}/status")[1]["connector"]["state"] == "RUNNING"
    assert ask("GET", f"{path}/topics") == (200, {name: {"topics": ["lines"]}})
    assert ask("DELETE", path)[0] == 204


def test_other_media_types_and_methods_are_refused(ask: Ask) -> None:
    raw = {"data": b"{}", "headers": {"Content-Type": "text/plain"}}
    assert ask("POST", "/connectors", **raw) == error(415, "HTTP 415 Unsupported Media Type")
    assert ask("DELETE", "/connectors") == error(405, "HTTP 405 Method Not Allowed")
    assert ask("GET", "/connectors", headers={"Accept": "text/html, text/plain;q=0.5"})[0] == 406
    assert ask("GET", "/connectors", headers={"Accept": "text/html, application/json;q=0.5"})[0] == 200


@pytest.mark.parametrize("path", ["", "/connectors", "/connectors/a", "/connectors/a/status", "/admin/loggers/root"])
def test_a_path_may_end_with_a_slash(ask: Ask, path: str) -> None:
    ask("POST", "/connectors/", {"name": "a", "config": SOURCE})
    code, found = ask("GET", path)
    assert code == 200
    assert ask("GET", f"{path}/") == (code, found)


def test_a_resource_tells_its_methods(world: World) -> None:
    async def told() -> tuple[int, str, str]:
        client = await _client_of(world)
        try:
            async with client.options("/connectors") as reply:
                return reply.status, await reply.text(), reply.headers["Allow"]
        finally:
            await client.close()

    assert asyncio.run(told()) == (200, "GET,HEAD,POST,OPTIONS", "GET,HEAD,POST,OPTIONS")


def test_what_has_get_has_head(ask: Ask) -> None:
    assert ask("HEAD", "/connectors") == (200, None)
    assert ask("HEAD", "/connectors/b") == (404, None)
    assert ask("OPTIONS", "/nothing")[0] == 404


def test_offsets_of_a_source_are_altered_and_reset_when_it_is_stopped(world: World, ask: Ask) -> None:
    config = {"connector.class": "HttpSource", "url": "http://h/items", "topic": "items"}
    ask("POST", "/connectors", {"name": "h", "config": config, "initial_state": "STOPPED"})
    world.supervisor.step()
    former, place = ({"partition": {"url": url}, "offset": {"offset": 1}} for url in ("http://h/", "http://h/items"))
    world.topics.write_offsets([offset_record("h", {"url": "http://h/"}, {"offset": 1})])
    assert ask("PATCH", "/connectors/h/offsets", {"offsets": [place]})[0] == 200
    assert ask("GET", "/connectors/h/offsets") == (200, {"offsets": [former, place]})
    assert ask("PATCH", "/connectors/h/offsets", {"offsets": [{**former, "offset": None}]})[0] == 200
    assert ask("GET", "/connectors/h/offsets") == (200, {"offsets": [place]})
    message = "The offsets for this connector have been reset successfully"
    assert ask("DELETE", "/connectors/h/offsets") == (200, {"message": message})
    assert ask("GET", "/connectors/h/offsets") == (200, {"offsets": []})
    ask("PUT", "/connectors/h/resume")
    world.supervisor.step()
    assert ask("DELETE", "/connectors/h/offsets")[0] == 400


def test_an_offset_of_a_sink_that_is_null_is_forgotten_and_the_others_stay(world: World, ask: Ask) -> None:
    """Also those of topics that the connector names by a pattern, or does not name any more."""
    by_pattern = {name: text for name, text in SINK.items() if name != "topics"} | {"topics.regex": "or.*"}
    ask("POST", "/connectors", {"name": "s", "config": by_pattern, "initial_state": "STOPPED"})
    world.supervisor.step()

    def place(number: int, offset: Any) -> dict[str, Any]:
        return {"partition": {"kafka_topic": "orders", "kafka_partition": number}, "offset": offset}

    listed = [place(0, {"kafka_offset": "7"}), place(1, {"kafka_offset": 8})]
    assert ask("PATCH", "/connectors/s/offsets", {"offsets": listed})[0] == 200
    assert ask("PATCH", "/connectors/s/offsets", {"offsets": [place(0, None)]})[0] == 200
    assert ask("GET", "/connectors/s/offsets") == (200, {"offsets": [place(1, {"kafka_offset": 8})]})


def test_offsets_of_a_sink_are_changed_when_it_is_stopped(world: World, ask: Ask) -> None:
    ask("POST", "/connectors", {"name": "s", "config": SINK})
    world.supervisor.step()
    wanted = {
        "offsets": [
            {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 7}},
        ]
    }
    code, body = ask("PATCH", "/connectors/s/offsets", wanted)
    assert (code, body["message"].partition(".")[0]) == (
        400,
        "Connectors must be in the STOPPED state before their offsets can be modified",
    )
    ask("PUT", "/connectors/s/stop")
    world.supervisor.step()
    message = "The offsets for this connector have been altered successfully"
    assert ask("PATCH", "/connectors/s/offsets", wanted) == (200, {"message": message})
    assert ask("GET", "/connectors/s/offsets") == (
        200,
        {"offsets": [{"partition": {"kafka_partition": 0, "kafka_topic": "orders"}, "offset": {"kafka_offset": 7}}]},
    )
    assert world.topics.known.runs == {"s": 2}
    message = "The offsets for this connector have been reset successfully"
    assert ask("DELETE", "/connectors/s/offsets") == (200, {"message": message})
    assert ask("GET", "/connectors/s/offsets") == (200, {"offsets": []})
    assert world.topics.known.runs == {"s": 3}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"offsets": []},
        {"offsets": [1]},
        {"offsets": [{"partition": {"kafka_topic": "t"}, "offset": {"kafka_offset": 1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": -1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 1.5}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 2**63}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": "1_0"}, "offset": {"kafka_offset": 1}}]},
        {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 2**31}, "offset": {"kafka_offset": 1}}]},
    ],
)
def test_offsets_that_cannot_be_are_refused(world: World, ask: Ask, body: Any) -> None:
    ask("POST", "/connectors", {"name": "s", "config": SINK, "initial_state": "STOPPED"})
    world.supervisor.step()
    assert ask("PATCH", "/connectors/s/offsets", body)[0] == 400


HTTP = {"connector.class": "HttpSource", "url": "${file:/p:url}", "topic": "t", "offset.field": "id"}
CHANGES = {
    "connector.class": "DebeziumPostgresSource",
    "topic.prefix": "shop",
    "database.hostname": "h",
    "database.dbname": "d",
    "database.user": "u",
}
ROWS = {
    "connector.class": "JdbcSource",
    "connection.url": "jdbc:postgresql://h/d",
    "table": "t",
    "topic": "t",
    "incrementing.column.name": "id",
}


@pytest.mark.parametrize(
    ("config", "partition", "offset", "told"),
    [
        (HTTP, {"url": "https://h/"}, {"offset": 1}, 'it reads {"url": "${file:/p:url}"}'),
        (HTTP, {"url": "${file:/p:url}"}, {"ofset": 1}, "contain the key 'offset'"),
        (HTTP, {"url": "${file:/p:url}"}, {"offset": [1]}, "a number or a text"),
        (HTTP, {"url": "${file:/p:url}"}, {"offset": 1}, None),
        (HTTP, {"url": "a former one"}, None, None),
        (ROWS, {"table": "T"}, {"incrementing": "1"}, 'it reads {"table": "t"}'),
        (ROWS, {"table": "t", "more": 1}, {"incrementing": "1"}, 'it reads {"table": "t"}'),
        (ROWS, {"table": "t"}, {"timestamp": "1"}, "contain the key 'incrementing'"),
        (ROWS, {"table": "t"}, {"incrementing": "1"}, None),
        (CHANGES, {"server": "another"}, {"lsn": 1}, 'it reads {"server": "shop"}'),
        (CHANGES, {"server": "shop"}, {"lsn": 1}, None),
    ],
)
def test_offsets_of_a_source_that_would_have_no_effect_are_refused(
    world: World, ask: Ask, config: Any, partition: Any, offset: Any, told: str | None
) -> None:
    ask("POST", "/connectors", {"name": "s", "config": config, "initial_state": "STOPPED"})
    world.supervisor.step()
    code, body = ask("PATCH", "/connectors/s/offsets", {"offsets": [{"partition": partition, "offset": offset}]})
    assert (code, told or "altered successfully" in body["message"]) == (400 if told else 200, told or True)
    assert told is None or told in body["message"]
    assert world.topics.known.runs == ({} if told else {"s": 2})


def test_plugins_are_listed_with_their_keys_and_judge_configurations(ask: Ask) -> None:
    code, plugins = ask("GET", "/connector-plugins")
    assert {"class": "FileSource", "type": "source", "version": "0.1.0"} in plugins
    keys = {key["name"]: key for key in ask("GET", "/connector-plugins/JdbcSink/config")[1]}
    assert keys["connection.password"]["type"] == "PASSWORD"
    assert keys["topics"].keys() == KEY_DOCUMENT
    code, found = ask(
        "PUT",
        "/connector-plugins/JdbcSink/config/validate",
        {**SINK, "name": "s", "connection.password": "hunter2", "insert.mod": "hunter3"},
    )
    errors = {each["value"]["name"]: each["value"]["errors"] for each in found["configs"] if each["value"]["errors"]}
    assert (code, found["error_count"], sorted(errors)) == (200, 2, ["connection.password", "insert.mod"])
    assert "hunter" not in json.dumps(found)
    assert ask("GET", "/connector-plugins/Nothing/config")[0] == 404
    assert ask("PUT", "/connector-plugins/FileSource/config/validate", SINK)[0] == 400


def test_each_error_of_a_configuration_counts(ask: Ask) -> None:
    config = {"connector.class": "FileSource", "format": "csv", "topic": "t", "tasks.max": "x"}
    code, found = ask("PUT", "/connector-plugins/FileSource/config/validate", config)
    errors = [error for each in found["configs"] for error in each["value"]["errors"]]
    assert (code, found["error_count"]) == (200, len(errors))


def test_transforms_and_converters_are_listed_where_they_are_asked_for(ask: Ask) -> None:
    all_of_them = ask("GET", "/connector-plugins?connectorsOnly=false")[1]
    assert {each["type"] for each in all_of_them} == {"source", "sink", "transformation", "converter"}
    assert {"source", "sink"} == {each["type"] for each in ask("GET", "/connector-plugins?connectorsOnly=true")[1]}
    classes = {each["class"] for each in all_of_them}
    assert {"org.apache.kafka.connect.transforms.Cast$Value", "org.apache.kafka.connect.json.JsonConverter"} <= classes


def test_a_secret_that_connect_left_in_the_topic_is_not_told(world: World, ask: Ask) -> None:
    world.topics.known.configs["s"] = {**SINK, "name": "s", "connection.password": "hunter2"}
    assert ask("GET", "/connectors/s/config")[1]["connection.password"] == "[hidden]"
    assert ask("GET", "/connectors/s")[1]["config"]["connection.password"] == "[hidden]"


def test_a_secret_in_a_url_is_told_by_no_reply(world: World, ask: Ask) -> None:
    """Also of a connector that was made before such a URL was refused."""
    url = "https://h/x?api_key=hunter2"
    config = {"name": "s", "connector.class": "HttpSource", "topic": "t", "url": url}
    replies = [
        ask("PUT", "/connector-plugins/HttpSource/config/validate", config),
        ask("POST", "/connectors", {"name": "s", "config": config}),
    ]
    world.topics.known.configs["s"] = {**config, "consumer.override.sasl.jaas.config": "hunter2"}
    replies.append(ask("GET", "/connectors/s/config"))
    assert [code for code, _ in replies] == [200, 400, 200]
    assert replies[2][1]["url"] == "[hidden]"
    assert "hunter2" not in json.dumps(replies)


@pytest.mark.parametrize("kind", ["org.example.SomeSink", "io.debezium.connector.postgresql.PostgresConnector"])
def test_secrets_of_a_class_of_connects_are_known_by_their_names_and_urls(world: World, ask: Ask, kind: str) -> None:
    told = {
        "name": "s",
        "connector.class": kind,
        "table.include.list": "public.tokens",
        "a.password": "${file:/p:k}",
        "url": "https://h/items",
    }
    secrets = {
        "a.PassWord": "hunter2",
        "secret.key": "hunter2",
        "sasl.jaas.config": 'x required password="hunter2";',
        "other.url": "https://h/?token=hunter2",
        "mirror.url": "amqp://ann:hunter2@h/",
    }
    world.topics.known.configs["s"] = {**told, **secrets}
    assert ask("GET", "/connectors/s/config") == (200, {**told, **dict.fromkeys(secrets, "[hidden]")})


def test_a_connector_of_connects_own_kinds_is_told_as_unknown(world: World, ask: Ask) -> None:
    world.topics.known.configs["m"] = {"name": "m", "connector.class": "org.apache.MirrorSourceConnector"}
    assert ask("GET", "/connectors/m")[1]["type"] == "unknown"
    assert ask("DELETE", "/connectors/m") == (204, None)


@pytest.mark.parametrize(
    ("waits", "again_after", "message"),
    [
        (Waits.NONE_WORKS_YET, "1", "no supervisor of this name works yet"),
        (Waits.ANOTHER_WORKS, None, "this supervisor waits: another one of its name works"),
        (GroupRefused("Not authorized"), None, "this supervisor cannot join the group of its name: Not authorized"),
    ],
)
def test_a_supervisor_that_does_not_work_yet_says_when_to_ask_again(
    world: World, waits: Idle, again_after: str | None, message: str
) -> None:
    async def refused() -> tuple[int, str | None, Any]:
        client = await _client_of(world)
        try:
            async with client.get("/connectors") as reply:
                return reply.status, reply.headers.get("Retry-After"), await reply.json()
        finally:
            await client.close()

    world.waits = waits
    assert asyncio.run(refused()) == (503, again_after, {"error_code": 503, "message": message})


def test_a_supervisor_that_starts_is_not_healthy_yet(world: World, ask: Ask) -> None:
    world.waits = Waits.NONE_WORKS_YET
    assert ask("GET", "/health") == (503, {"status": "starting", "message": "Worker is still starting up."})


def test_a_supervisor_that_its_group_refuses_is_not_healthy(world: World, ask: Ask) -> None:
    world.waits = GroupRefused("Not authorized")
    message = "this supervisor cannot join the group of its name: Not authorized"
    assert ask("GET", "/health") == (503, {"status": "unhealthy", "message": message})


def test_a_supervisor_that_waits_says_so(world: World, ask: Ask) -> None:
    world.waits = Waits.ANOTHER_WORKS
    assert ask("GET", "/connectors")[0] == 503
    assert ask("GET", "/health")[0] == 200
    assert ask("GET", "/") == (200, {"version": "0.1.0", "commit": "c", "kafka_cluster_id": "k"})


def test_a_page_in_a_browser_is_not_served(ask: Ask) -> None:
    assert ask("POST", "/connectors/a/restart", headers={"Origin": "http://evil.example"})[0] == 403
    assert ask("GET", "/connectors", headers={"Host": "evil.example"})[0] == 403
    assert ask("GET", "/connectors", headers={"Host": "localhost:8083"})[0] == 200
    for none in ("[", "localhost:port"):
        assert ask("GET", "/connectors", headers={"Host": none})[0] == 403


class TestLogins:
    """A supervisor with logins."""

    @pytest.fixture
    def world(self) -> World:
        return World({"ann": "secret"})

    def test_who_does_not_log_in_is_refused(self, ask: Ask) -> None:
        for header in ("", "Basic", "Basic x", f"Basic {_basic('ann', 'wrong')}", f"Basic {_basic('bob', '')}"):
            assert ask("GET", "/connectors", headers={"Authorization": header})[0] == 401
        assert ask("GET", "/connectors")[0] == 401

    def test_who_logs_in_is_served(self, ask: Ask) -> None:
        header = {"Authorization": f"Basic {_basic('ann', 'secret')}"}
        assert ask("GET", "/connectors", headers=header) == (200, [])


def _basic(user: str, word: str) -> str:
    return base64.b64encode(f"{user}:{word}".encode()).decode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_listening_beyond_loopback_needs_a_login(host: str) -> None:
    with pytest.raises(ListenRefused, match="--login"):
        check_listen(host, {})
    check_listen(host, {"ann": "secret"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_no_login_is_needed(host: str) -> None:
    check_listen(host, {})
