"""What we encode, Apache Kafka's own classes decode and encode again into the same bytes: for every message."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from harness.apache_kafka import JARS_VARIABLE
from harness.waiting import PATIENCE_S

from pybroker_protocol import codec
from pybroker_protocol.schema import Message

from .kafka_definitions import jars
from .message_classes import messages_and_versions
from .random_messages import random_message

PROGRAM = Path(__file__).with_name("ReadAndWriteAgain.java")
EXAMPLES = 20

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java on this machine"),
    pytest.mark.skipif(not jars(), reason=f"Kafka's jars are not here: run scripts/kafka-jars or set {JARS_VARIABLE}"),
]


def random_cases() -> list[tuple[Message, int]]:
    random = Random(20)
    cases = messages_and_versions()
    # Kafka itself cannot read the first header any longer.
    served = [(cls, version) for cls, version in cases if (cls.__name__, version) != ("RequestHeader", 0)]
    return [(random_message(random, cls, version), version) for cls, version in served for _ in range(EXAMPLES)]


def test_kafka_reads_what_we_write_and_writes_the_same() -> None:
    cases = random_cases()
    lines = [f"{type(message).__name__} {version} {codec.encode(message, version).hex()}" for message, version in cases]
    command = ["java", "-Xmx256m", "-cp", f"{jars()[0].parent}/*", str(PROGRAM)]
    result = subprocess.run(
        command,
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    answers = result.stdout.splitlines()
    assert len(answers) == len(lines)
    wrong = [
        f"{line}\n  kafka: {answer}"
        for line, answer in zip(lines, answers, strict=True)
        if line.split(" ")[2] != answer
    ]
    assert not wrong, f"{len(wrong)} of {len(lines)} differ, among them\n" + "\n".join(wrong[:10])
