"""A process that stood still for so long that another one has become its broker."""

from __future__ import annotations

from pathlib import Path

from harness.process_pause import pause, resume
from harness.pybroker_process import PybrokerProcess, serving
from harness.waiting import wait_until

from tests.broker.wire_client import WireClient

from .running_cluster import METADATA, SESSION_TIMEOUT_MS

ENDS_WITHIN_S = 20


def test_process_whose_broker_another_one_has_become_says_so_and_ends(tmp_path: Path) -> None:
    properties = {
        "node.id": "1",
        "pybroker.metadata": f"sqlite://{tmp_path / 'metadata.db'}",
        "pybroker.metadata.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }
    former = PybrokerProcess(tmp_path / "former", properties, ("--dev",))
    successor = PybrokerProcess(tmp_path / "successor", properties, ("--dev",))
    errors = tmp_path / "former.log"
    former.directory.mkdir()
    with errors.open("w") as file, serving(former._command(), file) as running:
        pause(running.process.pid)
        try:
            # Until the former's session has ended its id is taken.
            successor.start(ENDS_WITHIN_S)
            resume(running.process.pid)
            assert running.process.wait(ENDS_WITHIN_S) == 1
            assert "another process has registered as broker 1 since" in errors.read_text()

            def serves() -> bool:
                with WireClient((successor.host, successor.port)) as client:
                    (broker,) = client.ask(METADATA, 9).brokers
                return bool(broker.port == successor.port)

            wait_until(serves, "the broker of the other process serves")
            successor.stop()
        finally:
            successor.kill()
