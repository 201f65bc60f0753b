"""``pybroker transactions``: list and describe transactions, and find and end those that hang.

Owns: the shapes that these commands print.  Counterparts: kafka-transactions.sh, ``rpk cluster txn``.
"""

from __future__ import annotations

import shlex
import time
from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import hanging_transactions
from pybroker.cli.requests import transaction_requests as requests
from pybroker.cli.requests.offsets import parse_duration_ms
from pybroker.cli.requests.partition_leaders import Partition, asked_of_leaders, choose_partitions
from pybroker.cli.requests.transaction_requests import Producer, Transaction
from pybroker.cli.terminal.error_names import fail_for, refused, show
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import repeated
from pybroker.cli.terminal.output import Row, counted, remark, show_duration, show_time
from pybroker_protocol.errors import ErrorCode

app = typer.Typer(help="List and describe transactions, find and end those that hang.", no_args_is_help=True)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)

# Those in which a transaction is under way; in others the coordinator may still tell when the last one began.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")]


def now_ms() -> int:
    """Epoch milliseconds by this machine's clock; kafka-transactions.sh compares with its own, too."""
    return int(time.time() * 1000)


def duration_ms(text: str, option: str, bare_unit: str | None) -> int:
    """A duration of the command line in milliseconds; a usage error for anything else."""
    try:
        return parse_duration_ms(text, bare_unit)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


@admin_command(app, "list")
def list_transactions(
    session: Session,
    *,
    states: Annotated[list[str], repeated("--state", "-s", help="Only ids in this state, like Ongoing.")],
    producer_ids: Annotated[list[str], repeated("--producer-id", metavar="N", help="Only ids of this producer id.")],
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--running-longer-than",
            metavar="DURATION",
            help="Only transactions open for longer: 90s, 15m, 2h; a number without a unit is milliseconds.",
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Only ids that match, by RE2's rules.")
    ] = None,
) -> None:
    """List the transactional ids of the cluster."""
    known = {state.lower(): state for state in STATES}
    if strange := [state for state in states if state.lower() not in known]:
        raise typer.BadParameter(f"--state must be one of {', '.join(STATES)}, not {strange[0]!r}")
    wanted = [known[state.lower()] for state in states]
    if any(not text.lstrip("-").isdigit() for text in producer_ids):
        raise typer.BadParameter("--producer-id must be a number")
    longer_than_ms = None if longer_than is None else duration_ms(longer_than, "--running-longer-than", "ms")
    with session.client() as client:
        listings, unknown = retried(
            lambda: requests.list_transactions(
                client,
                states=wanted,
                producer_ids=map(int, producer_ids),
                longer_than_ms=longer_than_ms,
                pattern=pattern,
            )
        )
    if unknown:
        raise CommandFailed(f"no broker knows the state {min(unknown)!r}")
    document = [listing._asdict() for listing in listings]
    session.output.result(document, ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), listings)


def open_for_ms(transaction: Transaction, now: int) -> int | None:
    """How long the id's transaction has been open; ``None`` if none is."""
    if transaction.start_time_ms is None or transaction.state not in OPEN_STATES:
        return None
    return now - transaction.start_time_ms


@admin_command(app, "describe")
def describe_transactions(
    session: Session,
    *,
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Transactional ids.")],
) -> None:
    """Describe transactional ids: producer, state, and the partitions of the transaction that is open."""
    with session.client() as client:
        answers = retried(lambda: requests.describe_transactions(client, transactional_ids))
    found = [answer for name in transactional_ids if isinstance(answer := answers[name], Transaction)]
    now = now_ms()
    document = [
        {
            **transaction._asdict(),
            "open_for_ms": open_for_ms(transaction, now),
            "partitions": [str(partition) for partition in transaction.partitions],
        }
        for transaction in found
    ]
    columns = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "EPOCH", "STATE", "TIMEOUT", "OPEN-FOR", "PARTITIONS")
    rows = [
        (
            *list(entry.values())[:5],
            show_duration(entry["timeout_ms"]),
            show_duration(entry["open_for_ms"]),
            entry["partitions"],
        )
        for entry in document
    ]
    codes = {name: code for name in transactional_ids if not isinstance(code := answers[name], Transaction)}
    failures = [refused(f"transaction {name}", code) for name, code in codes.items()]
    show(session.output, document, columns, rows, failures)


def producer_entry(partition: Partition, producer: Producer) -> dict[str, Any]:
    """A producer of a partition as a document."""
    return {"topic": partition.topic, "partition": partition.number, **producer._asdict()}


def producer_cells(entry: dict[str, Any]) -> Row:
    """The first cells of a producer's row: where it writes, and who it is; -1 stands for no epoch."""
    epochs = (entry[name] for name in ("producer_epoch", "coordinator_epoch"))
    identity = (None if epoch < 0 else epoch for epoch in epochs)
    return (entry["topic"], entry["partition"], entry["producer_id"], *identity)


@admin_command(app, "describe-producers")
def describe_producers(
    session: Session,
    *,
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:N,M]…", help="Topics, or some of their partitions.")
    ],
    only_open: Annotated[bool, typer.Option("--open", help="Only those with an open transaction.")] = False,
) -> None:
    """Show the producers that partitions remember, and where their open transactions begin."""
    with session.client() as client:
        chosen = choose_partitions(client, partitions)
        answers = asked_of_leaders(client, chosen, lambda leaders: requests.describe_producers(client, leaders))
    known, failed = hanging_transactions.split_answers(answers)
    document = [
        producer_entry(partition, producer)
        for partition, producers in sorted(known.items())
        for producer in sorted(producers)
        if not only_open or producer.txn_start_offset is not None
    ]
    columns = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH"),
        *("LAST-SEQUENCE", "LAST-TIMESTAMP", "TXN-START-OFFSET"),
    )
    rows = [
        (
            *producer_cells(entry),
            entry["last_sequence"],
            show_time(entry["last_timestamp"]),
            entry["txn_start_offset"],
        )
        for entry in document
    ]
    show(session.output, document, columns, rows, [refused(each, code) for each, code in failed.items()])


@admin_command(app, "find-hanging")
def find_hanging(
    session: Session,
    *,
    topics: Annotated[
        list[str],
        repeated("--topic", "-t", metavar="TOPIC[:N,M]", help="Topics, or some of their partitions; otherwise all."),
    ],
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="DURATION",
            help="Transactions open for longer may hang: the brokers' transaction.max.timeout.ms, like 15m or 2h; "
            "a number without a unit is minutes.",
        ),
    ] = "15m",
) -> None:
    """Find transactions that hang: no coordinator will end them, and they hold back every read_committed consumer."""
    max_timeout_ms = duration_ms(max_timeout, "--max-transaction-timeout", "m")
    now = now_ms()
    with session.client() as client:
        chosen = choose_partitions(client, topics) if topics else None
        found, failed = hanging_transactions.find_hanging(client, chosen, max_timeout_ms)
    if not topics:
        # A topic that was deleted since it was listed hides nothing.
        failed = {at: code for at, code in failed.items() if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    document = [producer_entry(*each) | {"open_for_ms": now - each.producer.last_timestamp} for each in found]
    columns = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH"),
        *("TXN-START-OFFSET", "LAST-TIMESTAMP", "OPEN-FOR"),
    )
    rows = [
        (
            *producer_cells(entry),
            entry["txn_start_offset"],
            show_time(entry["last_timestamp"]),
            show_duration(entry["open_for_ms"]),
        )
        for entry in document
    ]
    unseen = f"{counted(len(failed), 'partition')} not looked at"
    failures = [refused(f"{unseen}: {at}", code) for at, code in list(failed.items())[:1]]
    if session.output.as_json or rows or not failures:
        session.output.result(document, columns, rows)
        session.output.flush()
    for partition, producer in found[:1]:
        where = f"--topic {partition.topic} --partition {partition.number} --start-offset {producer.txn_start_offset}"
        which = "it" if len(found) == 1 else "the first of them"
        remark(f"To end {which}: {shlex.join(['pybroker', 'transactions', 'abort', *session.same_cluster()])} {where}")
    fail_for(failures, session.output)


@admin_command(app, "abort")
def abort(
    session: Session,
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic of the partition.")],
    index: Annotated[int, typer.Option("--partition", "-p", metavar="N", min=0, help="The number of the partition.")],
    start_offset: Annotated[
        int, typer.Option("--start-offset", metavar="N", min=0, help="The offset at which the transaction begins.")
    ],
) -> None:
    """Abort a transaction that hangs in one partition, without its producer."""
    partition = Partition(topic, index)
    with session.client() as client:
        chosen = choose_partitions(client, [f"{topic}:{index}"])
        seen: list[Producer] = []
        status = asked_of_leaders(
            client, chosen, lambda leaders: end_open(client, leaders, partition, start_offset, seen)
        )
    producer = seen[0]
    document = {**producer_entry(partition, producer), "status": status}
    names = ("topic", "partition", "txn_start_offset", "producer_id", "producer_epoch", "status")
    columns = ("TOPIC", "PARTITION", "TXN-START-OFFSET", "PRODUCER-ID", "EPOCH", "STATUS")
    session.output.result([document], columns, [[document[name] for name in names]])


def end_open(
    client: AdminClient, leaders: dict[Partition, int], partition: Partition, start_offset: int, seen: list[Producer]
) -> str:
    """Abort the transaction that begins there; ``seen`` gets its producer.  CommandFailed where there is none.

    Each attempt looks first: behind a marker whose answer was lost, the same producer may be in its next transaction.
    What has ended by then is "ended": its coordinator may have committed it instead.
    """
    answer = requests.describe_producers(client, leaders)[partition]
    if isinstance(answer, int):
        raise refused(partition, answer)
    producer = next((each for each in answer if each.txn_start_offset == start_offset), None)
    if producer is None:
        if seen:
            remark(f"{partition}: the transaction was ended while an answer of its leader was lost")
            return "ended"
        raise CommandFailed(f"{partition}: no open transaction begins at offset {start_offset}")
    seen[:] = [producer]
    identity = (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
    if code := requests.write_abort_marker(client, leaders[partition], partition, *identity):
        raise refused(partition, code)
    return "aborted"


@admin_command(app, "terminate")
def terminate(session: Session, *, transactional_id: TransactionalId) -> None:
    """Abort the open transaction of a transactional id, and fence its producer."""
    with session.client() as client:
        before = retried(lambda: requests.describe_transactions(client, [transactional_id]))[transactional_id]
        if not isinstance(before, Transaction):
            # Without this the request would make the id.
            raise refused(f"transaction {transactional_id}", before)
        producer_id, producer_epoch = retried(lambda: requests.fence_producer(client, before))
    document = {
        "transactional_id": transactional_id,
        "previous_state": before.state,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "status": "terminated",
    }
    columns = ("TRANSACTIONAL-ID", "PREVIOUS-STATE", "PRODUCER-ID", "EPOCH", "STATUS")
    session.output.result([document], columns, [list(document.values())])
