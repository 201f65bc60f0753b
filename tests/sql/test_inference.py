"""What samples say of a topic."""

from __future__ import annotations

import pytest

from pybroker.sql.declared.inference import json_columns, relation_of
from pybroker.sql.relations.catalog import Format


def columns(*values: bytes) -> list[tuple[str, str]]:
    found = relation_of("t", values)
    assert found.format is Format.JSON
    return [(column.name, column.type) for column in found.columns]


def test_objects_of_json_have_the_fields_of_all_samples() -> None:
    assert columns(b'{"id": 1, "name": "a"}', b'{"id": 2, "ok": true, "price": 1.5}') == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
        ("ok", "BOOLEAN"),
        ("price", "DOUBLE"),
    ]


def test_nested_fields_are_structs_and_lists() -> None:
    assert columns(b'{"who": {"name": "a", "age": 1}, "tags": ["x"], "none": null, "empty": []}') == [
        ("who", 'STRUCT("name" VARCHAR, "age" BIGINT)'),
        ("tags", "VARCHAR[]"),
        ("none", "JSON"),
        ("empty", "JSON[]"),
    ]


def kinds_beside_nested(depth: int) -> dict[str, str]:
    """The columns' types of an object with a field ``id``, and with ``deep`` of so many objects in each other."""
    found = relation_of("t", [b'{"id": 1, "deep": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"])
    return {column.name: column.type for column in found.columns}


def test_what_is_nested_deep_is_json_within_its_structs() -> None:
    kinds = kinds_beside_nested(200)
    assert kinds["id"] == "BIGINT"
    assert "JSON" in kinds["deep"]
    assert kinds["deep"].count("STRUCT") <= 32


@pytest.mark.parametrize("depth", [700, 100_000])
def test_what_is_nested_too_deep_for_python_is_no_error(depth: int) -> None:
    kinds = kinds_beside_nested(depth)
    assert kinds.get("id", "BIGINT") == "BIGINT"
    assert kinds.get("deep", "").count("STRUCT") <= 32


def test_whole_numbers_and_fractions_are_fractions() -> None:
    assert columns(b'{"a": 1}', b'{"a": 1.5}') == [("a", "DOUBLE")]


def test_whole_numbers_of_which_some_are_negative_are_whole_numbers() -> None:
    assert columns(b'{"a": 1, "b": {"c": [-1]}}', b'{"a": -1, "b": {"c": [1]}}') == [
        ("a", "BIGINT"),
        ("b", 'STRUCT("c" BIGINT[])'),
    ]


def test_whole_numbers_beyond_a_bigint_have_a_type_that_takes_them() -> None:
    most = 2**64 - 1
    texts = [f'{{"a": {most}, "b": 1, "c": -1, "d": {most + 1}}}', f'{{"a": 1, "b": 2, "c": {most}, "d": 1}}']
    kinds = {column.name: column.type for column in json_columns(texts)}
    assert kinds == {"a": "UBIGINT", "b": "BIGINT", "c": "HUGEINT", "d": "DOUBLE"}


def test_fields_whose_names_differ_by_case_alone_are_one_column() -> None:
    assert columns(b'{"ID": 1, "id": 2}') == [("ID", "BIGINT")]
    assert columns(b'{"a": {"ID": 1, "id": 2}}') == [("a", "JSON")]


def test_field_named_as_a_column_of_every_record_is_not_a_second_one() -> None:
    assert columns(b'{"url": "/", "_key": "x", "_Offset": 1}') == [("url", "VARCHAR")]


def test_field_whose_name_no_column_can_have_is_left_out() -> None:
    assert columns(b'{"": 1, "a\\u0000b": 2, "c": 3}') == [("c", "BIGINT")]
    assert columns(b'{"c": {"": 1}}') == [("c", "JSON")]


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([], Format.TEXT),
        ([b"a line"], Format.TEXT),
        ([b'{"a": 1}', b"a line"], Format.TEXT),
        ([b"{not json}"], Format.TEXT),
        ([b"[1]"], Format.TEXT),
        ([b"\xff"], Format.BYTES),
    ],
)
def test_what_is_no_object_in_all_samples_is_text_or_bytes(values: list[bytes], form: Format) -> None:
    found = relation_of("t", values)
    assert found.format is form
    assert [column.name for column in found.columns] == ["value"]


def test_object_with_very_many_fields_is_one_value() -> None:
    many = "{" + ",".join(f'"k{number}": 1' for number in range(1_000)) + "}"
    assert relation_of("t", [many.encode()]).format is Format.TEXT
    assert columns(b'{"a": ' + many.encode() + b"}") == [("a", "JSON")]
