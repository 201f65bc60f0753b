"""The wheel in environments of its own: what a base install weighs, and that the fixtures go with any client."""

from __future__ import annotations

import os
import re
import shlex
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from harness.pybroker_process import serving

from pybroker import __version__
from pybroker.extras import DISTRIBUTION
from tests.distribution.environments import Environment, environment_with
from tests.docs.consoles import check_shell
from tests.docs.pages import examples
from tests.source_tree import ROOT

pytestmark = pytest.mark.slow

README = ROOT / "README.md"

# What a test broker may cost the environments of those who use it.  The bar is 40 (docs/limits.md, Memory).
BASE_MB_MAX = 48.3

WITH_CONFLUENT = """
from confluent_kafka import Consumer, Producer


def test_an_event_arrives(pybroker, pybroker_topic):
    producer = Producer({"bootstrap.servers": pybroker.bootstrap})
    producer.produce(pybroker_topic, b"hello")
    assert producer.flush(10) == 0
    settings = {"bootstrap.servers": pybroker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([pybroker_topic])
    message = consumer.poll(20)
    assert message.value() == b"hello"
    consumer.close()
"""

WITH_AIOKAFKA = """
import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def test_an_event_arrives(pybroker, pybroker_topic):
    async def send_and_read():
        async with AIOKafkaProducer(bootstrap_servers=pybroker.bootstrap) as producer:
            await producer.send_and_wait(pybroker_topic, b"hello")
        settings = {"bootstrap_servers": pybroker.bootstrap, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(pybroker_topic, **settings) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(send_and_read()) == b"hello"
"""


def run_test(environment: Environment, folder: Path, code: str) -> None:
    (folder / "test_events.py").write_text(code)
    done = environment.run("pytest", "test_events.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path is as short as a user's: each compiled module holds the path of its source."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_readmes_for_developers_are_not_in_the_wheel(wheel: Path) -> None:
    with ZipFile(wheel) as files:
        assert not [name for name in files.namelist() if name.endswith(".md")]


def test_a_base_install_is_small_and_serves(wheel: Path, short_folder: Path, tmp_path: Path) -> None:
    environment = environment_with(short_folder / "env", str(wheel))
    assert environment.size_mb() <= BASE_MB_MAX
    program, data = str(environment.folder / "bin" / "pybroker"), str(tmp_path / "data")
    command = [program, "serve", "--listen", "127.0.0.1:0", "--data-dir", data]
    with serving(command) as served:
        assert served.host == "127.0.0.1"
        assert served.stop() == 0


def test_what_needs_an_extra_ends_in_a_line_without_it(wheel: Path, tmp_path: Path) -> None:
    environment = environment_with(tmp_path / "env", str(wheel))
    for command in (("pybroker",), ("pybroker", "--help"), ("pybroker", "serve", "--help")):
        done = environment.run(*command)
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage: pybroker" in done.stdout.lower()
    assert environment.run("pybroker", "--version").stdout == f"pybroker {__version__}\n"
    for command, extra in (
        (("pybroker", "topics", "list"), "cli"),
        (("python", "-m", "examples.flights"), "demo"),
    ):
        done = environment.run(*command)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert f"pip install '{DISTRIBUTION}[{extra}] @ {wheel.as_uri()}'" in line


def test_the_readme_example_passes_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    (example,) = (example for example in examples("python", README) if "pybroker_topic" in example.code)
    (install,) = (
        line.removeprefix("pip install ").split()
        for shown in examples("sh", README)
        for line in shown.code.splitlines()
        if line.startswith("pip install pytest")
    )
    run_test(environment_with(tmp_path / "env", str(wheel), *install), tmp_path, example.code)


def test_checkout_that_the_readme_installs_serves_and_has_the_commands_of_its_example(tmp_path: Path) -> None:
    """Nothing else is there: the shell finds the commands by the page's line alone."""
    readme, quick_start = (path.read_text() for path in (README, ROOT / "docs" / "quick-start.md"))
    (install,) = re.findall(r"'/path/to/checkout(\[cli\])'", readme)
    (serve,) = re.findall(r"`(pybroker serve --listen 127.0.0.1):9092( .*?)`", quick_start)
    environment = environment_with(tmp_path / ".venv", f"{ROOT}{install}")
    program, *words = f"{serve[0]}:0{serve[1]}".split()
    where = shlex.join([str(environment.folder / "bin" / program), *words])
    with serving(["bash", "-c", f"cd {shlex.quote(str(tmp_path))} && exec {where}"]) as served:
        (console,) = examples("console", README)
        check_shell(console, tmp_path, {"PATH": os.defpath, "PYBROKER_BOOTSTRAP": served.bootstrap})
        assert served.stop() == 0


def test_the_fixtures_go_with_kafka_python_2(wheel: Path, tmp_path: Path) -> None:
    environment = environment_with(tmp_path / "env", str(wheel), "pytest", "kafka-python<3")
    (example,) = (example for example in examples("python", README) if "pybroker_topic" in example.code)
    run_test(environment, tmp_path, example.code)
    told = environment.run("pybroker", "topics", "list").stderr
    assert "confluent-kafka>=2.6" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(("client", "code"), [("confluent-kafka", WITH_CONFLUENT), ("aiokafka", WITH_AIOKAFKA)])
def test_the_fixtures_go_with_another_client_alone(wheel: Path, tmp_path: Path, client: str, code: str) -> None:
    environment = environment_with(tmp_path / "env", str(wheel), "pytest", client)
    assert not (environment.site_packages / "kafka").exists()
    run_test(environment, tmp_path, code)


WITH_SPARK = """
import os
import sys

# As an activated environment has it: Spark looks for python3.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
rows = spark.read.format("pybroker").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()
print(",".join(rows.columns))
"""


@pytest.mark.jvm
def test_every_session_of_spark_has_the_data_source_without_a_call(wheel: Path, tmp_path: Path) -> None:
    """Spark itself is that of the tests' environment, by a path that brings no package of the checkout along."""
    environment = environment_with(tmp_path / "env", "--no-deps", str(wheel))
    (environment.site_packages / "spark.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (tmp_path / "job.py").write_text(WITH_SPARK)
    done = environment.run("python", "job.py", cwd=tmp_path)
    assert done.stdout.strip() == "key,value,topic,partition,offset,timestamp,timestampType", done.stderr
