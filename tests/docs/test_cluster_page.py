"""The page on clusters: its test passes, and its commands print what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S
from kafka import KafkaConsumer, KafkaProducer

from tests.docs.consoles import check_block
from tests.docs.pages import Example, examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "cluster.md"
BIN = Path(sys.executable).parent
DATA_DIR = re.compile(r"--data-dir (\S+)")
# What starts a cluster, and what joins the one that runs.
JOINING = [example for example in examples("sh", PAGE) if "pybroker-cluster/metadata.db" in example.code]
STARTING = [example for example in examples("sh", PAGE) if example not in JOINING]


def test_the_pages_test_passes(tmp_path: Path) -> None:
    (example,) = examples("python", PAGE)
    (tmp_path / "test_orders.py").write_text(example.code)
    command = [str(BIN / "pytest"), "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_pages_commands_print_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its top to its end: what it tells to start in between runs from there on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    text = PAGE.read_text()
    blocks = sorted([*JOINING, *examples("console", PAGE)], key=lambda block: text.index(block.code))
    ran = 0
    with ExitStack() as stack:
        served = stack.enter_context(serving([COMMAND, "cluster", "up", "--brokers", "3", "--dev", "--port", "0"]))
        for block in blocks:
            if block in JOINING:
                joined = stack.enter_context(serving(["bash", "-c", f"exec {started_by(block)}"]))
                stack.callback(joined.stop)
            else:
                ran += check_block(block, tmp_path, addresses_of_those_that_run())
        assert ran > 20
        assert served.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("example", STARTING, ids=str)
def test_what_the_page_tells_to_start_serves_groups(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a shell, as the page has it but for ports, which are free ones; the lines of one block run at a time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    with ExitStack() as stack:
        for line in started_by(example).splitlines():
            assert line.startswith("pybroker ")
            served = stack.enter_context(serving(["bash", "-c", f"exec {line}"]))
            stack.callback(served.stop)
        assert greeted(served.bootstrap) == b"hello"


def addresses_of_those_that_run() -> str:
    """The brokers of ``cluster up``: here one that is restarted has another port, on the page its own."""
    brokers = json.loads(Path("pybroker-cluster", "cluster.json").read_text())["brokers"]
    return ",".join(broker["address"] for broker in brokers if broker["serves"])


def started_by(example: Example) -> str:
    """The commands of a block, on free ports."""
    code = re.sub(r"--listen 127.0.0.1:\d+", "--listen 127.0.0.1:0", example.code)
    return code.replace("cluster up", "cluster up --port 0")


def greeted(bootstrap: str) -> bytes:
    """What a member of a group reads that was written before."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send("greetings", b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "greetings",
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * PATIENCE_S,
    )
    value: bytes = next(consumer).value
    consumer.close()
    return value


def test_the_page_starts_nothing_on_a_directory_that_the_guide_has_filled() -> None:
    """Workers refuse a directory with the data of a single broker."""
    guide = "".join(example.code for example in examples("sh", PAGE.parent / "guide.md"))
    page = "".join(example.code for example in examples("sh", PAGE))
    assert "data" in DATA_DIR.findall(guide)
    assert not set(DATA_DIR.findall(page)) & set(DATA_DIR.findall(guide))


def test_the_image_has_what_a_broker_of_several_machines_needs() -> None:
    image = (ROOT / "Dockerfile").read_text()
    assert 'pip install --no-cache-dir ".[cli,zookeeper]"' in image
    assert {"EXPOSE 9092 29092", "EXPOSE 9092/udp 29092/udp"} <= set(image.splitlines())
