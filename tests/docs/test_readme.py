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


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def client_example(broker: Broker, named: str) -> str:
    """What the example with ``named`` in it prints against the broker."""
    (example,) = [code for code in PYTHON_EXAMPLES if "127.0.0.1:9092" in code and named in code]
    return run_python(example.replace("127.0.0.1:9092", broker.bootstrap))


def test_client_example_works_when_pasted(kafka_broker: Broker) -> None:
    printed = client_example(kafka_broker, "greetings")
    assert [line.split()[-1] for line in printed.splitlines()] == ["0'", "1'", "2'"]


def test_transaction_example_works_when_pasted(kafka_broker: Broker) -> None:
    assert client_example(kafka_broker, "transactional_id") == "[b'committed']\n"


def test_in_process_example_works_when_pasted() -> None:
    (example,) = [code for code in PYTHON_EXAMPLES if "with Broker()" in code]
    assert run_python(example) == "0\n"


@pytest.mark.parametrize(
    "command", [line for text in SHELL_EXAMPLES for line in text.splitlines() if "pybroker" in line]
)
def test_shell_example_names_existing_commands_and_options(command: str) -> None:
    arguments = command.split("pybroker ", 1)[1].split("#", maxsplit=1)[0].split()
    words = [word for word in arguments if not word.startswith("-")]
    verbs = words[: 2 if words[0] in ("topics", "groups", "transactions") else 1]
    program = [str(Path(sys.executable).parent / "pybroker"), *verbs, "--help"]
    shown = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout
    for option in (argument for argument in arguments if argument.startswith("-") and not argument.startswith("-f")):
        assert option in shown, f"{' '.join(verbs)} has no {option}"
