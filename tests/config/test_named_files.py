"""Files that a setting names: regular ones of bounded size, and an error that names the setting for all else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybroker.cli.serve.broker_process import run_broker
from pybroker.config import named_files
from pybroker.config.broker import BrokerConfig
from pybroker.config.named_files import read_named_file, read_named_text
from pybroker.config.schema import ConfigError
from pybroker.net.key_fetch import fetch_keys
from pybroker.security.key_sets import KeySource

SETTING = "ssl.keystore.location"


def refusal(path: Path | str, bytes_max: int = named_files.NAMED_FILE_BYTES_MAX) -> str:
    with pytest.raises(ConfigError) as caught:
        read_named_file(str(path), SETTING, bytes_max)
    assert str(caught.value).startswith(f"{SETTING}: ")
    return str(caught.value)


def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_what_is_no_regular_file_is_refused_without_being_read(tmp_path: Path) -> None:
    assert refusal(fifo(tmp_path)).endswith("fifo is no regular file")
    assert refusal("/dev/zero").endswith("/dev/zero is no regular file")
    assert refusal(tmp_path).endswith("is a directory")


def test_a_link_to_a_regular_file_is_one_and_a_link_to_a_fifo_is_none(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "key").write_bytes(b"k")
    (tmp_path / "key").symlink_to("..data/key")
    assert read_named_file(str(tmp_path / "key"), SETTING) == b"k"
    (tmp_path / "pipe").symlink_to(fifo(tmp_path))
    assert "no regular file" in refusal(tmp_path / "pipe")


def test_a_file_is_read_up_to_its_bound_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_named_file(str(tmp_path / "file"), SETTING, 5) == b"12345"
    assert refusal(tmp_path / "file", 4).endswith("has 5 bytes, more than 4")


def test_what_the_kernel_makes_up_is_not_read() -> None:
    # Like /proc/kmsg it passes for a regular file, of no size.
    assert Path("/proc/self/status").read_bytes()
    assert read_named_file("/proc/self/status", SETTING) == b""


def test_a_fifo_that_takes_the_files_place_in_between_stands_nobody_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    regular = os.stat(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda path: regular)
    assert "no regular file" in refusal(fifo(tmp_path))


@pytest.mark.parametrize("name", ["a\0b", "\udcff\ud800"])
def test_what_is_no_name_of_a_file_is_refused(name: str) -> None:
    assert "is no name of a file" in refusal(name)


def test_what_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_named_text(str(tmp_path / "binary"), SETTING)


def test_the_files_of_a_start_are_read_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = str(fifo(tmp_path))
    with pytest.raises(ConfigError, match=r"--config: .* is no regular file"):
        BrokerConfig.load(config_file=pipe)
    assert run_broker(
        listen=(), data_dir=str(tmp_path / "data"), config_file=None, settings=(), dev=True, add_scram=[f"@{pipe}"]
    )
    assert f"--add-scram: {pipe} is no regular file" in capsys.readouterr().err


def test_a_key_set_in_a_file_is_read_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.jwks.endpoint.url: .* is no regular file"):
        fetch_keys(KeySource(f"file://{fifo(tmp_path)}", 0, 0, 0, 0, 0))
