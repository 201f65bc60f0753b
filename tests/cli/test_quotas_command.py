"""``pybroker quotas`` against a running broker."""

from __future__ import annotations

from tests.cli.command import CommandLine


def test_quotas_are_set_described_and_removed(cli: CommandLine, name: str) -> None:
    of_client = ("--client-id", name)
    made = cli.lines("quotas", "set", *of_client, "producer_byte_rate=1048576", "request_percentage=12.5")
    assert made[1].split("\t") == [f"client-id={name}", "producer_byte_rate", "1048576", "set"]
    cli.ok("quotas", "set", "--user", name, "--client-defaults", "consumer_byte_rate=2e6")
    assert cli.json("quotas", "describe", *of_client) == [
        {"entity": {"client-id": name}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}}
    ]
    heading, *rows = (line.split("\t") for line in cli.lines("quotas", "describe", "--user", name))
    assert heading == ["ENTITY", "QUOTA", "VALUE"]
    assert rows == [[f"client-id=<default> user={name}", "consumer_byte_rate", "2000000"]]
    removed = cli.lines("quotas", "remove", *of_client, "producer_byte_rate", "request_percentage")
    assert removed[0].split("\t") == ["ENTITY", "QUOTA", "VALUE", "STATUS"]
    assert removed[1].split("\t") == [f"client-id={name}", "producer_byte_rate", "-", "removed"]
    assert cli.json("quotas", "describe", *of_client) == []


def test_what_the_broker_refuses_is_told_in_its_words(cli: CommandLine, name: str) -> None:
    refused = cli.run("quotas", "set", "--client-id", name, "producer_byte_rate=-1")
    assert refused.returncode == 1
    assert b"Quota producer_byte_rate must be greater than 0" in refused.stderr
    unknown = cli.run("quotas", "set", "--client-id", name, "connection_creation_rate=1")
    assert unknown.returncode == 1
    assert b"Invalid configuration key connection_creation_rate" in unknown.stderr


def test_what_makes_no_sense_is_not_sent(cli: CommandLine, name: str) -> None:
    for arguments in (
        ("set", "producer_byte_rate=1"),
        ("set", "--client-id", name, "producer_byte_rate"),
        ("set", "--client-id", name, "producer_byte_rate=much"),
        ("set", "--client-id", name, "--client-defaults", "producer_byte_rate=1"),
        ("remove", "producer_byte_rate"),
    ):
        assert cli.run("quotas", *arguments).returncode == 2, arguments
