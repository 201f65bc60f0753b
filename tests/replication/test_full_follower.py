"""A follower whose disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.storage.files import os_file
from tests.replication.cluster import Cluster


def test_follower_whose_disk_is_full_says_so_blames_nobody_and_goes_on_when_there_is_room(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.brokers[1].produce()
    cluster.settle()
    path, write = str(cluster.brokers[2].log().path), os_file.pwrite

    def pwrite(fd: int, data: Any, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    with monkeypatch.context() as full:
        full.setattr(os_file, "pwrite", pwrite)
        cluster.brokers[1].produce()
        cluster.settle()
        assert cluster.brokers[2].offsets()[1] == 1
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "No space is left in" in caplog.text
    cluster.settle()
    assert cluster.brokers[2].contents() == cluster.brokers[1].contents()
