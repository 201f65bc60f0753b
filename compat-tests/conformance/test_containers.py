"""A broker in a container can be the one under test where a Docker engine answers; elsewhere that is told."""

from __future__ import annotations

import sys

import pytest

from conformance.adapter import Client
from conformance.all_clients import IN_PROCESS
from conformance.containers import PYBROKER, broker_in_container, missing_engine


def test_a_missing_docker_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("testcontainers")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert (missing_engine() or "").startswith("no Docker engine answers: ")


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers", None)
    assert (missing_engine() or "").startswith("testcontainers is not installed")


@pytest.mark.slow
def test_the_image_of_the_dockerfile_serves_clients() -> None:
    if (reason := missing_engine()) is not None:
        pytest.skip(reason)
    with broker_in_container(PYBROKER) as bootstrap:
        client: Client = IN_PROCESS["librdkafka"](bootstrap)
        try:
            assert client.admin().create_topic("in-a-container") == 0
        finally:
            client.close()
