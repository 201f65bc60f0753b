"""Spark's Python processes are forks of one that has imported what they need, or the ordinary ``python``."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.waiting import wait_until

from pybroker.pipeline import warm_python
from pybroker.pipeline.warm_python import running
from pybroker.pipeline.warm_python.launcher import SHELL

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.skipif(sys.platform != "linux", reason="forks are not made elsewhere"),
]

SERVER = "pybroker.pipeline.warm_python.fork_server"
TELL = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("TOLD"), sys.stdin.read(), os.getppid()]))
print("an error", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A launcher with a server of its own, beside that of a session that other tests share."""
    monkeypatch.setattr(running._running, "server", None)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    path = warm_python.launcher_path()
    assert path is not None
    yield path
    warm_python.end()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "tell.py").write_text(TELL)
    return tmp_path / "modules"


def server_pid() -> int:
    assert running._running.server is not None
    return running._running.server.process.pid


def run(python: str, *arguments: str, told: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, *arguments],
        input=told,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def is_fork(python: str, modules: Path, **environment: str) -> bool:
    (modules / "parent.py").write_text("import os; print(os.getppid())")
    return int(run(python, "-m", "parent", PYTHONPATH=str(modules), **environment).stdout) == server_pid()


def test_a_fork_is_what_python_would_be(python: str, modules: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(modules), "TOLD": "yes"}
    told = [
        subprocess.run(
            [command, "-m", "tell", "-x", "y"],
            input="given",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment,
            cwd=tmp_path,
        )
        for command in (python, sys.executable)
    ]
    parents = [each.stdout.rpartition(", ")[2] for each in told]
    assert parents == [f"{server_pid()}]\n", f"{os.getpid()}]\n"]
    assert told[0].stdout.removesuffix(parents[0]) == told[1].stdout.removesuffix(parents[1])
    assert (told[0].stderr, told[0].returncode) == ("an error\n", 7) == (told[1].stderr, told[1].returncode)


def test_a_module_that_fails_says_so_as_it_does_in_python(python: str) -> None:
    failed = run(python, "-m", "pyspark.no_such_module")
    assert failed.returncode == 1
    assert "No module named pyspark.no_such_module" in failed.stderr


def test_what_a_fork_shares_is_imported_already(python: str, modules: Path) -> None:
    (modules / "names.py").write_text("import sys; print(*sys.modules)")
    told = run(python, "-m", "names", PYTHONPATH=str(modules)).stdout.split()
    assert {"pyspark.worker", "pandas", "pyarrow", "confluent_kafka"} <= set(told)
    ours = ("directory", "range_reader", "epoch_transactions")
    assert {f"pybroker.pipeline.topics.{name}" for name in ours} <= set(told)


def test_forks_draw_different_random_numbers(python: str, modules: Path) -> None:
    (modules / "draw.py").write_text("import random, numpy; print(random.random(), numpy.random.random())")
    drawn = [run(python, "-m", "draw", PYTHONPATH=str(modules)).stdout.split() for _ in range(2)]
    assert len({number for each in drawn for number in each}) == 4


def test_another_interpreter_than_the_server_is_not_forked(python: str, modules: Path) -> None:
    assert is_fork(python, modules)
    assert is_fork(python, modules, PYTHONHASHSEED="0")
    assert not is_fork(python, modules, PYTHONHASHSEED="1")
    assert not is_fork(python, modules, OMP_NUM_THREADS="3")
    assert run(python, "-c", "import os; print(os.getppid())").stdout == f"{os.getpid()}\n"


def test_what_a_fork_prints_is_there_though_it_ends_without_a_flush(python: str, modules: Path) -> None:
    (modules / "prints.py").write_text("import os; print('told'); os._exit(0)")
    assert run(python, "-m", "prints", PYTHONPATH=str(modules)).stdout == "told\n"


def test_where_the_server_is_gone_python_runs_the_module(python: str, modules: Path) -> None:
    assert running._running.server is not None
    running._running.server.process.kill()
    running._running.server.process.wait(10)
    told = run(python, "-m", "tell", PYTHONPATH=str(modules))
    assert told.returncode == 7
    assert told.stdout.endswith(f"{os.getpid()}]\n")


def test_a_launcher_that_is_killed_takes_its_fork_along(python: str) -> None:
    with subprocess.Popen(
        [python, "-m", "pyspark.daemon", "pyspark.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        assert len(launcher.stdout.read(4)) == 4, "the port where the daemon listens"
        (fork,) = psutil.Process(server_pid()).children()
        launcher.kill()
    wait_until(lambda: not fork.is_running(), "the fork to end")
    assert psutil.pid_exists(server_pid())


def test_a_launcher_that_waits_is_a_shell_and_ends_as_its_fork_does(python: str) -> None:
    """An interpreter that waits would have as much memory of its own as the fork that it waits for."""
    with subprocess.Popen(
        [python, "-m", "pyspark.daemon", "pyspark.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        assert len(launcher.stdout.read(4)) == 4, "the port where the daemon listens"
        wait_until(lambda: psutil.Process(launcher.pid).cmdline()[0] == SHELL, "the launcher to wait")
        (fork,) = psutil.Process(server_pid()).children()
        fork.kill()
        assert launcher.wait(10) == 128 + signal.SIGKILL


def test_a_launcher_whose_server_is_killed_fails(python: str, modules: Path) -> None:
    (modules / "wait.py").write_text("import sys; print(flush=True); sys.stdin.read()")
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    with subprocess.Popen(
        [python, "-m", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        psutil.Process(server_pid()).kill()
        assert launcher.wait(10) == 1


def test_a_launcher_that_is_killed_after_its_fork_has_ended_costs_the_server_nothing(
    python: str, modules: Path
) -> None:
    (modules / "wait.py").write_text("import sys; print(flush=True); sys.stdin.read()")
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    with (
        subprocess.Popen(
            [python, "-m", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as launcher,
        socket.socket(socket.AF_UNIX) as busy,
    ):
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        launcher.stdout.readline()
        (fork,) = psutil.Process(server_pid()).children()
        busy.connect(str(Path(python).parent / "socket"))  # the server waits for its order, and then hears of both
        launcher.stdin.close()
        wait_until(lambda: fork.status() == psutil.STATUS_ZOMBIE, "the fork to end")
        launcher.kill()
        launcher.wait()
    assert is_fork(python, modules)


def test_the_server_ends_with_whoever_started_it(modules: Path) -> None:
    program = (
        "import os; from pybroker.pipeline import warm_python as w; print(w.launcher_path(), flush=True); os._exit(9)"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=60).stdout
    directory = Path(told.strip()).parent
    assert directory.name.startswith("pybroker-python-")
    wait_until(lambda: not directory.exists(), "the server to end, and to remove its directory", 30.0)


def test_at_the_end_nothing_is_left(python: str) -> None:
    directory, server = Path(python).parent, psutil.Process(server_pid())
    assert warm_python.end()
    assert not directory.exists()
    assert not server.is_running()
    assert not warm_python.end()


def test_tasks_of_a_session_on_this_machine_are_forks(spark: Any) -> None:
    def command(_: int) -> str:
        return Path("/proc/self/cmdline").read_text()

    (told,) = set(spark.sparkContext.parallelize(range(4), 2).map(command).collect())
    assert SERVER in told
    assert os.environ["PYSPARK_PYTHON"] == sys.executable, "a child may begin a session on a cluster"
