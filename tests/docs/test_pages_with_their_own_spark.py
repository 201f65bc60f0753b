"""The pages on Delta and on Declarative Pipelines do what they say, each with the Spark that it starts.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import process_tree

from pybroker.testing import Broker
from tests.docs.consoles import check_block
from tests.docs.pages import ADDRESS, examples
from tests.source_tree import ROOT

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.slow, pytest.mark.timeout(400)]

FOLDER = ROOT / "docs" / "pipeline"
BIN = Path(sys.executable).parent
ENDED_WITHIN_S = 180

# The last micro-batch of the page comes again, as after a crash.
TRIED_AGAIN = """
add(spark.createDataFrame([("ann", "300")], "key string, value string"), 0)
print(spark.table("totals").where("customer = 'ann'").first().cents)
add(spark.createDataFrame([("ann", "300")], "key string, value string"), 1)
print(spark.table("totals").where("customer = 'ann'").first().cents)
"""


def run(command: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    done = process_tree.run(
        command,
        ENDED_WITHIN_S,
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_merge_into_delta_counts_a_micro_batch_once_and_its_changes_are_in_a_topic(tmp_path: Path) -> None:
    (example,) = examples("python", FOLDER / "delta.md")
    (tmp_path / "page.py").write_text(example.code + TRIED_AGAIN)
    done = run([sys.executable, "page.py"], tmp_path)
    assert example.prints is not None
    assert done.stdout == f"{example.prints}300\n600\n"


def test_a_declared_pipeline_takes_each_line_from_topic_to_topic_once_though_it_is_run_again(tmp_path: Path) -> None:
    page = FOLDER / "declarative-pipelines.md"
    ((specification,), (code,), (_, commands)) = (examples(each, page) for each in ("yaml", "python", "sh"))
    (console,) = examples("console", page)
    with Broker() as broker:
        storage = (tmp_path / "storage").as_uri()
        (tmp_path / "spark-pipeline.yml").write_text(specification.code.replace("file:///tmp/words", storage))
        (tmp_path / "words.py").write_text(code.code.replace(ADDRESS, broker.bootstrap))
        feeding, *running = commands.code.replace(ADDRESS, broker.bootstrap).splitlines()
        run(["bash", "-e", "-c", feeding], tmp_path)
        for _ in range(2):
            run(["bash", "-e", "-c", "\n".join(running)], tmp_path)
        shown = console._replace(code=console.code.replace(ADDRESS, broker.bootstrap))
        check_block(shown, tmp_path, broker.bootstrap)
