"""The JVM of Debezium's engine as its owner sees it: how it does not start, how it ends, and what it leaves behind.

A program in place of Java says and does what one does; no JVM is started.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pybroker.connectors.declared.source_kinds import DEBEZIUM_POSTGRES
from pybroker.connectors.kinds.debezium_engine import DebeziumEngine, EngineEnded, EngineJvm
from pybroker.pipeline.jars import JARS_DIR_VARIABLE

PROPERTIES = {"connector.class": DEBEZIUM_POSTGRES, "name": "shop"}

Java = Callable[[str], None]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Have a script be Java, and its jars be there."""
    jars, home = tmp_path / "jars", tmp_path / "home"
    jars.mkdir()
    for artifact in ("debezium-embedded", "debezium-connector-postgres"):
        name = f"{artifact}-3.6.1.Final.jar"
        (jars / name).touch()
        (jars / f"{name}.whole-packages").write_text(f"{name}\n")
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(jars))
    monkeypatch.setenv("JAVA_HOME", str(home))

    def made(script: str) -> None:
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_java_that_is_not_there_is_said(java: Java, tmp_path: Path) -> None:
    with pytest.raises(EngineEnded, match=r"home/bin/java cannot be started: No such file or directory"):
        DebeziumEngine(PROPERTIES, {})


def test_java_that_ends_at_its_start_is_said(java: Java) -> None:
    java("exit 1")
    with pytest.raises(EngineEnded, match=r"bin/java ends at its start with 1; its options are -Xmx512m"):
        DebeziumEngine(PROPERTIES, {})


@pytest.mark.parametrize(
    ("code", "told"), [(3, "needs more than its 512 MB: max.batch.size"), (137, "JVM has ended with 137")]
)
def test_end_of_the_jvm_is_said_with_what_it_ended(java: Java, code: int, told: str) -> None:
    java(f"echo {free_port()}; echo token; exit {code}")
    with pytest.raises(EngineEnded, match=told):
        DebeziumEngine(PROPERTIES, {})


def test_jvm_ends_with_its_engine_and_garbage_is_told_to_none(java: Java, caplog: pytest.LogCaptureFixture) -> None:
    from py4j.java_gateway import JavaObject

    java(f"echo {free_port()}; echo token; exec cat > /dev/null")
    jvm = EngineJvm(DEBEZIUM_POSTGRES)
    held = JavaObject("o1", jvm.gateway._gateway_client)
    jvm.close()
    assert jvm.process.poll() == 0
    with caplog.at_level(logging.DEBUG, logger="py4j"):
        del held
    assert caplog.records == []
