"""``pybroker produce`` and ``pybroker consume`` against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness.waiting import PATIENCE_S
from kafka import KafkaAdminClient, TopicPartition

from tests.cli.command import COMMAND, CommandLine


def test_lines_come_back_as_they_were_produced(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    lines = b"one\n\nthree \xff\n"
    cli.ok("produce", name, stdin=lines)
    assert cli.ok("consume", name, "-e") == lines


def test_keys_headers_and_partitions_are_kept(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    report = cli.ok("produce", name, "-K", ":", "-p", "1", "-H", "h=1", "-H", "h=2", "-v", stdin=b"k:v\nw\n")
    assert report.decode() == f"{name}\t1\t0\n{name}\t1\t1\n"
    form = "%t %p %o %K:%k %S:%s [%h]\\n"
    assert cli.lines("consume", name, "-e", "-f", form) == [
        f"{name} 1 0 1:k 1:v [h=1,h=2]",
        f"{name} 1 1 -1: 1:w [h=1,h=2]",
    ]
    assert cli.ok("consume", name, "-e", "-p", "0") == b""
    assert cli.lines("consume", name, "-e", "-K", "=>") == ["k=>v", "=>w"]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trips(cli: CommandLine, name: str, compression: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    lines = b"".join(b"line %d\n" % number for number in range(500))
    cli.ok("produce", name, "-z", compression, stdin=lines)
    assert cli.ok("consume", name, "-e") == lines


def test_json_out_is_json_in(cli: CommandLine, name: str, tmp_path: Path) -> None:
    copy = f"{name}-copy"
    cli.ok("topics", "create", name, copy, "-p", "2")
    cli.ok("produce", name, "-K", ":", "-Z", "-H", "a=b", stdin=b"\xff:\xfe\nk:\n:v\n")
    dump = tmp_path / "records.json"
    dump.write_bytes(cli.ok("consume", name, "-e", "--json"))
    cli.ok("produce", copy, "--json", "-l", str(dump))
    keep = ("partition", "key", "key_base64", "value", "value_base64", "headers", "timestamp")

    def contents(topic: str) -> list[str]:
        records = [json.loads(line) for line in cli.lines("consume", topic, "-e", "--json")]
        return sorted(json.dumps({field: record.get(field) for field in keep}) for record in records)

    assert contents(copy) == contents(name)
    assert len(contents(copy)) == 3


def test_reading_starts_where_it_is_told(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    records = [{"value": str(number), "timestamp": 1_000_000_000_000 + number} for number in range(10)]
    cli.ok("topics", "alter", name, "--set", "retention.ms=-1")
    cli.ok("produce", name, "--json", stdin="\n".join(map(json.dumps, records)).encode())
    assert cli.lines("consume", name, "-e", "-o", "7") == ["7", "8", "9"]
    assert cli.lines("consume", name, "-e", "-o", "-2") == ["8", "9"]
    assert cli.lines("consume", name, "-e", "-o", "end") == []
    assert cli.lines("consume", name, "-o", "@1000000000004", "-o", "e@1000000000006") == ["4", "5"]
    assert cli.lines("consume", name, "-c", "3") == ["0", "1", "2"]


def test_reading_until_a_time_ends_before_the_first_record_of_it(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2", "-c", "retention.ms=-1")
    records = [{"value": str(number), "timestamp": 1_000_000_000_000 + number, "partition": 0} for number in range(10)]
    cli.ok("produce", name, "--json", stdin="\n".join(map(json.dumps, records)).encode())
    assert cli.lines("consume", name, "--until", "1000000000003") == ["0", "1", "2"]
    assert cli.lines("consume", name, "--until", "1") == []
    assert len(cli.lines("consume", name, "--until", "now")) == 10
    assert cli.lines("consume", name, "--until", "1000000000003", "-g", name) == ["0", "1", "2"]
    assert cli.lines("consume", name, "-e", "-g", name)[0] == "3", "what lies behind the end was not committed"


def test_a_reader_to_the_end_prints_nothing_that_comes_meanwhile(cli: CommandLine, name: str) -> None:
    """The open transaction keeps the reader of committed records at the end that it had."""
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\n")
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush()
    assert cli.lines("consume", name, "-e") == ["a"]
    assert cli.lines("consume", name, "-e", "--isolation", "uncommitted") == ["a", "open"]
    producer.abort_transaction()
    # Behind the last record there are markers only.
    assert cli.lines("consume", name, "-e") == ["a"]


@pytest.mark.parametrize("group", [(), ("-g", "GROUP"), ("-g", "GROUP", "-X", "group.protocol=consumer")])
def test_a_pattern_stands_for_the_topics_whose_whole_name_matches(
    cli: CommandLine, name: str, group: tuple[str, ...]
) -> None:
    for number, topic in enumerate((f"{name}-a", f"{name}-b", f"x-{name}-a", f"{name}-a-x")):
        cli.ok("topics", "create", topic, "-p", "1")
        cli.ok("produce", topic, stdin=b"%d\n" % number)
    options = [each.replace("GROUP", name) for each in group]
    assert sorted(cli.lines("consume", "--pattern", f"{name}-[ab]", "-c", "2", *options)) == ["0", "1"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_reads_topics_that_come_to_match_a_pattern_as_python_has_it(
    cli: CommandLine, name: str, protocol: str
) -> None:
    def make(number: int) -> None:
        cli.ok("topics", "create", f"{name}-{number}", "-p", "1")
        cli.ok("produce", f"{name}-{number}", stdin=b"%d\n" % number)

    make(1)
    options = ("-g", name, "-c", "2", "-X", f"group.protocol={protocol}")
    with cli.start("consume", "--pattern", name + r"-\d+", *options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        make(2)
        assert process.stdout.readline() == b"2\n"
        assert process.wait(PATIENCE_S) == 0


def test_a_member_of_a_group_of_the_consumer_protocol_reads_on(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\nb\nc\n")
    member = ("consume", name, "-g", name, "-X", "group.protocol=consumer")
    assert cli.lines(*member, "-c", "2") == ["a", "b"]
    assert cli.lines(*member, "-e") == ["c"]
    assert cli.lines(*member, "-e", "-o", "beginning") == ["a", "b", "c"]
    (group,) = cli.json("groups", "describe", name)
    assert group["type"] == "consumer"


def test_headers_without_a_value_stay_so(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, "--json", stdin=b'{"value": "v", "headers": [{"key": "h", "value": null}]}\n')
    assert cli.lines("consume", name, "-e", "-f", "%h\\n") == ["h=NULL"]


def test_no_more_records_a_second_are_sent_than_was_asked_for(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, "--throughput", "40", stdin=b"a\n" * 41)
    times = [json.loads(line)["timestamp"] for line in cli.lines("consume", name, "-e", "--json")]
    assert len(times) == 41
    # The last of them is due a second behind the first.
    assert max(times) - min(times) >= 950


def test_an_offset_out_of_range_is_the_nearest_end(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\nb\n")
    beyond = cli.run("consume", name, "-e", "-o", "100")
    assert (beyond.returncode, beyond.stdout) == (0, b"")
    assert b"the end, offset 2" in beyond.stderr
    with cli.start("consume", name, "-o", "100", "-c", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"the end, offset 2" in process.stderr.readline()
        cli.ok("produce", name, stdin=b"c\n")
        assert process.stdout.readline() == b"c\n"
        assert process.wait(PATIENCE_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=cli.bootstrap)
    admin.delete_records({TopicPartition(name, 0): 1})
    admin.close()
    below = cli.run("consume", name, "-e", "-o", "0")
    assert (below.returncode, below.stdout) == (0, b"b\nc\n")
    assert b"the first record left, offset 1" in below.stderr


def test_nobody_tells_an_offset_without_acknowledgements(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    assert cli.lines("produce", name, "-a", "0", "-v", stdin=b"a\nb\n") == [f"{name}\t0\t-"] * 2


@pytest.mark.parametrize(
    ("arguments", "closed", "exit_code", "message"),
    [
        ("topics list", ">&-", 1, b"Bad file descriptor"),
        ("consume TOPIC -e", ">&-", 1, b"Bad file descriptor"),
        ("consume TOPIC -e", ">/dev/full", 1, b"No space left"),
        ("produce TOPIC", "<&-", 0, b""),
        ("produce TOPIC -k x", ">&- </dev/null", 0, b""),
        ("topics describe none", "2>&-", 1, b""),
    ],
)
def test_missing_standard_streams_are_no_bug_of_ours(
    cli: CommandLine, name: str, arguments: str, closed: str, exit_code: int, message: bytes
) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\n")
    line = f'"$0" {arguments.replace("TOPIC", name)} {closed}'
    environment = {**os.environ, "PYBROKER_BOOTSTRAP": cli.bootstrap}
    finished = subprocess.run(
        ["/bin/sh", "-c", line, COMMAND], capture_output=True, check=False, env=environment, timeout=PATIENCE_S
    )
    assert finished.returncode == exit_code
    assert message in finished.stderr
    assert len(finished.stderr.splitlines()) == (1 if message else 0)


def test_a_group_goes_on_where_it_stopped(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\nb\nc\n")
    assert cli.lines("consume", name, "-g", name, "-c", "2") == ["a", "b"]
    assert cli.lines("consume", name, "-g", name, "-e") == ["c"]
    assert cli.lines("consume", name, "-g", name, "-e") == []
    assert cli.lines("consume", name, "-g", name, "-e", "-o", "beginning") == ["a", "b", "c"]


def test_a_reader_that_leaves_ends_the_command_quietly(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\nb\n")
    with cli.start("consume", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_waiting_consumer_with_the_shells_code(
    cli: CommandLine, name: str, number: signal.Signals, exit_code: int
) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    cli.ok("produce", name, stdin=b"a\n")
    with cli.start("consume", name, "-g", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == exit_code
        assert b"Traceback" not in process.stderr.read()
    [group] = cli.json("groups", "describe", name)
    assert (group["state"], group["lag"], group["offsets"][0]["current_offset"]) == ("Empty", 0, 1)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["consume", "TOPIC", "-e"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["consume", "TOPIC", "-o", "nowhere"], 2, "--offset: 'nowhere' is no offset"),
        (["consume", "TOPIC", "-o", "stored"], 2, "--group"),
        (["consume", "TOPIC", "-f", "%z"], 2, "--format: unknown token"),
        (["consume"], 2, "give either topics or --pattern"),
        (["consume", "TOPIC", "--pattern", "a"], 2, "give either topics or --pattern"),
        (["consume", "--pattern", "("], 2, "--pattern: missing )"),
        (["consume", "--pattern", "no-such-topic"], 1, "no topic that the user may see matches"),
        (["consume", "TOPIC", "-p", "x"], 2, "--partitions: 'x' is no partition"),
        (["consume", "TOPIC", "--until", "soon"], 2, "--until: 'soon' is no time"),
        (["produce", "TOPIC", "--throughput", "0"], 2, "--throughput"),
        (["produce", "TOPIC", "--acks", "2"], 2, "--acks"),
        (["produce", "TOPIC", "-z", "rar"], 2, "--compression"),
        (["produce", "TOPIC", "-l", "/no/such/file"], 1, "pybroker: --file /no/such/file: no such file"),
        (["produce", "TOPIC", "-X", "no.such=1"], 2, "unknown client setting"),
        (["produce", "TOPIC", "-X", "linger.ms=soon"], 2, "-X linger.ms: invalid value 'soon'"),
        (["produce", "TOPIC", "-X", "sasl.plain.username=u", "-X", "linger.ms=soon"], 2, "-X linger.ms: invalid value"),
        (
            ["produce", "TOPIC", "-X", "ssl.check.hostname=no", "-X", "acks=1"],
            2,
            "; --acks sets it",
        ),
        (["produce", "TOPIC", "-X", "linger.ms=5", "-X", "request.required.acks=1"], 2, "-X request.required.acks: "),
        (["produce", "TOPIC", "-X", "metadata.broker.list=a:1"], 2, "--bootstrap names the brokers"),
        (["consume", "TOPIC", "-X", "fetch.min.bytes=many"], 2, "-X fetch.min.bytes: invalid value 'many'"),
        (["consume", "TOPIC", "-X", "bootstrap.servers=a:1"], 2, "--bootstrap names the brokers"),
        (["topics", "list", "-X", "no.such=1"], 2, "unknown client setting"),
        (["nonsense"], 2, "No such command"),
        (["produce", "TOPIC", "-K", ""], 2, "--key-delimiter must not be empty"),
        (["produce", "TOPIC", "-H", "\udcff=\udcff"], 2, "not UTF-8"),
        (["topics", "create", "\udcff"], 2, "not UTF-8"),
        (["topics", "create", "TOPIC", "-p", "2147483648"], 2, "Invalid value for"),
        (["topics", "alter", "TOPIC", "-p", "99999999999"], 2, "Invalid value for"),
        (["topics", "list", "-b", ","], 2, "names no broker"),
        (["topics", "list", "-b", ""], 2, "names no broker"),
        (["groups", "list", "--state", "foo"], 2, "--state must be one of"),
        (["transactions", "list", "--state", "foo"], 2, "--state must be one of"),
        (["produce", "TOPIC", "-t", "orders"], 2, "No such option: -t"),
        (["produce", "TOPIC", "--throughput", "0"], 2, "'0' is no number of 1 or more"),
        (["produce", "TOPIC", "--partition", "first"], 2, "'first' is no number"),
        (["groups", "lag", "--interval", "9999"], 2, "'9999' is no number from 0.1 to 3600"),
        (["groups", "reset-offsets", "g", "--all-topics", "--shift-by", "x"], 2, "'x' is no number"),
        (["completion", "ksh"], 2, "'ksh' is not one of"),
        (["topics", "alter", "TOPIC"], 2, "│ nothing to change: "),
    ],
)
def test_wrong_use_and_failure_have_their_own_exit_codes(
    cli: CommandLine, name: str, arguments: list[str], exit_code: int, message: str
) -> None:
    finished = cli.run(*(name if argument == "TOPIC" else argument for argument in arguments))
    assert finished.returncode == exit_code
    assert message in finished.stderr.decode()
    assert finished.stdout == b""


def test_a_line_that_is_no_record_names_its_number(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    finished = cli.run("produce", name, "--json", stdin=b'{"value": "ok"}\n\n{"value": \n')
    assert finished.returncode == 1
    told = b"pybroker: line 3: no JSON: Expecting value at column 11\nsent before it: 1 record\n"
    assert finished.stderr == told
    finished = cli.run("produce", name, "--json", stdin=b'{"value": "ok"}\n{"timestamp": 9223372036854775808}\n')
    assert finished.returncode == 1
    assert finished.stderr.startswith(b"pybroker: line 2: timestamp must be less than")
    ends = b'{"timestamp": 0}\n{"timestamp": 9223372036854775807}\n'
    cli.run("produce", name, "--json", stdin=ends)  # comes to an end, whatever the broker says of it


def test_a_reader_of_the_report_that_leaves_takes_no_record_along(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    with cli.start("produce", name, "-v") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{name}\t0\t0\n".encode()
        process.stdout.close()
        process.stdin.write(b"b\n" * 5_000)
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == b""
    assert len(cli.lines("consume", name, "-e")) == 5_001


def test_a_record_that_the_broker_refuses_fails_the_command(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-c", "max.message.bytes=100")
    finished = cli.run("produce", name, stdin=b"x" * 1000)
    assert finished.returncode == 1
    assert finished.stderr.startswith(b"pybroker: record 1: ")
