"""What a session is given that stays for weeks beside others: its processes take the memory that their work needs.

Java's own choice suits a JVM that has its machine to itself.  Its collector (G1) lets the heap grow to its bound before
it works hard, with tables for all that it may become.  With two connectors it had taken 512 MB, of which 73
lived, and 58 more for those tables.  Here the heap follows what lives in it: Java's serial collector compacts whenever
the part for old objects has had to grow, and sizes it by what is left.  The bound stays Spark's
(``spark.driver.memory``, 1 GB unless it is set), so that work which needs it has it.

Owns those options, and which of the user's leave the heap to the user.  Options are looked for wherever Spark or Java
finds them, because Java refuses two collectors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

# What the heap begins with.  A third of it is for new objects: with less, what lives for one micro-batch gets old.
INITIAL_HEAP = "192m"

# By glibc's own choice threads have arenas of their own, up to eight for each processor, and an arena seldom gives back
# what is free in it.  Those of Spark's JVM held 118 MB with two connectors.
MALLOC = {"MALLOC_ARENA_MAX": "2"}

_OPTIONS_OF = (
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "SPARK_SUBMIT_OPTS",
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)
_BOUNDS = ("spark.driver.memory", "SPARK_DRIVER_MEMORY")
# A collector, or where the heap begins or ends.
_HEAP_OPTION = re.compile(r"-XX:\+Use\w*GC\b|-Xm[sx]|-XX:(Initial|Max)(HeapSize|RAM)")
_BETWEEN = re.compile(r"\s*[=:\s]\s*")
_ARGUMENTS = {"--driver-memory": "spark.driver.memory", "--driver-java-options": "spark.driver.extraJavaOptions"}
_OF_SHELL = re.compile(r"(?:^|\s)#.*")
_BOUND_OF_SHELL = re.compile(r"\bSPARK_DRIVER_MEMORY\+?=")


def java_options(settings: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Options for the JVM, before the user's; none where the user sets its heap's bound, its begin or its collector."""
    arguments = _argument_settings(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    for name, said in (*_file_settings(environment), *arguments, *environment.items(), *settings.items()):
        if name in _BOUNDS or (name in _OPTIONS_OF and _HEAP_OPTION.search(str(said))):
            return ""
    return f"-XX:+UseSerialGC -Xms{INITIAL_HEAP}"


def spare_malloc(environment: MutableMapping[str, str]) -> None:
    """Have glibc, in processes that are started with this environment, keep less; what is set there stays."""
    for name, value in MALLOC.items():
        environment.setdefault(name, value)


def _file_settings(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the files of Spark's configuration say."""
    home = environment.get("SPARK_HOME")
    directory = environment.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if not directory:
        return
    yield from _properties(Path(directory, "spark-defaults.conf"))
    for line in _lines(Path(directory, "java-opts")):
        yield "SPARK_SUBMIT_OPTS", line
    # A shell may put options together of variables, so that any line may be of ours.
    for line in _lines(Path(directory, "spark-env.sh")):
        told = _OF_SHELL.sub("", line)
        yield ("SPARK_DRIVER_MEMORY" if _BOUND_OF_SHELL.search(told) else "SPARK_SUBMIT_OPTS"), told


def _argument_settings(text: str) -> Iterator[tuple[str, str]]:
    """What arguments of `spark-submit` say, as PySpark takes them from the environment."""
    try:
        words = shlex.split(text)
    except ValueError:  # PySpark says so itself
        return
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for option, said in pairwise(parts):
        if option in ("--conf", "-c"):
            name, _, value = said.partition("=")
            yield name.strip(), value
        elif option in _ARGUMENTS:
            yield _ARGUMENTS[option], said
        elif option == "--properties-file":
            yield from _properties(Path(said))


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    """What a file of Java's properties says."""
    for line in _lines(path):
        name, *said = _BETWEEN.split(line.strip(), maxsplit=1)
        if said and not name.startswith("#"):
            yield name, said[0]


def _lines(path: Path) -> list[str]:
    """A file's lines, those that are continued as one; none where it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    return []
