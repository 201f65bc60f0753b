"""Dead letters that their own topic refuses.  Needs PySpark and no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.connectors.declared.plugin_kinds import kind_named

pytest.importorskip("pyspark")

TOO_LARGE = """\
[STREAM_FAILED] Query terminated with exception: Job aborted
Traceback (most recent call last):
  File "writers.py", line 1, in write
pybroker.pipeline.NotDelivered: KafkaError{code=MSG_SIZE_TOO_LARGE,val=10,str="Unable to produce message"}

== SQL ==
SELECT 1
"""


def test_a_dead_letter_that_its_topic_refuses_ends_the_connector_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkException

    from pybroker.connectors.kinds import dead_letters
    from pybroker.connectors.kinds.connector_runs import Work

    def refuse(*_: Any, **__: Any) -> None:
        raise PySparkException(TOO_LARGE)

    monkeypatch.setattr(dead_letters, "write_once", refuse)
    monkeypatch.setattr(dead_letters, "_letters", lambda *_: None)
    kind = kind_named("JdbcSink")
    assert kind is not None
    place: Any = None
    config = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "orders-dlq"}
    work = Work("s", kind, config, None, {}, "", "", lambda _: "", place)
    bad: Any = None
    with pytest.raises(dead_letters.LettersRefused) as refused:
        dead_letters.write_letters(work, bad, (), "group", 1)
    assert refused.value.__cause__ is None
    assert str(refused.value) == (
        "a dead letter cannot be written to orders-dlq, so that the connector ends: "
        'pybroker.pipeline.NotDelivered: KafkaError{code=MSG_SIZE_TOO_LARGE,val=10,str="Unable to produce message"}'
    )
