"""CRC-32C: the value of the standard, by the extension alone, and where that is not to be found."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import crc32c as package
import pytest
from harness.waiting import PATIENCE_S

from pybroker_protocol import checksum

CHECK = (b"123456789", 0xE3069283)  # of the catalogue of CRCs


def test_it_is_the_checksum_that_the_package_computes() -> None:
    data, crc = CHECK
    assert checksum.crc32c(data) == package.crc32c(data) == crc
    assert checksum.crc32c(memoryview(data)[4:], checksum.crc32c(data[:4])) == crc


def test_the_package_is_not_imported_for_it_and_can_be_afterwards() -> None:
    program = """
import sys
from pybroker_protocol.checksum import crc32c
print(sorted({"crc32c", "email", "importlib.metadata"} & set(sys.modules)))
import crc32c as package
print(crc32c(b"123456789") == package.crc32c(b"56789", crc32c(b"1234")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.split("\n") == ["[]", "True", ""]


def test_the_package_serves_where_its_extension_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert checksum.implementation() is package.crc32c
