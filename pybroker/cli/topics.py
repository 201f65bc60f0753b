"""``pybroker topics``: list, create, describe, delete, alter, and show the settings of topics.

Owns: the shapes that these commands print.  Counterparts: kafka-topics.sh, kafka-configs.sh, ``rpk topic``.
"""

from __future__ import annotations

import fnmatch
import uuid
from typing import Annotated, Any

import typer

from pybroker.cli.connection import admin_client, parse_pairs, retried
from pybroker.cli.failure import CommandFailed, describe_error_code
from pybroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, Json
from pybroker.cli.output import Output
from pybroker_protocol.uuids import uuid_text

app = typer.Typer(help="List, create, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics by name.")]
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36


def kafka_uuid(text: str | None) -> str | None:
    """A uuid as Kafka's tools print it."""
    return uuid_text(uuid.UUID(text).bytes) if text else None


def describe_existing(client: Any, names: list[str] | None) -> list[dict[str, Any]]:
    """Metadata of the named topics (``None``: all) by name; raises ``CommandFailed`` for one that is missing."""
    topics: list[dict[str, Any]] = retried(lambda: client.describe_topics(names))
    for topic in topics:
        if topic["error_code"]:
            raise CommandFailed(f"topic {topic['name']}: {describe_error_code(topic['error_code'])}")
    return sorted(topics, key=lambda topic: str(topic["name"]))


@app.command("list")
def list_topics(
    *,
    patterns: Annotated[
        list[str],
        typer.Argument(metavar="[PATTERN…]", help="Shell patterns of names.", default_factory=list, show_default=False),
    ],
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Internal topics as well.")] = False,
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Only the names, one a line.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """List the topics of the cluster."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        topics = describe_existing(client, None)
    shown = [
        {
            "name": topic["name"],
            "id": kafka_uuid(topic.get("topic_id")),
            "partitions": len(topic["partitions"]),
            "replication_factor": max((len(p["replica_nodes"]) for p in topic["partitions"]), default=0),
            "internal": topic["is_internal"],
        }
        for topic in topics
        if (internal or not topic["is_internal"])
        and (not patterns or any(fnmatch.fnmatchcase(topic["name"], pattern) for pattern in patterns))
    ]
    if names_only and not as_json:
        for topic in shown:
            output.line(topic["name"])
        return
    output.result(
        shown,
        ("NAME", "PARTITIONS", "REPLICAS"),
        [(topic["name"], topic["partitions"], topic["replication_factor"]) for topic in shown],
    )


@app.command("create")
def create_topics(
    *,
    names: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="Partitions of each; -1: broker's.")] = -1,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="Replicas of each partition; -1: broker's.")] = -1,
    configs: Annotated[
        list[str],
        typer.Option(
            "--config", "-c", metavar="KEY=VALUE", help="Topic setting.", default_factory=list, show_default=False
        ),
    ],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no failure.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker validate, create nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Create topics."""
    output = Output(as_json=as_json)
    wanted = {
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": parse_pairs(configs, "--config"),
    }
    with admin_client(bootstrap, properties) as client:
        answer = retried(
            lambda: client.create_topics(dict.fromkeys(names, wanted), validate_only=dry_run, raise_errors=False)
        )
    ignored = {TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    report(output, answer["topics"], done="valid" if dry_run else "created", ignored=ignored)


@app.command("delete")
def delete_topics(
    *,
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A missing topic is no failure.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        answer = retried(lambda: client.delete_topics(names, raise_errors=False))
    ignored = {UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    report(output, answer["topics"], done="deleted", ignored=ignored)


def report(output: Output, answers: list[dict[str, Any]], *, done: str, ignored: set[int]) -> None:
    """Print what became of each topic; raises ``CommandFailed`` when one failed for a reason not in ``ignored``."""
    results: list[dict[str, Any]] = []
    failures = 0
    for answer in answers:
        code = answer["error_code"]
        failures += code != 0 and code not in ignored
        result = {"name": answer["name"], "status": describe_error_code(code) if code else done}
        if code and answer.get("error_message"):
            result["message"] = answer["error_message"]
        results.append(result)
    rows = [(result["name"], result["status"], result.get("message")) for result in results]
    output.result(results, ("NAME", "STATUS", "MESSAGE"), rows)
    if failures:
        output.flush()
        raise CommandFailed(f"{failures} of {len(answers)} topics failed")


@app.command("describe")
def describe_topics(
    *,
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Describe topics: id, settings that differ from the default, and each partition with its offsets."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        topics = [describe_one(client, topic) for topic in describe_existing(client, names)]
    if as_json:
        output.json(topics)
        return
    for topic in topics:
        settings = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
        output.table(
            ("TOPIC", "ID", "PARTITIONS", "REPLICAS", "CONFIGS"),
            [(topic["name"], topic["id"], len(topic["partitions"]), topic["replication_factor"], settings)],
        )
        columns = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET")
        keys = ("partition", "leader", "leader_epoch", "replicas", "isr", "start_offset", "end_offset")
        output.table(columns, [[partition[key] for key in keys] for partition in topic["partitions"]])


def describe_one(client: Any, topic: dict[str, Any]) -> dict[str, Any]:
    """One topic's document: metadata, modified settings, and offsets where a leader can tell them."""
    from kafka import OffsetSpec, TopicPartition

    name = topic["name"]
    led = [TopicPartition(name, p["partition_index"]) for p in topic["partitions"] if p["leader_id"] >= 0]
    starts = retried(lambda: client.list_partition_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))) if led else {}
    ends = retried(lambda: client.list_partition_offsets(dict.fromkeys(led, OffsetSpec.LATEST))) if led else {}
    partitions = []
    for partition in sorted(topic["partitions"], key=lambda p: int(p["partition_index"])):
        key = TopicPartition(name, partition["partition_index"])
        partitions.append(
            {
                "partition": partition["partition_index"],
                "leader": partition["leader_id"],
                "leader_epoch": partition.get("leader_epoch"),
                "replicas": partition["replica_nodes"],
                "isr": partition["isr_nodes"],
                "offline": partition.get("offline_replicas", []),
                "start_offset": starts[key].offset if key in starts else None,
                "end_offset": ends[key].offset if key in ends else None,
            }
        )
    return {
        "name": name,
        "id": kafka_uuid(topic.get("topic_id")),
        "internal": topic["is_internal"],
        "replication_factor": max((len(p["replicas"]) for p in partitions), default=0),
        "configs": {key: value["value"] for key, value in topic_configs(client, name, everything=False).items()},
        "partitions": partitions,
    }


def topic_configs(client: Any, name: str, *, everything: bool) -> dict[str, dict[str, Any]]:
    """The settings of a topic by name: those set on the topic itself, or all with their defaults."""
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    answer = retried(lambda: client.describe_configs([resource], config_filter="all"))
    configs: dict[str, dict[str, Any]] = answer["topic"][name]
    return {
        key: config
        for key, config in sorted(configs.items())
        if everything or config["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    }


@app.command("configs")
def show_configs(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    everything: Annotated[bool, typer.Option("--all", "-a", help="Defaults as well.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Show the settings of a topic and where each comes from."""
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        describe_existing(client, [name])
        configs = topic_configs(client, name, everything=everything)
    document = [
        {
            "name": key,
            "value": None if config["is_sensitive"] else config["value"],
            "source": config["config_source"],
            "read_only": config["read_only"],
        }
        for key, config in configs.items()
    ]
    rows = [(entry["name"], entry["value"], entry["source"]) for entry in document]
    output.result(document, ("NAME", "VALUE", "SOURCE"), rows)


@app.command("alter")
def alter_topic(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="New count; it can only grow.")] = None,
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Set a setting.", default_factory=list, show_default=False
        ),
    ],
    unset: Annotated[
        list[str],
        typer.Option(
            "--unset", "-d", metavar="KEY", help="Back to the default.", default_factory=list, show_default=False
        ),
    ],
    append: Annotated[
        list[str],
        typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.", default_factory=list, show_default=False),
    ],
    subtract: Annotated[
        list[str],
        typer.Option(
            "--subtract", metavar="KEY=VALUE", help="Take from a list.", default_factory=list, show_default=False
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker validate, change nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Change a topic's settings or add partitions to it."""
    operations: dict[str, tuple[str, str | None]] = dict.fromkeys(unset, ("DELETE", None))
    for operation, texts in (("SET", settings), ("APPEND", append), ("SUBTRACT", subtract)):
        operations |= {key: (operation, value) for key, value in parse_pairs(texts, f"--{operation.lower()}").items()}
    if not operations and partitions is None:
        raise typer.BadParameter("nothing to change: give --partitions, --set, --unset, --append or --subtract")
    output = Output(as_json=as_json)
    with admin_client(bootstrap, properties) as client:
        describe_existing(client, [name])
        if operations:
            alter_configs(client, name, operations, dry_run=dry_run)
        if partitions is not None:
            add_partitions(client, name, partitions, dry_run=dry_run)
    status = "valid" if dry_run else "altered"
    output.result([{"name": name, "status": status}], ("NAME", "STATUS"), [(name, status)])


def alter_configs(client: Any, name: str, operations: dict[str, tuple[str, str | None]], *, dry_run: bool) -> None:
    """IncrementalAlterConfigs for one topic; the broker judges the names and values."""
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=operations)
    answer = retried(lambda: client.alter_configs([resource], validate_only=dry_run, raise_on_unknown=False))
    outcome = answer["topic"][name]
    if outcome != "OK":
        raise CommandFailed(f"topic {name}: {outcome}")


def add_partitions(client: Any, name: str, count: int, *, dry_run: bool) -> None:
    """CreatePartitions for one topic, to ``count`` in all."""
    answer = retried(lambda: client.create_partitions({name: count}, validate_only=dry_run, raise_errors=False))
    for result in answer.results:
        if result.error_code:
            message = result.error_message or ""
            raise CommandFailed(f"topic {name}: {describe_error_code(result.error_code)}: {message}".rstrip(": "))
