"""The README tells the truth: its tables are generated, its examples run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pybroker.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PYTHON_EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL_EXAMPLES = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def docs_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_up_to_date() -> None:
    assert docs_script().filled(README) == README, "run .venv/bin/python scripts/docs.py"


def pasted(code: str) -> list[str]:
    """The lines that an interactive Python prints when the code is pasted into it, and Enter pressed once more."""
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=f"{code}\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert "Error" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def client_example(broker: Broker, named: str) -> list[str]:
    """What the example with ``named`` in it prints against the broker."""
    (example,) = [code for code in PYTHON_EXAMPLES if "127.0.0.1:9092" in code and named in code]
    return pasted(example.replace("127.0.0.1:9092", broker.bootstrap))


def test_client_example_works_when_pasted(kafka_broker: Broker) -> None:
    printed = client_example(kafka_broker, "greetings")
    assert [line.split()[-1] for line in printed if "b'hello" in line] == ["0'", "1'", "2'"]


def test_transaction_example_works_when_pasted(kafka_broker: Broker) -> None:
    assert "[b'committed']" in client_example(kafka_broker, "transactional_id")


def test_in_process_example_works_when_pasted() -> None:
    (example,) = [code for code in PYTHON_EXAMPLES if "with Broker()" in code]
    assert "0" in pasted(example)


@pytest.mark.parametrize(
    "command",
    [
        line
        for text in SHELL_EXAMPLES
        for line in text.splitlines()
        if "pybroker " in line and not line.startswith("docker")
    ],
)
def test_shell_example_names_existing_commands_and_options(command: str) -> None:
    arguments = command.split("pybroker ", 1)[1].split("#", maxsplit=1)[0].split()
    words = [word for word in arguments if not word.startswith("-")]
    verbs = words[: 2 if words[0] in ("topics", "groups", "transactions") else 1]
    program = [str(Path(sys.executable).parent / "pybroker"), *verbs, "--help"]
    shown = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout
    for option in (argument for argument in arguments if argument.startswith("-") and not argument.startswith("-f")):
        assert option in shown, f"{' '.join(verbs)} has no {option}"
