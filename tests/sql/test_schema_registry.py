"""Schemas of a registry: values by the id in front of them, columns without a declaration, and schemas registered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from pybroker.sql.standing.standing_plans import plan_read
from pybroker.values.avro_values import registered_schema
from pybroker.values.registry_header import header_of
from pybroker.values.schema_registry import LOGIN_VARIABLE, RegisteredSchema, RegistryAway, SchemaRegistry
from tests.sql.registry_server import FIRST, SECOND, RegistryServer, written
from tests.sql.test_standing_statements import World


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@pytest.fixture
def world(registry: RegistryServer) -> Iterator[World]:
    found = World()
    found.ask(f"SET 'ksql.schema.registry.url' = '{registry.url}'")
    yield found
    found.engine.close()


def test_value_is_read_by_the_schema_of_its_id_which_is_asked_for_once(world: World, registry: RegistryServer) -> None:
    first, second = (registry.register("orders-value", json.dumps(each)) for each in (FIRST, SECOND))
    values = [written(first, FIRST, {"id": 1}), written(second, SECOND, {"note": "new", "id": 2})] * 3
    world.cluster.produce("orders", values)
    world.ask("CREATE STREAM orders WITH (format='avro')")
    registry.asked.clear()
    rows = [{"note": None, "id": 1}, {"note": "new", "id": 2}] * 3
    assert world.ask("SELECT * FROM orders ORDER BY _offset") == rows
    assert set(registry.asked) == {f"GET /schemas/ids/{first}"}
    assert (
        world.ask("CREATE STREAM old WITH (topic='orders', format='avro', value_schema_id=1); SELECT * FROM old")
        == [
            {"id": 1},
            {"id": 2},
        ]
        * 3
    )


def test_value_of_the_first_id_is_read_by_its_schema_where_any_header_is_wanted(
    world: World, registry: RegistryServer, tmp_path: Path
) -> None:
    """An id of 1 is not that of the declared schema, which has none."""
    assert registry.register("orders-value", json.dumps(FIRST)) == 1
    world.cluster.produce("orders", [written(1, FIRST, {"id": 1})])
    declared = tmp_path / "second.avsc"
    declared.write_text(json.dumps(SECOND))
    options = f"format='avro', schema='{declared}', registry_header='true', schema.registry.url='{registry.url}'"
    world.ask(f"CREATE STREAM orders WITH ({options})")
    assert world.ask("SELECT id FROM orders") == [{"id": 1}]


def test_value_of_an_id_that_the_registry_has_not_does_not_fit(world: World, registry: RegistryServer) -> None:
    first = registry.register("orders-value", json.dumps(FIRST))
    values = [written(77, FIRST, {"id": 1}), written(first, FIRST, {"id": 2}), b"no header"]
    world.cluster.produce("orders", values)
    assert world.ask("CREATE STREAM orders WITH (format='avro'); SELECT * FROM orders") == [{"id": 2}]
    (told,) = (each for each in world.remarks if "left out" in each)
    assert told.startswith("2 records do not fit and were left out; the first: orders partition 0 offset 0:")
    assert "Schema 77 not found" in told


def test_registry_that_is_away_ends_a_query_and_leaves_nothing_out(world: World, registry: RegistryServer) -> None:
    first = registry.register("orders-value", json.dumps(FIRST))
    world.cluster.produce("orders", [written(first + 1, FIRST, {"id": 1})])
    with RegistryServer() as away:
        away.register("orders-value", json.dumps(FIRST))
        world.ask(f"CREATE STREAM orders WITH (format='avro', schema.registry.url='{away.url}')")
    told = world.refusal("SELECT * FROM orders")
    assert told.startswith(f"orders: the schema registry {away.url} does not answer:")
    assert "\n" not in told


def test_login_comes_from_a_file_and_stands_in_no_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "login.properties"
    with RegistryServer(user="ada:secret") as registry:
        file.write_text(f"basic.auth.user.info=ada:secret\nschema.registry.url={registry.url}/\n")
        registry.register("orders-value", json.dumps(FIRST))
        with pytest.raises(RegistryAway, match="Unauthorized"):
            SchemaRegistry(registry.url).latest("orders-value")
        monkeypatch.setenv(LOGIN_VARIABLE, str(file))
        world = World()
        world.cluster.produce("orders", [written(1, FIRST, {"id": 1})])
        world.ask(f"CREATE STREAM orders WITH (format='avro', schema.registry.url='{registry.url}')")
        assert world.ask("SELECT id FROM orders") == [{"id": 1}]
        world.ask(
            "CREATE STREAM ids WITH (format='avro', schema.registry.url='"
            + registry.url
            + "') AS SELECT id FROM orders"
        )
        world.engine.close()
    kept = b"".join(value or b"" for _, records in world.changes.written for _, value, _ in records)
    assert b"secret" not in kept
    assert "secret" not in json.dumps({**world.supervisor.configs["ids"]})
    file.write_text("basic.auth.user.info=ada:secret\n")
    with pytest.raises(RegistryAway, match=r"has no line schema\.registry\.url=URL"):
        SchemaRegistry(registry.url).latest("orders-value")
    file.write_text("user=ada\n")
    with pytest.raises(RegistryAway, match=r"has no line basic\.auth\.user\.info=USER:PASSWORD"):
        SchemaRegistry(registry.url).latest("orders-value")
    assert "is no http:// or https:// address" in world.refusal("SET 'schema.registry.url' = 'http://ada:secret@host'")
    for address in ("http://host/?apikey=secret", "http://ada?:secret@host", "http://host#secret"):
        told = world.refusal(f"SET 'schema.registry.url' = '{address}'")
        assert "an address with parameters, which none may have" in told
        assert "secret" not in told


def test_login_goes_to_no_registry_that_another_declaration_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.properties"
    file.write_text("basic.auth.user.info=ada:secret\nschema.registry.url=http://127.0.0.1:1\n")
    monkeypatch.setenv(LOGIN_VARIABLE, str(file))
    with RegistryServer(user="ada:secret") as other, pytest.raises(RegistryAway, match="Unauthorized"):
        SchemaRegistry(other.url).latest("orders-value")


@pytest.mark.parametrize("text", ["{path}", '"{path}"'])
def test_schema_of_a_registry_is_no_file_of_this_machine(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.avsc"
    file.write_text('"long"')
    with pytest.raises(ValueError, match=r"own\.avsc"):
        registered_schema(RegisteredSchema(1, "AVRO", text.format(path=file)))


def test_schema_of_avro_has_those_inside_that_it_refers_to(world: World, registry: RegistryServer) -> None:
    place = {"type": "record", "name": "Place", "namespace": "x", "fields": [{"name": "city", "type": "string"}]}
    order = {"type": "record", "name": "Order", "namespace": "x", "fields": [{"name": "to", "type": "x.Place"}]}
    registry.register("place", json.dumps(place))
    references = [{"name": "x.Place", "subject": "place", "version": 1}]
    number = registry.register("orders-value", json.dumps(order), references=references)
    inside = {**order, "fields": [{"name": "to", "type": place}]}
    world.cluster.produce("orders", [written(number, inside, {"to": {"city": "Ulm"}})])
    assert world.ask("CREATE STREAM orders WITH (format='avro'); SELECT to.city FROM orders") == [{"city": "Ulm"}]


def order_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    kind = ".google.protobuf.Timestamp"
    message.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, type_name=kind, label=Field.LABEL_OPTIONAL)
    return file


def test_message_of_protobuf_is_the_first_one_of_its_schema(world: World, registry: RegistryServer) -> None:
    text = base64.b64encode(order_file().SerializeToString()).decode()
    number = registry.register("orders-value", text, schemaType="PROTOBUF")
    at = timestamp_pb2.Timestamp(seconds=1_600_000_000).SerializeToString()
    value = header_of(number, (0,)) + b"\x08\x07\x12" + bytes([len(at)]) + at
    world.cluster.produce("orders", [value])
    rows = world.ask("CREATE STREAM orders WITH (format='protobuf'); SELECT id, epoch(at) AS at FROM orders")
    assert rows == [{"id": 7, "at": 1_600_000_000.0}]


def test_columns_of_json_are_those_of_its_schema(world: World, registry: RegistryServer) -> None:
    properties = {
        "Id": {"type": "integer"},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": ["null", "number"]}},
        "to": {"type": "object", "properties": {"city": {"type": "string"}}},
        "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "any": {"type": ["string", "integer"]},
    }
    schema = json.dumps({"type": "object", "properties": properties})
    number = registry.register("orders-value", schema, schemaType="JSON")
    row = {"Id": 1, "name": "ada", "tags": [1.5], "to": {"city": "Ulm"}, "more": {"x": True}, "any": [1]}
    world.cluster.produce("orders", [header_of(number) + json.dumps(row).encode(), json.dumps(row).encode()])
    world.ask("CREATE STREAM orders WITH (value_format='JSON_SR')")
    kinds = {each["column"]: each["type"] for each in world.ask("DESCRIBE orders")}
    assert (kinds["Id"], kinds["tags"], kinds["to"]) == ("BIGINT", "DOUBLE[]", 'STRUCT("city" VARCHAR)')
    assert world.ask("SELECT * FROM orders") == [row]
    world.ask("INSERT INTO orders (Id) VALUES (2)")
    assert world.ask("SELECT Id FROM orders WHERE Id = 2") == [{"Id": 2}]
    world.ask("CREATE TEMP STREAM declared (name VARCHAR) WITH (topic='orders', format='json', registry_header='true')")
    assert world.ask("SELECT name FROM declared WHERE name IS NOT NULL") == [{"name": "ada"}]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_schema_of_declared_columns_is_registered_and_values_have_its_id(
    world: World, registry: RegistryServer, kind: str
) -> None:
    world.ask(f"CREATE STREAM made (k VARCHAR KEY, id BIGINT, name VARCHAR) WITH (format='{kind}', partitions=1)")
    assert registry.subjects == {"made-value": [1]}
    world.ask("INSERT INTO made (k, id, name) VALUES ('a', 7, 'x')")
    ((_, value, _),) = world.changes.written[-1][1]
    assert value is not None
    assert value.startswith(header_of(1, (0,) if kind == "protobuf" else ()))
    assert world.ask("SELECT k, id, name FROM made") == [{"k": "a", "id": 7, "name": "x"}]
    assert world.ask(f"CREATE TEMP STREAM again WITH (topic='made', format='{kind}'); SELECT id FROM again") == [
        {"id": 7}
    ]


def test_standing_query_writes_by_its_topic_s_schema_and_registers_a_new_one(
    world: World, registry: RegistryServer
) -> None:
    registry.register("orders-value", json.dumps(FIRST))
    world.cluster.produce("orders", [written(1, FIRST, {"id": 1})])
    world.ask("CREATE STREAM orders WITH (format='avro')")
    world.ask("EXPLAIN CREATE STREAM twice WITH (format='avro') AS SELECT id * 2 AS id FROM orders")
    own = f"format='avro', schema.registry.url='{registry.url}'"
    world.ask(f"EXPLAIN CREATE STREAM twice WITH ({own}) AS SELECT id * 2 AS id FROM orders")
    assert "twice-value" not in registry.subjects
    world.ask("CREATE STREAM twice WITH (format='avro') AS SELECT id * 2 AS id FROM orders")
    plan = plan_read(json.loads(world.supervisor.configs["twice"]["plan"]))
    assert plan.sources[0].options["schema.registry.url"] == registry.url
    assert plan.value.options["registry_header"] == str(registry.subjects["twice-value"][0])


def test_subject_has_the_name_that_the_cluster_has_of_the_topic(world: World, registry: RegistryServer) -> None:
    world.cluster.produce("orders", [b'{"id": 1}'])
    world.cluster.produce("Twice", [])
    world.ask("CREATE STREAM twice WITH (format='avro') AS SELECT id FROM orders")
    assert list(registry.subjects) == ["Twice-value"]


def test_schema_that_is_given_beside_a_registry_is_registered_where_values_are_written(
    world: World, registry: RegistryServer, tmp_path: Path
) -> None:
    """Their declaration wants an id in front of each value."""
    file = tmp_path / "first.avsc"
    file.write_text(json.dumps(FIRST))
    world.cluster.produce("orders", [b'{"id": 1}'])
    own = f"format='avro', schema='{file}', schema.registry.url='{registry.url}'"
    world.ask(f"CREATE STREAM twice WITH ({own}) AS SELECT id FROM orders")
    plan = plan_read(json.loads(world.supervisor.configs["twice"]["plan"]))
    assert [str(each) for each in registry.subjects["twice-value"]] == [plan.value.options["registry_header"]]
    world.cluster.produce("read", [])
    world.ask(f"CREATE STREAM read WITH ({own})")
    assert "read-value" not in registry.subjects
    for text in ("INSERT INTO read (id) VALUES (1)", "INSERT INTO read SELECT id FROM orders"):
        assert "registry_header=ID says which schema's is written" in world.refusal(text)


def test_a_statement_that_is_refused_leaves_the_registry_as_it_is(world: World, registry: RegistryServer) -> None:
    world.cluster.produce("orders", [b'{"id": 1}'])
    world.ask("CREATE STREAM orders WITH (format='json')")
    world.ask("CREATE STREAM twice (id BIGINT) WITH (topic='orders', format='json')")
    assert "declared already" in world.refusal("CREATE STREAM twice WITH (format='avro') AS SELECT id FROM orders")
    world.cluster.produce("others", [b"x"])
    assert "declared already" in world.refusal("CREATE STREAM twice (id INT) WITH (topic='others', format='avro')")
    own = "topic='others', format='avro', key='no such column'"
    assert "has no column" in world.refusal(f"CREATE STREAM others (id BIGINT) WITH ({own})")
    assert registry.subjects == {}


def test_explain_finds_what_the_registered_schema_has_not(world: World, registry: RegistryServer) -> None:
    world.cluster.produce("orders", [b'{"id": 1}'])
    registry.register("twice-value", json.dumps(FIRST))
    told = world.refusal("EXPLAIN CREATE STREAM twice WITH (format='avro') AS SELECT id, id * 2 AS more FROM orders")
    assert told == "the schema has no field more"


@pytest.mark.parametrize("name", ["VALUE_AVRO_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME"])
def test_a_schema_that_is_registered_has_the_full_name_that_is_wanted(
    world: World, registry: RegistryServer, name: str
) -> None:
    world.cluster.produce("orders", [b'{"id": 1}'])
    made = f"WITH (VALUE_FORMAT='AVRO', {name}='com.acme.Twice')"
    world.ask(f"CREATE STREAM twice {made} AS SELECT id * 2 AS id FROM orders")
    world.cluster.produce("others", [b"x"])
    world.ask(f"CREATE STREAM others (id BIGINT) {made.replace(')', ', PARTITIONS=1)')}")
    for subject in ("twice-value", "others-value"):
        (found,) = registry.subjects[subject]
        _, document = registry.answer(f"/schemas/ids/{found}", None)
        assert json.loads(document["schema"])["name"] == "com.acme.Twice"
    wrong = f"WITH (KAFKA_TOPIC='others', VALUE_FORMAT='JSON', {name}='x')"
    told = world.refusal(f"CREATE STREAM wrong (id BIGINT) {wrong}")
    assert told == "value_schema_full_name is no option of format json"


def test_a_schema_of_the_registry_that_is_nested_too_deep_is_told_in_a_line(
    world: World, registry: RegistryServer
) -> None:
    deep = '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000
    registry.register("orders-value", f'{{"type":"record","name":"R","fields":[{{"name":"a","type":{deep}}}]}}')
    registry.register("others-value", f'{{"properties":{{"a":{deep}}}}}', schemaType="JSON")
    for topic, kind in (("orders", "avro"), ("others", "json_sr")):
        world.cluster.produce(topic, [b"x"])
        assert "nested too deep" in world.refusal(f"CREATE STREAM {topic} WITH (format='{kind}')")


def test_schema_that_is_of_another_kind_or_not_there_is_told_in_a_line(world: World, registry: RegistryServer) -> None:
    registry.register("orders-value", json.dumps(FIRST))
    for topic in ("orders", "others"):
        world.cluster.produce(topic, [b"x"])
    assert world.refusal("CREATE STREAM orders WITH (format='protobuf')") == (
        "orders is protobuf, and its schema in the registry is AVRO"
    )
    assert world.refusal("CREATE STREAM others WITH (format='avro')") == (
        f"others: the registry {registry.url} has no subject others-value"
    )
    assert "Schema 9 not found" in world.refusal("CREATE STREAM others WITH (format='avro', value_schema_id=9)")
