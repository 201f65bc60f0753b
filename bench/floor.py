"""The floor of the machine: a server in C that is no broker, as a contestant of the loads that only produce.

It reads frames, writes each with ``pwrite`` and answers all with one prepared reply (``native/floor.c``), and sleeps
while there is nothing to do: the least that this machine's kernel takes for a stored request.  A broker is told as a
share of it, too; one that looks for the next request instead of sleeping may pass it where a lone client
waits.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compiled import program
from bench.wire import PRODUCE, reply_to
from pybroker_protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

TOPIC = "floor"


class Floor:
    """A floor that serves only while something is measured, each time on an empty directory."""

    def __init__(self, directory: Path) -> None:
        self.data_directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the floor is not running"
        return self._process.pid

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run it, and remove what it has written."""
        self.data_directory.mkdir(parents=True)
        command = [str(program("floor")), str(self.data_directory), reply().hex()]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert self._process.stdout is not None
            self._port = int(self._process.stdout.readline())
            yield
        finally:
            self._process.kill()
            self._process.communicate()
            self._process = None
            shutil.rmtree(self.data_directory)

    def stored_bytes(self) -> int:
        """The bytes of all frames, without their lengths, that lie in its files."""
        return sum(path.stat().st_size for path in self.data_directory.iterdir())


def reply() -> bytes:
    """What every Produce request is answered."""
    partition = PartitionProduceResponse(
        index=0, error_code=0, base_offset=0, log_append_time_ms=-1, log_start_offset=0, record_errors=[]
    )
    topic = TopicProduceResponse(name=TOPIC, partition_responses=[partition])
    response = ProduceResponse(responses=[topic], throttle_time_ms=0)
    return reply_to(PRODUCE, response)
