"""``pybroker configs`` against a running broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import CommandLine


def test_settings_of_a_topic_are_altered_and_described(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    of_topic = ("--topic", name)
    assert cli.lines("configs", "alter", *of_topic, "-s", "retention.ms=1000", "-s", "cleanup.policy=compact") == [
        "RESOURCE\tNAME\tSTATUS",
        f"topic\t{name}\taltered",
    ]
    cli.ok("configs", "alter", *of_topic, "--append", "cleanup.policy=delete", "-d", "retention.ms")
    own = cli.json("configs", "describe", *of_topic)
    assert [(each["name"], each["value"]) for each in own] == [("cleanup.policy", "compact,delete")]
    everything = {each["name"]: each for each in cli.json("configs", "describe", *of_topic, "--all")}
    assert everything["retention.ms"]["source"] == "DEFAULT_CONFIG"


def test_settings_of_groups_and_brokers_are_altered_and_described(cli: CommandLine, name: str) -> None:
    cli.ok("configs", "alter", "--group", name, "-s", "consumer.session.timeout.ms=50000")
    (own,) = cli.json("configs", "describe", "--group", name)
    assert (own["name"], own["source"]) == ("consumer.session.timeout.ms", "DYNAMIC_GROUP_CONFIG")
    cli.ok("configs", "alter", "--client-metrics", name, "-s", "interval.ms=1000")
    assert {"interval.ms"} <= {each["name"] for each in cli.json("configs", "describe", "--client-metrics", name)}
    cli.ok("configs", "alter", "--broker-defaults", "-s", "log.cleaner.threads=2", "--dry-run")
    assert "log.cleaner.threads" not in {each["name"] for each in cli.json("configs", "describe", "--broker-defaults")}
    assert "listeners" in {each["name"] for each in cli.json("configs", "describe", "--broker", "1")}
    assert cli.json("configs", "describe", "--broker-logger", "1")


@pytest.mark.parametrize("of_listener", ["ssl.key.password", "ssl.keystore.key", "plain.sasl.jaas.config"])
def test_a_secret_is_set_from_a_file_and_shown_to_nobody(cli: CommandLine, tmp_path: Path, of_listener: str) -> None:
    setting = f"listener.name.nobody.{of_listener}"
    (tmp_path / "secrets").write_text(f"{setting}=hunter2\n")
    done = cli.run("configs", "alter", "--broker", "1", "--set-from", str(tmp_path / "secrets"))
    assert done.returncode == 0, done.stderr
    assert b"chmod 600" in done.stderr
    shown = {each["name"]: each for each in cli.json("configs", "describe", "--broker", "1")}
    assert (shown[setting]["value"], shown[setting]["sensitive"]) == (None, True)
    rows = [line.split("\t") for line in cli.lines("configs", "describe", "--broker", "1")]
    assert [row[1] for row in rows if row[0] == setting] == ["(secret)"]
    cli.ok("configs", "alter", "--broker", "1", "--unset", setting)
    stdin = cli.ok("configs", "alter", "--broker", "1", "--set-from", "-", "--dry-run", stdin=f"{setting}=x\n".encode())
    assert b"valid" in stdin


def test_what_the_broker_refuses_is_told_in_its_words(cli: CommandLine, name: str) -> None:
    refused = cli.run("configs", "alter", "--group", name, "-s", "consumer.session.timeout.ms=soon")
    assert refused.returncode == 1
    assert b"consumer.session.timeout.ms" in refused.stderr
    missing = cli.run("configs", "describe", "--topic", name)
    assert missing.returncode == 1
    assert name.encode() in missing.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("describe", "--topic", "t", "--broker", "1"),
        ("describe", "--broker-defaults", "--broker", "1"),
        ("alter", "--topic", "t"),
        ("alter", "--topic", "t", "-s", "a=1", "-d", "a"),
        ("alter", "--topic", "t", "-s", "a"),
    ],
)
def test_what_makes_no_sense_is_not_sent(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    assert cli.run("configs", *arguments).returncode == 2


def test_a_file_that_is_none_is_told(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"a=\\uZZZZ hunter2")
    for file in (tmp_path / "bad", tmp_path / "missing"):
        refused = cli.run("configs", "alter", "--topic", "t", "--set-from", str(file))
        assert refused.returncode == 1
        assert str(file).encode() in refused.stderr
        assert b"hunter2" not in refused.stderr
