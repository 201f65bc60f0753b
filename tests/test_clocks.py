"""Time has one door: the broker reads its clock, sets timers and sleeps by ``Env``, and by nothing else.

What goes past it is real in the simulation and in every test whose time is virtual: there it is as wrong as it is rare.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.source_tree import BROKER, WIRE, parsed, python_files, relative

# Programs and tools: beside the broker or around it, in real time.
NOT_THE_BROKER = ("pybroker/cli/", "pybroker/connectors/", "pybroker/pipeline/", "pybroker/sql/", "pybroker/testing/")
# Of a module's names these have to do with time; of ``time`` it is all but how long the processor was used.
CLOCKS = {
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "asyncio.timeout",
    "asyncio.timeout_at",
    "asyncio.wait_for",
    "asyncio.sleep",
}
PROCESSOR_TIME = {"time.process_time", "time.process_time_ns", "time.thread_time", "time.thread_time_ns"}

EXCUSED = {
    "pybroker/net/loop_env.py": "the door itself",
    "pybroker/storage/cleaner/__main__.py": "a process of its own, without a loop",
    "pybroker/cluster/store/zookeeper/zookeeper_operations.py": "no timer runs while a broker's start or end blocks",
    "pybroker/bounded_http.py": "of a thread that waits for a server, which no simulation has",
    "pybroker/security/certificate_authority.py": "of a command that makes certificates; no broker imports it",
}


def reads_of_time(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every place where a module tells time or waits past ``Env``: (line, what it uses)."""
    names = dict(_imported_names(tree))
    rounds = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_zero(node.args)}
    for node in ast.walk(tree):
        used = _dotted(node, names)
        if used is not None and _is_clock(used) and not (used == "asyncio.sleep" and id(node) in rounds):
            yield node.lineno, used  # type: ignore[attr-defined]  # a name or an attribute
        elif isinstance(node, ast.Call) and not node.args and _is_a_loops_time(node.func, names):
            yield node.lineno, "the loop's time()"


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What imports at any depth bind: (name, what it stands for)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """What a name or an attribute stands for, if it begins with what was imported."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, names)
        return None if owner is None else f"{owner}.{node.attr}"
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _is_clock(used: str) -> bool:
    return used in CLOCKS or (used.startswith("time.") and used not in PROCESSOR_TIME)


def _is_zero(arguments: list[ast.expr]) -> bool:
    """Of ``asyncio.sleep``: a turn of the loop, which is no time."""
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0


def _is_a_loops_time(function: ast.expr, names: dict[str, str]) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "time" and _dotted(function, names) is None


def of_the_broker() -> list[Path]:
    return [path for path in python_files(BROKER, WIRE) if not relative(path).startswith(NOT_THE_BROKER)]


def test_only_the_ports_tell_the_broker_the_time() -> None:
    past_env = [
        f"{relative(path)}:{line} uses {used}"
        for path in of_the_broker()
        if relative(path) not in EXCUSED
        for line, used in reads_of_time(parsed(path))
    ]
    assert not past_env, "take it from Env:\n" + "\n".join(past_env)


def test_who_is_excused_needs_it() -> None:
    files = {relative(path): path for path in of_the_broker()}
    idle = [path for path in EXCUSED if path not in files or not any(reads_of_time(parsed(files[path])))]
    assert not idle, f"these read no clock: {idle}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time\nsince = time.monotonic()", ["time.monotonic"]),
        ("from time import monotonic_ns as now\ndef f(now_ns=now): ...", ["time.monotonic_ns"]),
        ("import time\ndef f(clock=time.time_ns): ...", ["time.time_ns"]),
        ("def f():\n    from time import sleep\n    sleep(1)", ["time.sleep"]),
        ("import datetime as d\nd.datetime.now(d.UTC)", ["datetime.datetime.now"]),
        ("from datetime import datetime\ndatetime.utcnow()", ["datetime.datetime.utcnow"]),
        ("import asyncio\nasync def f(s):\n    await asyncio.sleep(s)", ["asyncio.sleep"]),
        ("import asyncio\nasync def f(x):\n    await asyncio.wait_for(x, 1)", ["asyncio.wait_for"]),
        ("import asyncio\nasync def f():\n    async with asyncio.timeout(1): ...", ["asyncio.timeout"]),
        ("class C:\n    def f(self):\n        return self._loop.time()", ["the loop's time()"]),
    ],
)
def test_a_read_of_time_past_env_is_found(code: str, found: list[str]) -> None:
    assert [used for _, used in reads_of_time(ast.parse(code))] == found


def test_what_is_no_time_of_the_world_is_let_be() -> None:
    code = """
        import asyncio, time
        from datetime import UTC, datetime
        async def f(self, env):
            await asyncio.sleep(0)
            env.timers.call_later(5, self.go_on)
            return env.clock.now_ms(), datetime.fromtimestamp(0, UTC), time.process_time_ns()
    """
    assert list(reads_of_time(ast.parse(dedent(code)))) == []
