"""``pybroker brokers`` against a running broker."""

from __future__ import annotations

from tests.cli.command import CommandLine


def test_the_brokers_are_listed(cli: CommandLine) -> None:
    host, port = cli.bootstrap.split(":")
    (broker,) = cli.json("brokers", "list")
    assert broker == {
        "id": broker["id"],
        "host": host,
        "port": int(port),
        "rack": None,
        "fenced": False,
        "controller": True,
    }
    heading, row = (line.split("\t") for line in cli.lines("brokers", "list"))
    assert heading == ["BROKER", "ADDRESS", "RACK", "STATE", "CONTROLLER"]
    assert row == [str(broker["id"]), cli.bootstrap, "-", "running", "yes"]


def test_only_a_broker_that_is_registered_and_stopped_is_unregistered(cli: CommandLine) -> None:
    (broker,) = cli.json("brokers", "list")
    alive = cli.run("brokers", "unregister", str(broker["id"]))
    assert alive.returncode == 1
    assert b"has to be stopped first" in alive.stderr
    unknown = cli.run("brokers", "unregister", "4711")
    assert unknown.returncode == 1
    assert b"not currently registered" in unknown.stderr
    assert cli.run("brokers", "unregister", "none").returncode == 2
