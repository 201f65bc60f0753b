"""Names in the statements of the sink into PostgreSQL.  Needs PySpark and no JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pybroker.pipeline.upserts import Table


def test_a_column_may_have_quotes_in_its_name() -> None:
    table = Table("t", {'the "word"': "text", 'how "many"': "bigint"}, ('the "word"',))
    merge = table.merge("staged", 1, "q")
    for name in table.columns:
        assert name not in table.creation() + merge
    assert 'PRIMARY KEY ("the ""word""")' in table.creation()
    assert 'known."the ""word""" = latest."the ""word"""' in merge
    assert '"how ""many""" = EXCLUDED."how ""many"""' in merge


def test_epochs_stand_in_the_schema_of_their_table() -> None:
    for name, found in (("words", '"upsert_epochs"'), ("mart.words", '"mart"."upsert_epochs"')):
        assert f"EXISTS {found} (" in Table(name, {}, ()).beginning(1, "q")[0]
    dotted = Table("mart.words.old", {}, ())
    assert dotted.identifier == '"mart"."words.old"'
    assert 'EXISTS "mart"."upsert_epochs" (' in dotted.beginning(1, "q")[0]
