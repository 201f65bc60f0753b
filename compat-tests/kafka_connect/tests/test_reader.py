"""The reader of a page does what it says, and notices what is not so; versions on pages are those of the poms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness.apache_kafka import KAFKA_VERSION, ROOT

from kafka_connect.jars import CONNECT_VERSION
from kafka_connect.reader import Reader

PAGE = """\
# Page

## Files

```properties
# server.properties
listeners=http://127.0.0.1:8083
```

`one.json`:

```json
{"port": "5432"}
```

## Commands

```console
$ export GREETING=hello
$ alias greet='echo "$GREETING"'
$ greet
hello
$ cat one.json
{"port": "7"}
```
"""


def reader(directory: Path, page: str = PAGE) -> Reader:
    path = directory / "page.md"
    path.write_text(page)
    return Reader(path, directory, {"5432": "7"})


def test_files_are_written_and_commands_typed_with_ports_of_ones_own(tmp_path: Path) -> None:
    reads = reader(tmp_path)
    reads.read("Files", "Commands")
    own = reads.ports["8083"]
    assert own != "8083"
    assert (tmp_path / "server.properties").read_text().splitlines()[1] == f"listeners=http://127.0.0.1:{own}"


@pytest.mark.parametrize("wrong", ["greet; false", "greet; echo more"])
def test_a_command_that_fails_or_prints_something_else_is_noticed(tmp_path: Path, wrong: str) -> None:
    reads = reader(tmp_path, PAGE.replace("$ greet\n", f"$ {wrong}\n"))
    with pytest.raises(AssertionError):
        reads.read("Files", "Commands")


def test_pages_name_the_versions_of_the_poms() -> None:
    connect, mirrormaker = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("connect", "mirrormaker"))
    (debezium,) = re.findall(r"<debezium.version>(.*)</", (ROOT / "scripts/poms/debezium/pom.xml").read_text())
    assert debezium in connect
    assert f"Apache Kafka {CONNECT_VERSION}" in connect
    assert f"connect-file-{CONNECT_VERSION}.jar" in connect
    assert f"Apache Kafka {KAFKA_VERSION}" in mirrormaker
    assert f"MirrorMaker of {CONNECT_VERSION}" in mirrormaker
