"""A client's tools: found, got where they can be got, or named, never passed over in silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import client_folder
from conformance.client_folder import ClientFolder, ToolchainMissing, directory_of

KCAT = "#!/bin/sh\necho Version {version}\n"
INSTALLS = "#!/bin/sh\nprintf '#!/bin/sh\\necho Version 1.7.1\\n' >{tools}/kcat; /bin/chmod +x {tools}/kcat\n"
# apt-get knows no package before its first update.
INSTALLS_AFTER_AN_UPDATE = (
    "#!/bin/sh\nif [ $1 = update ]; then >{tools}/lists; exit 0; fi; [ -e {tools}/lists ] || exit 100\n"
)
REFUSES = "#!/bin/sh\nexit 100\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only directory of tools on a machine that has got none, in root's hands."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(client_folder, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    client_folder._tool.cache_clear()
    yield tmp_path
    client_folder._tool.cache_clear()


def add(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(script)
    (tools / name).chmod(0o755)


def test_tool_that_is_new_enough_is_taken(tools: Path) -> None:
    add(tools, "kcat", KCAT.format(version="1.7.1"))
    assert directory_of("kcat") == tools


def test_tool_that_is_too_old_is_missing(tools: Path) -> None:
    add(tools, "kcat", KCAT.format(version="1.6.0"))
    with pytest.raises(ToolchainMissing, match=r"kcat 1\.7 or newer is not on this machine"):
        directory_of("kcat")


@pytest.mark.parametrize(
    "apt_get",
    [
        pytest.param(INSTALLS, id="at once"),
        pytest.param(INSTALLS_AFTER_AN_UPDATE + INSTALLS.partition("\n")[2], id="after an update"),
    ],
)
def test_root_gets_a_tool_from_debian(tools: Path, apt_get: str) -> None:
    add(tools, "apt-get", apt_get.format(tools=tools))
    with pytest.raises(ToolchainMissing):
        directory_of("kcat")
    assert directory_of("kcat", get=True) == tools


@pytest.mark.parametrize("user", [0, 1000])
def test_tool_that_debian_does_not_give_is_missing(tools: Path, user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    add(tools, "apt-get", REFUSES if user == 0 else INSTALLS.format(tools=tools))
    with pytest.raises(ToolchainMissing, match="Debian, for root"):
        directory_of("kcat", get=True)


def test_tool_that_nobody_packs_is_named(tools: Path) -> None:
    with pytest.raises(ToolchainMissing, match=r"cargo 1\.85 or newer is not on this machine$"):
        directory_of("cargo", get=True)


def test_folder_that_several_want_at_once_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_folder, "CACHE", tmp_path / "cache")
    sources, builds = tmp_path / "sample", tmp_path / "builds"
    sources.mkdir()
    (sources / "build.py").write_text(f"open({str(builds)!r}, 'a').write('x')")
    folder = ClientFolder(
        directory=sources,
        name="sample",
        version="1.0",
        language="Python",
        build_commands=(("{python}", "build.py"),),
    )
    with ThreadPoolExecutor() as threads:
        for built in [threads.submit(folder.build) for _ in range(4)]:
            built.result()
    assert builds.read_text() == "x"
    assert folder.missing_requirement() is None
