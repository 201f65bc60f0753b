"""A driver that is not what it should be does not outlive the question who it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance import client_folder
from conformance.client_folder import ClientFolder
from conformance.process_adapter import Driver

TELLS_ITS_PID = "import os, sys; open('pid', 'w').write(str(os.getpid()))\n"
GREETS = 'print(\'{"id": 1, "result": {"client": "sample", "version": "1.0"}}\', flush=True)\n'
READS_ON = "for line in sys.stdin: pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ClientFolder:
    """A built client of version 2.0, whose driver is the given program."""
    monkeypatch.setattr(client_folder, "CACHE", tmp_path)
    made = ClientFolder(
        directory=tmp_path,
        name="sample",
        version="2.0",
        language="Python",
        run_command=("{python}", "program.py"),
    )
    made.cache.mkdir(parents=True)
    (made.cache / "program.py").write_text(TELLS_ITS_PID + request.param)
    return made


@pytest.mark.parametrize(
    ("folder", "complaint"),
    [
        pytest.param(GREETS + READS_ON, "sample 2.0 is pinned", id="another version"),
        pytest.param("sys.exit('it broke')", "driver has ended\nit broke", id="ends"),
    ],
    indirect=["folder"],
)
def test_driver_whose_greeting_fails_is_ended(folder: ClientFolder, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        Driver(folder)
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder.cache / "pid").read_text()), 0)
