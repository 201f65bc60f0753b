"""What the pages on connectors and SQL have a supervisor do: rows come to where the pages say, and are those they show.

Starts a JVM; needs what `scripts/spark-setup` installs.  The pages share one supervisor, which costs seconds to start:
the line of the page on connectors starts it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from examples.tour.postgres import Postgres, own_postgres, program
from pybroker.connectors.rest.rest_client import RestClient
from pybroker.testing import Broker
from tests.cli.command import CommandLine, forked_commands
from tests.connectors.supervisor_world import url_of, works
from tests.docs.consoles import BIN, check_block
from tests.docs.pages import ADDRESS, Example, examples
from tests.source_tree import ROOT

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(900)]

CONNECTORS, SQL = ROOT / "docs" / "connectors.md", ROOT / "docs" / "sql.md"
KSQLDB = ROOT / "docs" / "ksqldb-examples.md"
# A JVM that starts beside others may take minutes on a busy machine.
SPARK_PATIENCE_S = 3 * PATIENCE_S
# What the supervisor and the sessions keep.
OWN_TOPICS = ("connect-", "sql-declarations", "__")
PASSWORD = "a-password"


@dataclass(frozen=True)
class Reader:
    """Someone who has started what the pages tell to start, in a folder of their own, and types the rest."""

    broker: Broker
    postgres: Postgres
    folder: Path
    url: str

    @property
    def variables(self) -> dict[str, str]:
        return {"PYBROKER_BOOTSTRAP": self.broker.bootstrap, "PYBROKER_CONNECT_URL": self.url}

    def type(self, line: str) -> str:
        """What a command prints, which succeeds."""
        (name, *words) = shlex.split(line)
        assert name == "pybroker"
        environment = {**os.environ, **self.variables}
        done = forked_commands().run(words, environment, b"", SPARK_PATIENCE_S)
        assert done.returncode == 0, (line, done.stderr.decode())
        return done.stdout.decode()

    def table(self, query: str) -> list[str]:
        """Rows of the pages' database, as its user sees them; none while the table is not there."""
        address = {"PGHOST": "127.0.0.1", "PGPORT": str(self.postgres.port), "PGDATABASE": "shop"}
        done = subprocess.run(
            [str(program("psql")), "-qAtX", "-c", query],
            env={**os.environ, **address, "PGUSER": "shop", "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout.splitlines()


def commands_of_first_connector() -> list[str]:
    (block,) = (each for each in examples("sh", CONNECTORS) if "connect serve" in each.code)
    return block.code.splitlines()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The files of the page on connectors are written, and its supervisor works."""
    folder = tmp_path_factory.mktemp("pages")
    with Broker() as broker, own_postgres() as postgres:
        postgres.sql(f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
        postgres.sql("CREATE DATABASE shop OWNER shop")
        (folder / "shop.properties").write_text(f"password={PASSWORD}\n")
        (folder / "in").mkdir()
        declared, worker = examples("yaml", CONNECTORS)[0].code, examples("properties", CONNECTORS)[0].code
        for place, own in (
            ("127.0.0.1:5432", f"127.0.0.1:{postgres.port}"),
            ("/etc/shop.properties", str(folder / "shop.properties")),
            ("/data/in", str(folder / "in")),
        ):
            assert place in declared
            declared = declared.replace(place, own)
        (folder / "connectors.yaml").write_text(declared)
        (folder / "worker.properties").write_text(worker)
        (serve,) = (line for line in commands_of_first_connector() if "connect serve" in line)
        assert ADDRESS in serve
        own = f"{serve.replace(ADDRESS, broker.bootstrap)} --listen 127.0.0.1:0"
        path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
        shell = ["bash", "-c", f"cd {shlex.quote(str(folder))} && exec {own}"]
        process = ChildProcess(shell, folder / "supervisor.log", path)
        try:
            url = url_of(process)
            wait_until(partial(works, RestClient(url)), "a supervisor that works")
            yield Reader(broker, postgres, folder, url)
        finally:
            code = process.terminate(PATIENCE_S)
        assert code == 0, process.log_tail()


@pytest.fixture(autouse=True)
def each_page_begins_in_its_folder_without_topics(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(reader.folder)
    yield
    client = RestClient(reader.url)
    for name in client.ask("GET", "connectors"):
        client.ask("DELETE", "connectors", name)
    cli = CommandLine(reader.broker.bootstrap)
    made = [each["name"] for each in cli.json("topics", "list") if not each["name"].startswith(OWN_TOPICS)]
    if made:
        cli.ok("topics", "delete", *made)


def test_first_connectors_of_the_page_bring_rows_of_files_into_its_table(reader: Reader) -> None:
    arriving = reader.folder / "arriving.csv"
    arriving.write_text("1,ann,250\n2,bob,1200\n")
    arriving.rename(reader.folder / "in" / "1.csv")
    validate, topic, serve, create, listed = commands_of_first_connector()
    assert "connect serve" in serve
    assert reader.type(validate) == ""
    assert "orders\tcreated" in reader.type(topic)
    assert reader.type(create).splitlines()[1:] == ["orders-from-files\tsource", "orders-to-postgres\tsink"]

    def states() -> list[str]:
        return [line.split("\t")[4] for line in reader.type(listed).splitlines()[1:]]

    wait_until(lambda: states() == ["RUNNING", "RUNNING"], "connectors that run", SPARK_PATIENCE_S)
    rows = partial(reader.table, "SELECT id, customer, cents FROM orders ORDER BY id")
    wait_until(lambda: rows() == ["1|ann|250", "2|bob|1200"], "the rows of the file", SPARK_PATIENCE_S)
    log = (reader.folder / "supervisor.log").read_text()
    assert "orders-from-files failed" not in log
    assert "orders-to-postgres failed" not in log


def write_schemas(folder: Path) -> None:
    """The two files that the page on SQL names."""
    (avro,) = examples("json", SQL)
    (folder / "order.avsc").write_text(avro.code)
    assert "a message `shop.Order` with the fields `int64 id` and `double amount`" in SQL.read_text()
    made = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = made.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    order.field.add(name="amount", number=2, type="TYPE_DOUBLE", label="LABEL_OPTIONAL")
    (folder / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())


def check_statements(block: Example, reader: Reader) -> None:
    """A block's statements succeed as they stand, and its questions are answered as the page says in a while."""
    text = block.code.replace("/etc/", f"{reader.folder}/")
    file = reader.folder / "statements.sql"
    file.write_text(text)
    reader.type(f"pybroker sql -f {file.name}")
    questions = [each for each in text.split(";") if each.strip().startswith("SELECT")]
    if block.prints is None:
        assert not questions, "say what they print"
        return
    file.write_text(";".join(questions))
    wanted, printed = block.prints, [""]

    def answered() -> bool:
        printed[0] = reader.type(f"pybroker sql -f {file.name}")
        return printed[0] == wanted

    try:
        wait_until(answered, "the rows of standing queries", SPARK_PATIENCE_S)
    except TimeoutError:
        assert printed[0] == wanted
        raise


def test_standing_queries_of_the_page_write_the_rows_that_it_shows(reader: Reader) -> None:
    """From the top of the page to its end."""
    (serve,) = (line for each in examples("sh", SQL) for line in each.code.splitlines())
    assert set(serve.split()) <= {word for line in commands_of_first_connector() for word in line.split()}
    write_schemas(reader.folder)
    text = SQL.read_text()
    statements = examples("sql", SQL)
    assert len(statements) > 3
    for block in sorted([*statements, *examples("console", SQL)], key=lambda each: text.index(each.code)):
        if block in statements:
            check_statements(block, reader)
        else:
            check_block(block, reader.folder, reader.broker.bootstrap, reader.variables)


def sections() -> dict[str, list[Example]]:
    """The examples of ksqlDB's, by the heading that they stand under."""
    text, found = KSQLDB.read_text(), defaultdict(list)
    for block in examples("sql", KSQLDB):
        before = text[: text.index(block.code)]
        found[re.findall(r"^## (.*)$", before, re.MULTILINE)[-1]].append(block)
    return found


@pytest.mark.parametrize("section", sections())
def test_ksqldb_s_examples_write_the_rows_that_the_page_shows(reader: Reader, section: str) -> None:
    for block in sections()[section]:
        check_statements(block, reader)
