"""The pages tell the truth: their tables are generated, their links lead somewhere, and their examples do what
they say.

What needs a broker runs against the one that ``scripts/run`` starts, because that is what the pages tell to start.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from harness.apache_kafka import KAFKA_VERSION
from harness.pybroker_process import serving
from harness.waiting import PATIENCE_S

import pybroker
from tests.cli.command import CommandLine
from tests.docs.consoles import check_shell
from tests.docs.pages import ADDRESS, DEVELOPER_PAGES, PAGES, Example, anchors, examples, pasted, without_echo
from tests.source_tree import ROOT, relative

BIN = Path(sys.executable).parent
README, GUIDE, QUICK_START = ROOT / "README.md", ROOT / "docs" / "guide.md", ROOT / "docs" / "quick-start.md"
TESTING = ROOT / "docs" / "testing-api.md"
README_WORDS_MAX = 720


def docs_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", docs_script().PAGES)
def test_generated_tables_are_up_to_date(page: str) -> None:
    text = (ROOT / page).read_text()
    assert docs_script().filled(page, text) == text, "run .venv/bin/python scripts/docs.py"


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in (*PAGES, *DEVELOPER_PAGES, ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if "://" not in target and (not path.exists() or (anchor and anchor not in anchors(path))):
                broken.append(f"{relative(page)}: {target}")
    assert not broken


def test_readme_is_read_in_a_minute() -> None:
    """Its figures and its links included; how many loads Kafka wins is no matter of style."""
    lines = README.read_text().splitlines()
    assert sum(len(line.split()) for line in lines if not line.startswith("Apache Kafka wins ")) <= README_WORDS_MAX


def test_readme_says_what_kafka_wins_as_the_tables_of_all_loads_do() -> None:
    loads = f"{docs_script().LOADS}\n|---|---|---|---|---|---|\n| a, b | 2.00× | | pybroker | | |\n"
    alone = "| c | 3 ms | | | | |\n"
    wins = docs_script().kafka_wins
    assert wins(f"## One\n{loads}{alone}\n## Two\n{loads}") == "Apache Kafka wins none of the 2 loads that both run."
    other = loads.replace("2.00×", "0.50×").replace("pybroker", "**Kafka**")
    assert wins(f"{loads}{alone}\n\n{other}\n") == (
        "Apache Kafka wins 1 of 2 loads (pybroker ÷ Kafka in parentheses): a, b (0.50×)."
    )


@pytest.mark.parametrize("page", [*PAGES, *DEVELOPER_PAGES], ids=relative)
def test_headings_are_what_people_search_for(page: Path) -> None:
    """The thing or the task ("Remove a broker"), and no half sentence ("One less", "In a test", "More")."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    assert headings
    words = "A|An|The|One|In|By|As|With|From|On|When|While|What|Who|Which|How|Can|Is|Around|Behind|More"
    vague = re.compile(rf"({words})\b")
    assert not [heading for heading in headings if vague.match(heading)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of the broker that ``scripts/run`` starts, with another port and directory for the test's sake."""
    own = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path_factory.mktemp("data")))
    with serving([ROOT / "scripts" / "run", *own]) as served:
        yield served.bootstrap
        assert served.stop() == 0


class Typist:
    """Types the pages' examples, each once and in order, and keeps what they printed."""

    def __init__(self, address: str) -> None:
        self._address = address

    def paste(self, example: Example) -> None:
        """Paste a Python example into an interactive Python."""
        printed = pasted(example, example.code.replace(ADDRESS, self._address))
        assert example.prints is not None, "say what it prints"
        assert without_echo(printed, example.prints) == example.prints

    def type(self, example: Example) -> None:
        """Type the commands of a console example in the checkout."""
        check_shell(example, ROOT, {"PYBROKER_BOOTSTRAP": self._address})


def test_the_readme_prints_what_it_says(address: str) -> None:
    (console,) = examples("console", README)
    Typist(address).type(console)


def test_the_quick_start_prints_what_it_says_from_its_top_to_its_end(address: str) -> None:
    typist = Typist(address)
    (python,) = (example for example in examples("python", QUICK_START) if ADDRESS in example.code)
    (console,) = examples("console", QUICK_START)
    typist.paste(python)
    typist.type(console)


def test_the_readme_says_what_the_project_is_today() -> None:
    """Its version, licence, Pythons and Kafka are those of the project."""
    rows = dict(re.findall(r"^\| ([\w ]+) \| (.*) \|$", README.read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rows["version"].split(",")[0] == pybroker.__version__
    assert rows["licence"] == project["license"]
    assert rows["Python"] == f"{project['requires-python'].removeprefix('>=')} or newer"
    assert f"Apache Kafka {KAFKA_VERSION}" in rows["protocol"]


@pytest.mark.parametrize("example", [*examples("python", GUIDE), *examples("python", TESTING)], ids=str)
def test_the_guide_prints_what_it_says(example: Example, address: str) -> None:
    Typist(address).paste(example)


def test_records_that_a_page_does_not_show_are_noticed(address: str) -> None:
    """Also where the page's consumer ends by itself, and a test ends it sooner."""
    code = """\
from kafka import KafkaConsumer, KafkaProducer

producer = KafkaProducer(bootstrap_servers="127.0.0.1:9092")
for value in (b"shown", b"hidden"):
    producer.send("shown", value).get(10)

producer.close()
consumer = KafkaConsumer(
    "shown", bootstrap_servers="127.0.0.1:9092", auto_offset_reset="earliest", consumer_timeout_ms=2000
)
print([message.value for message in consumer])
consumer.close()
"""
    with pytest.raises(AssertionError, match="hidden"):
        Typist(address).paste(Example(README, "python", code, "[b'shown']\n"))


def test_the_fixtures_example_passes(tmp_path: Path) -> None:
    (example,) = (example for example in examples("python", README) if "pybroker_topic" in example.code)
    (tmp_path / "test_events.py").write_text(example.code)
    command = [str(BIN / "pytest"), "-p", "no:cacheprovider", "test_events.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    "command",
    [line for example in examples("sh") for line in example.code.splitlines() if re.search(r"(^|\| )pybroker ", line)],
)
def test_shell_example_names_existing_commands_and_options(command: str) -> None:
    arguments = re.split(r"(?:^|\| )pybroker ", command)[1].split("#", maxsplit=1)[0].split()
    words = [word for word in arguments if not word.startswith("-")]
    groups = (
        "topics", "configs", "groups", "transactions", "cluster", "logdirs", "features", "acls", "connect", "tokens",
    )  # fmt: skip
    verbs = words[: 2 if words[0] in groups else 1]
    shown = CommandLine("").ok(*verbs, "--help").decode()
    for option in (argument for argument in arguments if argument.startswith("-") and not argument.startswith("-f")):
        assert option in shown, f"{' '.join(verbs)} has no {option}"
