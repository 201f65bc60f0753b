"""``pybroker connect``: what the commands ask over REST, and what they print."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer

import pytest

from pybroker.connectors.rest.rest_client import NoAnswer, ReplyRefused, RestClient
from pybroker.connectors.supervision.membership import Waits
from tests.cli.command import CommandLine, end_forked_commands
from tests.connectors.rest_world import WORKER, World, served

FILE = """\
name: lines
config:
  connector.class: FileSource
  path: /in
  format: text
  topic: lines
---
name: rows
connector.class: JdbcSink
topics: orders
connection.url: jdbc:postgresql://h/d
connection.password: ${file:/p:k}
"""


@pytest.fixture(scope="module")
def cli() -> Iterator[CommandLine]:
    yield CommandLine("127.0.0.1:1")
    end_forked_commands()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with served(world) as address:
        yield address


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = tmp_path / "connectors.yaml"
    made.write_text(FILE)
    return str(made)


def test_declarations_are_created_listed_and_deleted(cli: CommandLine, world: World, url: str, file: str) -> None:
    assert cli.lines("connect", "create", file, "--url", url) == ["NAME\tTYPE", "lines\tsource", "rows\tsink"]
    world.supervisor.step()
    assert cli.lines("connect", "list", "--url", url) == [
        "NAME\tTYPE\tSTATE\tWORKER\tTASKS\tREASON",
        f"lines\tsource\tRUNNING\t{WORKER}\tRUNNING\t-",
        f"rows\tsink\tRUNNING\t{WORKER}\tRUNNING\t-",
    ]
    for name in ("lines", "rows"):
        cli.ok("connect", "delete", name, "--url", url)
    assert cli.json("connect", "list", "--url", url) == []


def test_a_connector_that_is_there_is_replaced_only_where_that_is_asked_for(
    cli: CommandLine, url: str, file: str
) -> None:
    cli.ok("connect", "create", file, "--url", url)
    refused = cli.run("connect", "create", file, "--url", url)
    assert (refused.returncode, refused.stderr) == (1, b"pybroker: Connector lines already exists\n")
    cli.ok("connect", "create", file, "--replace", "--url", url)


def test_a_new_connector_does_first_what_its_declaration_says(
    cli: CommandLine, world: World, url: str, tmp_path: Path
) -> None:
    made = tmp_path / "a.yaml"
    made.write_text(f"initial_state: STOPPED\n{FILE.partition('---')[0]}")
    for replace in ([], ["--replace"]):
        cli.ok("connect", "create", str(made), *replace, "--url", url)
        world.supervisor.step()
        assert cli.json("connect", "status", "lines", "--url", url)["connector"]["state"] == "STOPPED"
        assert world.runs == []
    # Of one that is there it says nothing.
    cli.ok("connect", "resume", "lines", "--url", url)
    cli.ok("connect", "create", str(made), "--replace", "--url", url)
    world.supervisor.step()
    assert cli.json("connect", "status", "lines", "--url", url)["connector"]["state"] == "RUNNING"
    cli.ok("connect", "delete", "lines", "--url", url)
    cli.ok("connect", "create", str(made), "--replace", "--url", url)
    world.supervisor.step()
    assert cli.json("connect", "status", "lines", "--url", url)["connector"]["state"] == "STOPPED"


def test_a_status_tells_why_a_connector_failed(cli: CommandLine, world: World, url: str, file: str) -> None:
    cli.ok("connect", "create", file, "--url", url)
    world.supervisor.step()
    world.runs[0].failure = "the disk is full\nand more"
    world.supervisor.step()
    assert cli.lines("connect", "status", "lines", "--url", url)[1] == (
        f"lines\tsource\tRUNNING\t{WORKER}\tFAILED\tthe disk is full"
    )


def test_a_connector_is_paused_resumed_stopped_and_restarted(
    cli: CommandLine, world: World, url: str, file: str
) -> None:
    cli.ok("connect", "create", file, "--url", url)
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED"), ("resume", "RUNNING")):
        cli.ok("connect", verb, "rows", "--url", url)
        world.supervisor.step()
        assert cli.json("connect", "status", "rows", "--url", url)["connector"]["state"] == state
    started = len(world.runs)
    cli.ok("connect", "restart", "rows", "--only-failed", "--url", url)
    world.supervisor.step()
    assert len(world.runs) == started
    cli.ok("connect", "restart", "rows", "--url", url)
    world.supervisor.step()
    assert len(world.runs) == started + 1


def test_offsets_are_shown_changed_and_reset(
    cli: CommandLine, world: World, url: str, file: str, tmp_path: Path
) -> None:
    cli.ok("connect", "create", file, "--url", url)
    world.groups.offsets["connect-rows"] = {("orders", 0): 7}
    assert cli.lines("connect", "offsets", "rows", "--url", url) == [
        "PARTITION\tOFFSET",
        '{"kafka_partition": 0, "kafka_topic": "orders"}\t{"kafka_offset": 7}',
    ]
    cli.ok("connect", "stop", "rows", "--url", url)
    world.supervisor.step()
    document = tmp_path / "offsets.json"
    document.write_text(json.dumps(cli.json("connect", "offsets", "rows", "--url", url)).replace("7", "3"))
    cli.ok("connect", "offsets", "rows", "--alter", str(document), "--url", url)
    assert world.groups.offsets["connect-rows"] == {("orders", 0): 3}
    cli.ok("connect", "offsets", "rows", "--reset", "--url", url)
    assert world.groups.offsets == {}
    assert cli.run("connect", "offsets", "rows", "--reset", "--alter", "x", "--url", url).returncode == 2


def test_a_declaration_is_validated_with_its_lines_and_without_a_supervisor(cli: CommandLine, tmp_path: Path) -> None:
    made = tmp_path / "a.yaml"
    made.write_text(FILE.replace("format", "fromat").replace("${file:/p:k}", "hunter2"))
    done = cli.run("connect", "validate", str(made))
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert [line.removeprefix(f"{made}:").partition(":")[0] for line in lines] == ["1", "5", "12"]
    assert "is format meant?" in lines[1]
    assert b"hunter2" not in done.stdout + done.stderr
    made.write_text(FILE)
    assert cli.ok("connect", "validate", str(made)) == b""


def test_nothing_is_created_where_one_declaration_is_wrong(cli: CommandLine, url: str, tmp_path: Path) -> None:
    made = tmp_path / "a.yaml"
    made.write_text(FILE.replace("topics", "topcs"))
    assert cli.run("connect", "create", str(made), "--url", url).returncode == 1
    assert cli.json("connect", "list", "--url", url) == []


def test_kinds_and_their_keys_are_listed(cli: CommandLine) -> None:
    heading, *kinds = cli.lines("connect", "plugins")
    assert heading == "CLASS\tTYPE\tSUMMARY"
    assert "FileSource\tsource\tFiles of a directory as they arrive." in kinds
    keys = {each["name"] for each in cli.json("connect", "plugins", "JdbcSink")}
    assert {"connection.url", "errors.tolerance"} <= keys
    assert cli.run("connect", "plugins", "JdbcSnk").returncode == 1


def test_a_supervisor_that_is_not_there_is_one_line(cli: CommandLine) -> None:
    done = cli.run("connect", "list", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr == (
        b"pybroker: http://127.0.0.1:1 does not answer: Connection refused; "
        b"`pybroker connect serve` starts a supervisor, and --url names another\n"
    )


def test_a_supervisor_that_does_not_work_yet_is_waited_for(cli: CommandLine, world: World, url: str, file: str) -> None:
    world.refusals = 2
    done = cli.run("connect", "create", file, "--url", url)
    assert (done.returncode, done.stdout) == (0, b"NAME\tTYPE\nlines\tsource\nrows\tsink\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"no supervisor of this name works yet at {url}; it is waited for up to ")


def test_a_short_wait_for_a_supervisor_is_not_told(world: World, url: str) -> None:
    told: list[str] = []
    pauses: list[float] = []
    world.refusals = 1
    assert RestClient(url, on_wait=told.append, pause=pauses.append).ask("GET", "connectors") == []
    assert (pauses, told) == ([1.0], [])


def test_a_supervisor_that_never_works_is_waited_for_so_long_and_no_longer(world: World, url: str) -> None:
    pauses: list[float] = []
    world.waits = Waits.NONE_WORKS_YET
    with pytest.raises(NoAnswer, match="no supervisor of this name works yet"):
        RestClient(url, pause=pauses.append, patience_s=0.5).ask("GET", "connectors")
    assert pauses == []


def test_a_supervisor_beside_one_that_works_is_not_waited_for(world: World, url: str) -> None:
    pauses: list[float] = []
    world.waits = Waits.ANOTHER_WORKS
    with pytest.raises(NoAnswer, match="another one of its name works"):
        RestClient(url, pause=pauses.append).ask("GET", "connectors")
    assert pauses == []


def test_all_addresses_are_asked_again_where_one_of_them_works_soon(world: World, url: str) -> None:
    pauses: list[float] = []
    world.refusals = 1
    client = RestClient(f"http://127.0.0.1:1,{url}", pause=pauses.append)
    assert (client.ask("GET", "connectors"), pauses) == ([], [1.0])


def test_a_supervisor_beyond_loopback_without_a_login_does_not_start(cli: CommandLine) -> None:
    done = cli.run("connect", "serve", "--listen", "0.0.0.0:0")
    assert (done.returncode, b"--login" in done.stderr) == (1, True)


def test_next_address_is_asked_where_one_is_away_or_waits(
    cli: CommandLine, world: World, url: str, tmp_path: Path
) -> None:
    waiting = World()
    waiting.waits = Waits.ANOTHER_WORKS
    with served(waiting) as other:
        urls = f"http://127.0.0.1:1,{other}, {url}"
        file = tmp_path / "a.yaml"
        file.write_text(FILE)
        assert [each["name"] for each in cli.json("connect", "create", str(file), "--url", urls)] == ["lines", "rows"]
        client = RestClient(urls)
        assert client.ask("GET", "connectors") == ["lines", "rows"]
        world.waits = Waits.ANOTHER_WORKS
        with pytest.raises(NoAnswer, match=r"works; http://127.0.0.1:1 does not answer.*; .*works"):
            client.ask("GET", "connectors")
    assert waiting.topics.known.configs == {}


@pytest.mark.parametrize(("method", "requests"), [("POST", 1), ("PUT", 2)])
def test_request_that_may_be_done_is_repeated_where_that_changes_nothing(method: str, requests: int) -> None:
    """Both servers take the request and close the connection."""
    taken: list[bytes] = []

    class Closing(StreamRequestHandler):
        def handle(self) -> None:
            taken.append(self.rfile.readline())

    with TCPServer(("127.0.0.1", 0), Closing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        urls = ",".join([f"http://127.0.0.1:{server.server_address[1]}"] * 2)
        with pytest.raises(NoAnswer, match="does not answer"):
            RestClient(urls).ask(method, "connectors", "rows", "restart")
        server.shutdown()
        thread.join()
    assert len(taken) == requests


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", r"does not answer in HTTP: SSH-2.0-OpenSSH_9.6"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1", r"the reply was cut off"),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1", r"the reply was cut off"),
    ],
)
def test_reply_that_is_none_or_is_cut_off_is_said(answer: bytes, told: str) -> None:
    class Strange(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with TCPServer(("127.0.0.1", 0), Strange) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(NoAnswer, match=told):
                RestClient(f"http://127.0.0.1:{server.server_address[1]}").ask("GET", "connectors")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("url", ["ftp://host", "http://user:word@host", "http://", "127.0.0.1:8083,", "a,ftp://b"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ReplyRefused) as refused:
        RestClient(url)
    assert "word" not in str(refused.value)


def test_a_login_comes_from_a_file(tmp_path: Path) -> None:
    logins = tmp_path / "logins"
    logins.write_text("ann=secret\n")
    with served(World({"ann": "secret"})) as url:
        assert RestClient(url, logins).ask("GET", "connectors") == []
        with pytest.raises(ReplyRefused, match="cannot access"):
            RestClient(url).ask("GET", "connectors")
