"""A broker under test that runs in a container, where a Docker engine answers.

Owns: pybroker from this checkout's Dockerfile, and any image that testcontainers can start as Kafka.  The image of
pybroker is built for the run and removed after it.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.broker_probe import free_port

PYBROKER = "pybroker"
CONTAINER_PORT = 9092
READY_TIMEOUT_S = 120.0

ROOT = Path(__file__).resolve().parents[2]


def missing_engine() -> str | None:
    """Why no container can be started here, if so."""
    try:
        import docker
        import testcontainers  # noqa: F401  # what starts containers, and brings the former
        from docker.errors import DockerException
    except ImportError:
        return "testcontainers is not installed: scripts/setup brings it"
    reason = None
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        try:
            docker.from_env().close()  # asks the engine for its version
        except (DockerException, OSError) as error:
            reason = f"no Docker engine answers: {error}"
        gc.collect()  # a socket that could not connect is left behind by the library
    return reason


@contextmanager
def broker_in_container(image: str) -> Iterator[str]:
    """Start ``image``, or what the Dockerfile makes if it is called ``pybroker``; gives HOST:PORT."""
    started = _pybroker() if image == PYBROKER else _kafka(image)
    with started as bootstrap:
        yield bootstrap


@contextmanager
def _kafka(image: str) -> Iterator[str]:
    from testcontainers.community.kafka import KafkaContainer

    with KafkaContainer(image).with_kraft() as container:
        yield str(container.get_bootstrap_server())


@contextmanager
def _pybroker() -> Iterator[str]:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.image import DockerImage
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    with DockerImage(ROOT, tag="pybroker-conformance:latest") as image:
        # What clients are told must be known before the container is, so the port is chosen here.
        port = free_port()
        container = DockerContainer(str(image)).with_bind_ports(CONTAINER_PORT, port)
        host = container.get_container_host_ip()
        container.with_command(
            [
                "--dev",
                "--listen",
                f"0.0.0.0:{CONTAINER_PORT}",
                "--set",
                f"advertised.listeners=PLAINTEXT://{host}:{port}",
            ]
        )
        ready = LogMessageWaitStrategy("pybroker ready on").with_startup_timeout(int(READY_TIMEOUT_S))
        with container.waiting_for(ready):
            yield f"{host}:{port}"
