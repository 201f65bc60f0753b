"""What a broker that runs as a child process has, whoever made it.

Owns: its directory, its address, the kill and the end of a ``with``.  How it is started and stopped is the subclass's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from harness.child_process import ChildProcess


class BrokerProcess(ABC):
    """One broker on a loopback port, with its data and its log below ``directory``."""

    host = "127.0.0.1"
    name: ClassVar[str]  # in messages

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_path = directory / "broker.log"
        self.port = port
        self._process: ChildProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @abstractmethod
    def start(self, timeout_s: float = 60) -> Self:
        """Start and wait until the broker answers; once it failed, nothing is left running."""

    @abstractmethod
    def stop(self, timeout_s: float = 30) -> None:
        """Shut down cleanly; does nothing when it is not running."""

    def kill(self) -> None:
        """Kill -9; does nothing when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check_alive(self) -> None:
        assert self._process is not None
        if (exit_code := self._process.exit_code) is not None:
            raise RuntimeError(f"{self.name} exited with {exit_code}\n{self._process.log_tail()}")
