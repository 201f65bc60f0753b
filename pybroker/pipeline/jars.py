"""Jars that PySpark lacks, such as those of its Kafka connector: resolved once, kept for all sessions, offline then.

Owns the folder of jars and the way to fill it: Apache Ivy, which every PySpark brings along, fetches from Maven
Central.  `jars` are each by its name, without what it depends on; `packages` bring that, but for what lies in PySpark
already, in versions of its own.  `whole_packages` bring all of it, for a JVM without Spark.  Imports no Spark.
"""

import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from pybroker.extras import how_to_install

JARS_DIR_VARIABLE = "PYBROKER_JARS"

# The token provider serves delegation tokens only; not every registry has its 4.2.0, and 4.0.0 has the same interface.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)

_CONNECTOR_OF = "4.2."
_CONNECTOR_OF_ANOTHER = "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"

RESOLVED_WITHIN_S = 300

# Beside a package's jar: the file with the names of the jars that it is, one a line.
_LISTING = ".packages"
_WHOLE_LISTING = ".whole-packages"

_log = logging.getLogger(__name__)

_COORDINATES = re.compile(r"(?P<org>[\w.-]+):(?P<name>[\w.-]+):(?P<rev>[\w.-]+)")
_MODULE = """<ivy-module version="2.0">
<info organisation="pybroker" module="jars"/>
<configurations><conf name="default"/></configurations>
<dependencies>{dependencies}</dependencies>
</ivy-module>
"""
_ALONE = '<dependency org="{org}" name="{name}" rev="{rev}" conf="default->master" transitive="false"/>'
_WITH_DEPENDENCIES = '<dependency org="{org}" name="{name}" rev="{rev}" conf="default->default">EXCLUDED</dependency>'
_JAR_NAME = re.compile(r"(?P<artifact>.+?)-\d[^/]*\.jar")


class JarsMissing(RuntimeError):
    """Jars are not at hand, and cannot be had."""


def jars_dir() -> Path:
    """Where the jars lie: ``PYBROKER_JARS``, or ``pybroker/jars`` in the user's cache."""
    if given := os.environ.get(JARS_DIR_VARIABLE):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "pybroker" / "jars"


def jars(coordinates: Iterable[str] = CONNECTOR) -> list[Path]:
    """The jars of Maven coordinates ``group:artifact:version``, in order; fetched where they are not at hand.

    Raises `JarsMissing` where they cannot be had, and ValueError for what is no coordinate.
    """
    wanted = {text: jars_dir() / _file_name(text) for text in coordinates}
    missing = [text for text, path in wanted.items() if not path.exists()]
    if missing:
        _fetch(missing)
    return list(wanted.values())


def connector_jars(version: str) -> list[Path]:
    """Those of the Kafka connector of Spark ``version``; raises `JarsMissing`."""
    return jars() if version.startswith(_CONNECTOR_OF) else packages([_CONNECTOR_OF_ANOTHER.format(version=version)])


def packages(coordinates: Iterable[str]) -> list[Path]:
    """The jars of Maven coordinates and of what they depend on; fetched where they are not at hand.

    Which those are stands in a file beside the jar.  Where that cannot be made, a jar that was put there is taken
    alone, with a warning.  Raises `JarsMissing` and ValueError, as `jars` does.
    """
    found = [path for text in coordinates for path in _package(text, _LISTING)]
    return list(dict.fromkeys(found))


def whole_packages(coordinates: Iterable[str]) -> list[Path]:
    """As `packages`, with what lies in PySpark as well, in the versions that these depend on."""
    found = [path for text in coordinates for path in _package(text, _WHOLE_LISTING)]
    return list(dict.fromkeys(found))


def _package(coordinates: str, ending: str) -> list[Path]:
    folder, name = jars_dir(), _file_name(coordinates)
    listing = folder / f"{name}{ending}"
    if listing.exists():
        found = [folder / each for each in listing.read_text().split()]
        if all(path.exists() for path in found):
            return found
    try:
        _fetch([coordinates], listing)
    except JarsMissing as missing:
        if not (folder / name).exists():
            raise
        _log.warning("%s is taken without what it depends on: %s", name, missing)
        return [folder / name]
    return [folder / each for each in listing.read_text().split()]


def _file_name(coordinates: str) -> str:
    parts = _parts(coordinates)
    return f"{parts['name']}-{parts['rev']}.jar"


def _parts(coordinates: str) -> dict[str, str]:
    matched = _COORDINATES.fullmatch(coordinates)
    if matched is None:
        raise ValueError(f"expected group:artifact:version, got {coordinates}")
    return matched.groupdict()


def _fetch(coordinates: list[str], listing: Path | None = None) -> None:
    """Fetch into a folder of its own, so that a jar appears whole or not at all; ``listing``: with dependencies."""
    folder = jars_dir()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [_file_name(text) for text in coordinates]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        said = _ivy(coordinates, Path(scratch), _dependency_for(listing))
        fetched = Path(scratch) / "jars"
        for text, name in zip(coordinates, wanted, strict=True):
            if not (fetched / name).exists():
                raise JarsMissing(_message(text, said))
        if listing is not None:
            wanted += sorted(path.name for path in fetched.iterdir() if path.name not in wanted)
        for name in wanted:
            (fetched / name).replace(folder / name)
        if listing is not None:  # at last: what it names is there
            (Path(scratch) / listing.name).write_text("".join(f"{name}\n" for name in wanted))
            (Path(scratch) / listing.name).replace(listing)


def _dependency_for(listing: Path | None) -> str:
    if listing is None:
        return _ALONE
    return _without_what_pyspark_has() if listing.suffix == _LISTING else _WITH_DEPENDENCIES.replace("EXCLUDED", "")


def _without_what_pyspark_has() -> str:
    found = filter(None, (_JAR_NAME.fullmatch(path.name) for path in _spark_jars_dir().iterdir()))
    excluded = sorted({f'<exclude module="{each["artifact"]}"/>' for each in found})
    return _WITH_DEPENDENCIES.replace("EXCLUDED", "".join(excluded))


def _message(coordinates: str, why: str) -> str:
    return (
        f"{coordinates} could not be fetched from Maven Central ({why}): put {_file_name(coordinates)} into "
        f'{jars_dir()} or let {JARS_DIR_VARIABLE} name a folder that has it; format("pybroker") needs no jar'
    )


def _ivy(coordinates: list[str], scratch: Path, dependency: str) -> str:
    """Let Ivy do it; returns the reason where it failed, which the absence of a jar tells."""
    module = scratch / "ivy.xml"
    module.write_text(_MODULE.format(dependencies="".join(dependency.format(**_parts(text)) for text in coordinates)))
    retrieved = str(scratch / "jars" / "[artifact]-[revision].[ext]")
    command = [java(), "-cp", _ivy_jar(), "org.apache.ivy.Main", "-warn", "-ivy", str(module)]
    command += ["-cache", str(scratch / "cache"), "-retrieve", retrieved, "-types", "jar", "bundle"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVED_WITHIN_S, check=False)
    except FileNotFoundError:
        return "there is no Java"
    except subprocess.TimeoutExpired:
        return f"not within {RESOLVED_WITHIN_S} s"
    return _reason(done.stdout + done.stderr)


def _reason(said: str) -> str:
    """The one line of what Ivy said that tells most."""
    lines = [line.strip(": \t") for line in said.splitlines()]
    telling = [line for line in lines if re.search(r"(?i)exception|refused|unknown host|not found|timed out", line)]
    return (telling or [line for line in lines if line] or ["Ivy did not say why"])[0]


def java() -> str:
    """As Spark's own scripts look for it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else (shutil.which("java") or "java")


def py4j_jar() -> Path:
    """The one that PySpark brings along, by which Python asks a JVM; raises `JarsMissing`."""
    (found,) = _spark_jars_dir().glob("py4j-*.jar")
    return found


def _ivy_jar() -> str:
    (found,) = _spark_jars_dir().glob("ivy-*.jar")
    return str(found)


def _spark_jars_dir() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsMissing(f"PySpark is not installed: {how_to_install('spark')}")
    return Path(spec.origin).parent / "jars"
