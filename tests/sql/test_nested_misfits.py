"""What does not fit inside of a value of JSON leaves its record out, as a field of the value itself does."""

from __future__ import annotations

import pytest

from pybroker.sql.fetching.nested_misfits import misfit_inside
from pybroker.sql.relations.catalog import Column, Format
from tests.sql.test_relation_decoding import decoded, relation


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("STRUCT(b BIGINT)", '{"b":"seven"}'),
        ("STRUCT(b BIGINT)", "5"),
        ("STRUCT(b VARCHAR)", "5"),
        ("STRUCT(b STRUCT(c VARCHAR))", '"x"'),
        ("STRUCT(b STRUCT(c VARCHAR))", '{"b":[]}'),
        ("MAP(VARCHAR, BIGINT)[]", '[{"x":1},{"x":"u"}]'),
        ("STRUCT(b VARCHAR)[]", '[{"b":"x"},7]'),
        ("STRUCT(b BIGINT)", '{"b":{"c":5}}'),
        ("STRUCT(b STRUCT(c TIMESTAMP))", '{"b":{"c":"noon"}}'),
        ('STRUCT("it\'s a/b~c" BIGINT)', '{"it\'s a/b~c":"x"}'),
        ("BIGINT[]", '[1,"x"]'),
        ("BIGINT[]", "5"),
        ("VARCHAR[]", '{"a":1}'),
        ("BIGINT[2]", '[1,"x"]'),
        ("BIGINT[][]", '[[1],[2,"x"]]'),
        ("STRUCT(b BIGINT)[]", "[5]"),
        ("STRUCT(b BIGINT[])[]", '[{"b":[1]},{"b":[1,{}]}]'),
        ("MAP(VARCHAR, BIGINT)", '{"x":1,"y":"u"}'),
        ("MAP(BIGINT, BIGINT)", '{"x":1}'),
        ("MAP(VARCHAR, STRUCT(b BIGINT))", '{"x":{"b":"u"}}'),
        ("STRUCT(m MAP(BIGINT, VARCHAR))", '{"m":{"x":"y"}}'),
    ],
)
def test_record_with_a_misfit_inside_is_left_out_and_counted(kind: str, document: str) -> None:
    column = Column("a", kind, "a")
    rows, misfits = decoded(relation(Format.JSON, [column]), [b"nonsense", f'{{"a":{document}}}'.encode(), b"{}"])
    assert rows == [{"a": None}]
    assert misfits.count == 2
    _, misfits = decoded(relation(Format.JSON, [column]), [f'{{"a":{document}}}'.encode()])
    assert str(misfits.first).endswith(f"a is no {kind}")


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("STRUCT(b BIGINT)", "null"),
        ("STRUCT(b BIGINT)", "{}"),
        ("STRUCT(b BIGINT)", '{"b":null}'),
        ("STRUCT(b BIGINT)", '{"b":"7"}'),
        ("STRUCT(b BIGINT, c STRUCT(d DOUBLE))", '{"b":1,"c":null}'),
        ("STRUCT(b VARCHAR, c JSON)", '{"b":{"x":1},"c":null}'),
        ("BIGINT[]", "[]"),
        ("BIGINT[]", "[1,null]"),
        ("STRUCT(b BIGINT)[]", '[null,{},{"b":null}]'),
        ("MAP(VARCHAR, BIGINT)", '{"x":null}'),
        ("JSON[]", '[null,1,"x",{}]'),
    ],
)
def test_null_inside_is_no_misfit(kind: str, document: str) -> None:
    rows, misfits = decoded(relation(Format.JSON, [Column("a", kind, "a")]), [f'{{"a":{document}}}'.encode()])
    assert (len(rows), misfits.count) == (1, 0)


def test_type_without_an_inside_has_no_condition() -> None:
    assert misfit_inside("v", "d", "f", "BIGINT") is None
    assert misfit_inside("v", "d", "f", "DECIMAL(10, 2)") is None
