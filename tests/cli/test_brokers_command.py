"""``pybroker brokers`` against a running broker."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest
from confluent_kafka import KafkaException, Producer
from harness.waiting import wait_until

from pybroker.testing import Cluster
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


def test_what_cannot_begin_with_the_brokers_that_are_left_is_said() -> None:
    lack = (
        "2 brokers are registered, so that transactions cannot begin before more join, or fewer replicas are set: "
        "transaction.state.log.replication.factor=3"
    )
    with Cluster(3, {"offsets.topic.replication.factor": "2"}) as cluster:
        cli = CommandLine(",".join(cluster.bootstrap.split(",")[:2]))
        assert doctor_says(cli) == ("ok", "the topics of groups and transactions exist, or can be created")
        cluster.stop_broker(3)
        gone: list[CompletedProcess[bytes]] = []

        def unregister() -> bool:
            gone.append(cli.run("brokers", "unregister", "3"))
            return gone[-1].returncode == 0

        wait_until(unregister, "its end is known")
        assert gone[-1].stdout == b"BROKER\tSTATUS\n3\tunregistered\n"
        assert gone[-1].stderr.decode() == f"{lack}\n"
        wait_until(lambda: doctor_says(cli) == ("warning", lack), "the broker that is asked knows it")
        producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": "t"})
        with pytest.raises(KafkaException):
            producer.init_transactions(1)


def doctor_says(cli: CommandLine) -> tuple[str, str]:
    """Of internal topics."""
    found = json.loads(cli.run("doctor", "--json").stdout)
    return next((each["status"], each["message"]) for each in found if each["check"] == "internal topics")


def test_a_broker_that_is_alone_lacks_no_others(cli: CommandLine) -> None:
    assert doctor_says(cli)[0] == "ok"
