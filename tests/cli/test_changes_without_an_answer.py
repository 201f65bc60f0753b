"""What a command says of a change that was done and whose answer was lost: no failure, and no success that is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from harness.waiting import wait_until

from pybroker.cli.commands import partitions, tokens
from pybroker.cli.connection import changes
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.client_settings import Access
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import request_class
from pybroker_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pybroker_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from pybroker_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest
from pybroker_protocol.messages.create_topics import CreateTopicsRequest
from pybroker_protocol.messages.delete_acls import DeleteAclsRequest
from pybroker_protocol.messages.delete_groups import DeleteGroupsRequest
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest
from pybroker_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pybroker_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pybroker_protocol.messages.leave_group import LeaveGroupRequest
from pybroker_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest
from pybroker_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from pybroker_protocol.schema import Request
from tests.cli.answer_dropper import AnswerDropper, behind_a_dropper
from tests.cli.command import CommandLine
from tests.cli.test_transactions_command import write_hanging
from tests.source_tree import ROOT

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "transaction.partition.verification.enable": "false",
}
REPEATED = "which is as wanted: an earlier request of this command got no answer, and may have done it\n"


@pytest.fixture(scope="module")
def dropper() -> Iterator[AnswerDropper]:
    """A broker behind a proxy that loses answers."""
    with behind_a_dropper(SETTINGS) as proxy:
        yield proxy


@pytest.fixture
def cli(dropper: AnswerDropper) -> CommandLine:
    """Commands that ask that broker."""
    return CommandLine(dropper.bootstrap)


def commit(bootstrap: str, name: str) -> None:
    """An offset of the group of this name in the topic of this name."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    client.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    client.close()


def run_without_answer(
    cli: CommandLine, dropper: AnswerDropper, kind: type[Request], arguments: Sequence[str]
) -> tuple[int, str, str]:
    dropper.lose(kind)
    finished = cli.run(*arguments)
    assert dropper.lost == 1
    return finished.returncode, finished.stdout.decode(), finished.stderr.decode()


@pytest.mark.parametrize("is_there", [False, True], ids=["created by this command", "there before"])
def test_a_topic_that_is_as_it_was_to_be_exists_whoever_created_it(
    cli: CommandLine, dropper: AnswerDropper, name: str, is_there: bool
) -> None:
    create = ("topics", "create", name, "-p", "3", "-r", "1", "-c", "retention.ms=5000")
    if is_there:
        cli.ok(*create)
    told = run_without_answer(cli, dropper, CreateTopicsRequest, create)
    assert told == (
        0,
        f"TOPIC\tSTATUS\n{name}\texists\n",
        f"topic {name}: it exists with that shape (created by this command, or before): "
        "an earlier request of this command got no answer\n",
    )


@pytest.mark.parametrize("asked", [("-p", "4"), ("-p", "3", "-c", "retention.ms=6000")])
def test_a_topic_that_is_not_as_it_was_to_be_is_a_failure(
    cli: CommandLine, dropper: AnswerDropper, name: str, asked: tuple[str, ...]
) -> None:
    cli.ok("topics", "create", name, "-p", "3", "-c", "retention.ms=5000")
    code, _, told = run_without_answer(cli, dropper, CreateTopicsRequest, ("topics", "create", name, *asked))
    refused = f"pybroker: topic {name}: TOPIC_ALREADY_EXISTS: It is not as asked for, and may be another's.\n"
    assert (code, told) == (1, refused)


def test_a_topic_that_exists_fails_a_creation_that_got_its_answer(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name)
    assert cli.run("topics", "create", name).returncode == 1
    assert cli.run("topics", "create", name, "--dry-run").returncode == 1


def test_a_lost_answer_to_a_dry_run_makes_no_topic_a_success(
    cli: CommandLine, dropper: AnswerDropper, name: str
) -> None:
    cli.ok("topics", "create", name)
    code, _, told = run_without_answer(cli, dropper, CreateTopicsRequest, ("topics", "create", name, "--dry-run"))
    assert (code, told) == (1, f"pybroker: topic {name}: TOPIC_ALREADY_EXISTS: Topic '{name}' already exists.\n")


def test_a_topic_that_was_deleted_is_a_success(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("topics", "create", name)
    told = run_without_answer(cli, dropper, DeleteTopicsRequest, ("topics", "delete", name))
    assert told == (
        0,
        f"TOPIC\tSTATUS\n{name}\tdeleted\n",
        f"topic {name}: UNKNOWN_TOPIC_OR_PARTITION, {REPEATED}",
    )


def test_partitions_that_were_added_are_a_success(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    told = run_without_answer(cli, dropper, CreatePartitionsRequest, ("topics", "alter", name, "-p", "2"))
    assert told == (0, f"TOPIC\tSTATUS\n{name}\taltered\n", f"topic {name}: INVALID_PARTITIONS, {REPEATED}")
    code, _, told_of_less = run_without_answer(
        cli, dropper, CreatePartitionsRequest, ("topics", "alter", name, "-p", "1")
    )
    assert code == 1
    assert told_of_less.startswith(f"pybroker: topic {name}: INVALID_PARTITIONS: ")


def test_settings_are_altered_twice_and_once(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("topics", "create", name)
    append = ("topics", "alter", name, "--append", "cleanup.policy=compact")
    assert run_without_answer(cli, dropper, IncrementalAlterConfigsRequest, append)[0] == 0
    (described,) = cli.json("topics", "describe", name)
    assert described["configs"]["cleanup.policy"] == "delete,compact"


def test_a_group_that_was_deleted_is_a_success_and_one_that_never_was_is_none(
    cli: CommandLine, dropper: AnswerDropper, name: str
) -> None:
    cli.ok("topics", "create", name)
    commit(cli.bootstrap, name)
    delete = ("groups", "delete", name, f"{name}-never")
    code, table, told = run_without_answer(cli, dropper, DeleteGroupsRequest, delete)
    assert table == f"GROUP\tSTATUS\n{name}\tdeleted\n"
    missing = "GROUP_ID_NOT_FOUND: The group does not exist."
    assert told == f"group {name}: GROUP_ID_NOT_FOUND, {REPEATED}pybroker: group {name}-never: {missing}\n"
    assert code == 1


def test_a_member_that_was_removed_is_a_success(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("topics", "create", name)
    reader = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": name, "group.instance.id": "i"})
    reader.subscribe([name])
    wait_until(lambda: bool(reader.poll(0.1) or reader.assignment()), "the member has its partition")
    remove = ("groups", "remove-member", name, "--instance", "i")
    code, _, told = run_without_answer(cli, dropper, LeaveGroupRequest, remove)
    reader.close()
    assert (code, told) == (0, f"member i: UNKNOWN_MEMBER_ID, {REPEATED}")


def test_a_user_that_was_deleted_is_a_success(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("users", "create", name, stdin=b"secret-of-it\n")
    code, _, told = run_without_answer(cli, dropper, AlterUserScramCredentialsRequest, ("users", "delete", name))
    assert (code, told) == (0, f"user {name}: RESOURCE_NOT_FOUND, {REPEATED}")


def test_acls_that_were_removed_unseen_are_told_of(cli: CommandLine, dropper: AnswerDropper, name: str) -> None:
    cli.ok("acls", "add", "-t", name, "-p", "User:a", "-o", "read")
    code, _, told = run_without_answer(cli, dropper, DeleteAclsRequest, ("acls", "remove", "-t", name))
    assert (code, told) == (
        0,
        "more may be removed than is shown: an earlier request of this command got no answer\n",
    )


def test_a_token_is_not_made_twice(cli: CommandLine, dropper: AnswerDropper) -> None:
    code, table, told = run_without_answer(cli, dropper, CreateDelegationTokenRequest, ("tokens", "create"))
    assert (code, table) == (1, "")
    assert told.endswith("\nCreateDelegationToken got no answer, and may be done even so\n")


def test_a_change_whose_broker_is_gone_behind_it_may_be_done(name: str) -> None:
    with behind_a_dropper({}) as dropper:
        dropper.lose(DeleteTopicsRequest, stops=True)
        finished = CommandLine(dropper.bootstrap).run("topics", "delete", name)
    assert finished.returncode == 1
    assert finished.stderr.decode().splitlines() == [
        f"pybroker: {dropper.bootstrap} refuses the connection; probably no broker listens there",
        "DeleteTopics got no answer, and may be done even so",
    ]


def test_a_hanging_transaction_that_was_aborted_is_not_aborted_again(
    cli: CommandLine, dropper: AnswerDropper, name: str
) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    write_hanging(cli.bootstrap, name)
    abort = ("transactions", "abort", "-t", name, "-p", "0", "--start-offset", "0")
    code, table, told = run_without_answer(cli, dropper, WriteTxnMarkersRequest, abort)
    assert (code, told) == (0, f"{name}-0: the transaction was ended while an answer of its leader was lost\n")
    assert table.rstrip().endswith("\tended")  # its coordinator may have committed it
    assert cli.json("topics", "describe", name)[0]["partitions"][0]["end_offset"] == 2  # of one marker


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (UnregisterBrokerRequest(broker_id=7), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AlterPartitionReassignmentsRequest(topics=[]), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_is_gone_counts_as_done_where_that_request_got_no_answer(
    request_: Request, code: ErrorCode, capsys: pytest.CaptureFixture[str]
) -> None:
    client = AdminClient([], Access(), 1)
    assert changes.settled(client, request_, code, "it") == code
    assert capsys.readouterr().err == ""
    client._unanswered.append(request_)
    assert changes.settled(client, request_, code, "it") == 0
    assert capsys.readouterr().err == f"it: {code.name}, {REPEATED}"
    assert changes.settled(client, request_, ErrorCode.UNKNOWN_SERVER_ERROR, "it") == ErrorCode.UNKNOWN_SERVER_ERROR
    assert changes.settled(client, request_, 0, "it") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("replicas", "code"),
    [([1, 2], ErrorCode.NONE), ([3, 2], ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)],
    ids=["taken back", "moved before"],
)
def test_a_move_that_came_to_its_end_is_not_cancelled(
    replicas: list[int], code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition("t", 0)

    class Client(AdminClient):
        def ask(self, request: Request, *_: Any, **__: Any) -> Any:
            self._unanswered.append(request)
            at = SimpleNamespace(
                partition_index=0, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, error_message=None
            )
            topic = SimpleNamespace(name="t", partitions=[at])
            return SimpleNamespace(error_code=0, error_message=None, responses=[topic])

        def metadata(self, topics: Sequence[Any] | None = ()) -> MetadataResponse:
            at = MetadataResponsePartition(
                error_code=0, partition_index=0, leader_id=1, replica_nodes=replicas, isr_nodes=replicas
            )
            topic = MetadataResponseTopic(error_code=0, name="t", is_internal=False, partitions=[at])
            return MetadataResponse(brokers=[], controller_id=1, topics=[topic])

    monkeypatch.setattr(partitions, "_KNOWN_WITHIN_S", 0.0)
    move = partitions.Reassignment([3, 2, 1], [3], [1])
    answers = partitions.alter(Client([], Access(), 1), {partition: None}, {partition: move})
    assert answers == {partition: (code, None)}


def test_a_token_that_is_to_last_a_while_and_is_gone_was_not_ended_by_the_command() -> None:
    class Client(AdminClient):
        def ask(self, request: Request, *_: Any, **__: Any) -> Any:
            self._unanswered.append(request)
            return SimpleNamespace(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp_ms=-1)

    client = Client([], Access(), 1)
    tokens.end(client, "id", b"hmac")
    with pytest.raises(CommandFailed, match="DELEGATION_TOKEN_NOT_FOUND"):
        tokens._expire(client, "id", b"hmac", 60_000)


ASKING = {
    "ApiVersions",
    "ConsumerGroupDescribe",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeDelegationToken",
    "DescribeGroups",
    "DescribeLogDirs",
    "DescribeProducers",
    "DescribeQuorum",
    "DescribeTransactions",
    "DescribeUserScramCredentials",
    "Fetch",
    "FindCoordinator",
    "ListConfigResources",
    "ListGroups",
    "ListOffsets",
    "ListPartitionReassignments",
    "ListTransactions",
    "Metadata",
    "OffsetFetch",
    "SaslAuthenticate",
    "SaslHandshake",
}


def test_of_every_request_it_is_known_what_a_repeat_does() -> None:
    sources = [path.read_text() for path in (ROOT / "pybroker" / "cli").rglob("*.py")]
    sent = {name for text in sources for name in re.findall(r"import .*?\b(\w+)Request\b", text, re.DOTALL)}
    named = {name for text in sources for name in re.findall(r"\b([A-Z]\w+)Request\(", text)}
    known = {request_class(key).__name__.removesuffix("Request") for key in range(100) if _exists(key)}
    assert (sent | named) & known == ASKING | changes._CHANGES
    assert not ASKING & changes._CHANGES


def _exists(key: int) -> bool:
    try:
        request_class(key)
    except KeyError:
        return False
    return True
