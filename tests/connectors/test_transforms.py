"""Transforms as expressions of SQL, and which of Connect's are taken by name."""

from __future__ import annotations

import re

import pytest

from pybroker.connectors.declared.transforms import (
    OWN_COLUMNS,
    FieldMissing,
    split_expressions,
    transform_errors,
    transforms_of,
)

FIELDS = {"id": "bigint", "name": "string", "amount": "decimal(10,2)"}


def columns(**settings: str) -> list[str]:
    """The columns of the value behind a transform; own columns only where they are changed."""
    config = {"transforms": "a", **{f"transforms.a.{key.replace('_', '.')}": text for key, text in settings.items()}}
    assert transform_errors(config) == {}
    (transform,) = transforms_of(config)
    own = [f"`{name}`" for name in OWN_COLUMNS]
    return [each for each in transform.projection(FIELDS).columns if each not in own]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"type": "sql"}, ["`id`", "`name`", "`amount`"]),
        ({"type": "sql", "select": "id, concat(name, ', x') AS n"}, ["id", "concat(name, ', x') AS n"]),
        ({"type": "sql", "key": "id"}, ["id AS `_key`", "`id`", "`name`", "`amount`"]),
        ({"type": "ReplaceField$Value", "exclude": "name"}, ["`id` AS `id`", "`amount` AS `amount`"]),
        (
            {"type": "org.apache.kafka.connect.transforms.ReplaceField$Value", "include": "id", "renames": "id:key"},
            ["`id` AS `key`"],
        ),
        (
            {"type": "MaskField$Value", "fields": "name", "replacement": "it's"},
            ["`id`", "if(`name` IS NULL, NULL, CAST('it\\'s' AS string)) AS `name`", "`amount`"],
        ),
        (
            {"type": "MaskField$Value", "fields": "id, amount"},
            [
                "if(`id` IS NULL, NULL, CAST(0 AS bigint)) AS `id`",
                "`name`",
                "if(`amount` IS NULL, NULL, CAST(0 AS decimal(10,2))) AS `amount`",
            ],
        ),
        (
            {"type": "InsertField$Value", "topic.field": "t", "static.field": "s", "static.value": "v"},
            ["`id`", "`name`", "`amount`", "`_topic` AS `t`", "'v' AS `s`"],
        ),
        ({"type": "ValueToKey", "fields": "id"}, ["`id`", "`name`", "`amount`", "struct(`id`) AS `_key`"]),
        ({"type": "ExtractField$Key", "field": "id"}, ["`id`", "`name`", "`amount`", "`_key`.`id` AS `_key`"]),
        ({"type": "HoistField$Value", "field": "all"}, ["struct(`id`, `name`, `amount`) AS `all`"]),
        ({"type": "Cast$Value", "spec": "id:string"}, ["CAST(`id` AS STRING) AS `id`", "`name`", "`amount`"]),
        (
            {"type": "RegexRouter", "regex": "a-(.*)", "replacement": "b-$1"},
            ["`id`", "`name`", "`amount`", "regexp_replace(`_topic`, '^(?:a-(.*))$', 'b-$1') AS `_topic`"],
        ),
        (
            {"type": "RegexRouter", "regex": "(?<db>.*)-(?<=-)b", "replacement": "${db}"},
            ["`id`", "`name`", "`amount`", "regexp_replace(`_topic`, '^(?:(?<db>.*)-(?<=-)b)$', '${db}') AS `_topic`"],
        ),
    ],
)
def test_a_transform_is_a_list_of_expressions(settings: dict[str, str], expected: list[str]) -> None:
    assert columns(**{key.replace(".", "_"): text for key, text in settings.items()}) == expected


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"transforms.a.type": "org.apache.kafka.connect.transforms.ReplaceFeld$Value"},
            "there is no transform org.apache.kafka.connect.transforms.ReplaceFeld$Value; is ReplaceField$Value meant?",
        ),
        ({"transforms.a.type": "Filter"}, "there is no transform Filter; type sql says in SQL what it does"),
        ({"transforms.a.type": "Cast$Value"}, 'Missing required configuration "transforms.a.spec"'),
        ({"transforms.a.type": "Cast$Value", "transforms.a.spec": "a:int"}, "spec has the type int; there are int8"),
        ({"transforms.a.type": "Cast$Value", "transforms.a.spec": "int8"}, "spec names no field: int8"),
        ({"transforms.a.type": "ValueToKey", "transforms.a.field": "x"}, "ValueToKey has no field; is fields meant?"),
        (
            {
                "transforms.a.type": "ReplaceField$Value",
                **{"transforms.a.renames": "id:key, name", "transforms.a.include": "id"},
            },
            "Invalid rename mapping: name",
        ),
        ({"transforms": "a, b, a", **{f"transforms.{each}.type": "sql" for each in "ab"}}, "Duplicate alias"),
        ({}, 'Missing required configuration "transforms.a.type"'),
        ({"transforms.a.type": "sql", "transforms.b.type": "sql"}, "transforms does not name b"),
        ({"transforms.a.type": "sql", "predicates": "p"}, "predicates are not there"),
        ({"transforms.a.type": "sql", "transforms.a.select": "id,,name"}, "an expression too few"),
        (
            {"transforms.a.type": "RegexRouter", "transforms.a.regex": "(", "transforms.a.replacement": "x"},
            "regex is no regular expression",
        ),
    ],
)
def test_a_transform_that_cannot_be_meant_is_refused_by_name(config: dict[str, str], told: str) -> None:
    (errors,) = transform_errors({"transforms": "a", **config}).values()
    assert told in errors[0]


@pytest.mark.parametrize(
    ("kind", "replacement", "told"),
    [
        ("struct<a:int>", None, "MaskField cannot mask x: it is struct<a:int>"),
        ("binary", None, "MaskField cannot mask x: it is binary"),
        ("boolean", "no", "MaskField cannot mask x with a replacement: it is boolean"),
        ("array<int>", "no", "MaskField cannot mask x with a replacement: it is array<int>"),
    ],
)
def test_what_kafka_masks_not_is_not_masked(kind: str, replacement: str | None, told: str) -> None:
    settings = {"transforms.a.type": "MaskField$Value", "transforms.a.fields": "x"}
    if replacement is not None:
        settings["transforms.a.replacement"] = replacement
    (transform,) = transforms_of({"transforms": "a", **settings})
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        transform.projection({"x": kind})


def test_a_field_that_the_value_has_not_is_told_when_it_is_known() -> None:
    config = {"transforms": "a", "transforms.a.type": "ValueToKey", "transforms.a.fields": "nam"}
    assert transform_errors(config) == {}
    with pytest.raises(FieldMissing, match="no field nam; is name meant"):
        transforms_of(config)[0].projection(FIELDS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b", ["a", "b"]),
        ("f(a, b), c", ["f(a, b)", "c"]),
        ("'a, b', \"c, d\", `e, f`", ["'a, b'", '"c, d"', "`e, f`"]),
        ("'it\\'s, so', x", ["'it\\'s, so'", "x"]),
        ("array(1, map('k', 2)), y", ["array(1, map('k', 2))", "y"]),
    ],
)
def test_expressions_are_parted_at_commas_outside_of_brackets_and_texts(text: str, parts: list[str]) -> None:
    assert split_expressions(text) == parts
