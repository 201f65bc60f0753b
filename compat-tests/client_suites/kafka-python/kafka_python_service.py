"""What kafka-python's fixtures want of its module ``test.service``, which its source distribution leaves out.

A service that runs already is neither started nor stopped; no other is known, so that no test can start one.
"""

from __future__ import annotations


class ExternalService:
    """The broker under test."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """It runs."""

    def close(self) -> None:
        """It goes on."""

    def dump_logs(self) -> None:
        """Its log is the suite's to show."""


class SpawnedService:
    """A service that a fixture would start."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("these tests run against a broker that is there already")
