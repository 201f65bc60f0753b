"""Declarations in YAML and JSON, and the line that is named where one is wrong."""

from __future__ import annotations

import re

import pytest

from pybroker.connectors.declared.declaration_files import DeclarationError, declarations
from pybroker.connectors.declared.validation import errors_of, findings

GOOD = """\
name: lines
config:
  connector.class: FileSource
  path: /in
  format: text
  topic: lines
"""


def test_a_declaration_is_read_with_the_lines_of_its_keys() -> None:
    (found,) = declarations(GOOD, "a.yaml")
    assert (found.name, found.config["path"], found.lines["topic"]) == ("lines", "/in", 6)
    assert findings(found) == []


def test_several_documents_lists_and_flat_declarations_are_read() -> None:
    text = f"{GOOD}---\n- {{name: b, connector.class: FileSource}}\n- {{name: c, tasks.max: 2, header: yes}}\n"
    found = declarations(text, "a.yaml")
    assert [each.name for each in found] == ["lines", "b", "c"]
    assert found[2].config == {"name": "c", "tasks.max": "2", "header": "true"}


def test_json_is_read_as_connect_takes_it_by_post() -> None:
    (found,) = declarations('{\n\t"name": "a",\n\t"config": {"tasks.max": 1, "header": true}\n}', "a.json")
    assert found.config == {"name": "a", "tasks.max": "1", "header": "true"}


def test_texts_that_yaml_takes_for_truth_are_texts_where_the_key_has_one() -> None:
    """A topic may be called no."""
    text = "name: no\ntopic: on\ntopics: [yes, off]\nheader: on\nauto.create: no\ntransforms.a.static.value: no\n"
    (found,) = declarations(text, "a.yaml")
    assert (found.name, found.config["topic"], found.config["topics"]) == ("no", "on", "yes,off")
    assert found.config["transforms.a.static.value"] == "no"
    assert (found.config["header"], found.config["auto.create"]) == ("true", "false")


def test_characters_that_json_writes_as_two_are_one() -> None:
    (found,) = declarations('{"name": "a", "config": {"path": "/\\ud83d\\ude00"}}', "a.json")
    assert found.config["path"] == "/\U0001f600"


@pytest.mark.parametrize("depth", [600, 2_000, 100_000])
@pytest.mark.parametrize("file", ["a.yaml", "a.json"])
def test_what_is_nested_too_deep_is_refused(file: str, depth: int) -> None:
    text = f'{{"name": "a", "config": {{"path": {"[" * depth}{"]" * depth}}}}}'
    with pytest.raises(DeclarationError, match=f"^{re.escape(file)}: is nested too deep$"):
        declarations(text, file)


def test_aliases_make_no_value_longer_than_a_request_may_be() -> None:
    text = f"name: a\npath: &x {'y' * 2_000}\ntopics: [{','.join(['*x'] * 1_000)}]\n"
    with pytest.raises(DeclarationError, match=r"^a\.yaml:3: topics has more than 1048576 characters$"):
        declarations(text, "a.yaml")


def test_what_a_new_connector_does_first_is_declared_beside_its_configuration() -> None:
    (found,) = declarations(f"initial_state: stopped\n{GOOD}", "a.yaml")
    assert found.initial_state == "STOPPED"
    assert declarations(GOOD, "a.yaml")[0].initial_state is None


def test_a_list_is_a_setting_with_commas() -> None:
    (found,) = declarations("name: a\ntopics: [x, y]\n", "a.yaml")
    assert found.config["topics"] == "x,y"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nconfig:\n  path: x\n  path: y\n", "a.yaml:4: path stands on line 3, too"),
        ("name: a\nname: b\n", "a.yaml:2: name stands on line 1, too"),
        ("name: a\n---\nname: a\n", "a.yaml:3: a is declared at line 1, too"),
        ("config:\n  path: x\n", "a.yaml:1: a declaration needs a name"),
        ("name: a\nconfig:\n  name: b\n", "a.yaml:3: config names b, and not a"),
        ("name: a\nconfg: 1\nconfig: {}\n", "a.yaml:2: there is no confg beside config; is config meant?"),
        ("name: a\nconfig:\n  path: [a, [b]]\n", "a.yaml:3: path must have a value of text, a number, true or false"),
        ("name: a\npath:\n", "a.yaml:2: path must have a value of text, a number, true or false"),
        ("- 1\n", "a.yaml:1: expected keys with values"),
        (
            "name: a\ninitial_state: STOPED\nconfig: {}\n",
            "a.yaml:2: initial_state must be one of RUNNING, PAUSED, STOPPED; is STOPPED meant?",
        ),
        ('name: a\npath: "\\ud800"\n', "a.yaml:2: path has half of a pair of surrogates, which is no text"),
        ("", "a.yaml: declares no connector"),
        ("name: a\n  x: [\n", "a.yaml:2: is no YAML: mapping values are not allowed here"),
        ("a: &a [*a]\nname: b\n", "a.yaml:1: a must have a value of text, a number, true or false"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declarations(text, "a.yaml")
    assert str(refused.value) == told


def test_a_mistake_in_json_is_told_with_its_line() -> None:
    with pytest.raises(DeclarationError, match=r"^a\.json:2: is no JSON"):
        declarations('{\n"name": }', "a.json")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("a/b", "no slash"),
        ("'a\\b'", "no slash"),
        ("..", "more than one or two dots"),
        ("é" * 100, "as that it has 600 characters, and 255 are the most"),
        ("x" * 201, "1 to 200 characters"),
    ],
)
def test_a_name_that_a_supervisor_does_not_take_is_told(name: str, wrong: str) -> None:
    (found,) = declarations(GOOD.replace("lines", name, 1), "a.yaml")
    (told,) = findings(found)
    assert told.startswith("a.yaml:1: Invalid value ")
    assert wrong in told


@pytest.mark.parametrize("name", ["a b", "50%", "orders:2", "...", "é" * 42, "x" * 200])
def test_a_name_may_have_other_characters(name: str) -> None:
    (found,) = declarations(GOOD.replace("lines", f'"{name}"', 1), "a.yaml")
    assert findings(found) == []


def told(config: str) -> list[str]:
    (found,) = declarations(f"name: a\nconnector.class: JdbcSink\ntopics: t\n{config}", "a.yaml")
    return [each for each in findings(found) if "connection.url" not in each or "nearest" in config]


URL = "connection.url: jdbc:postgresql://h/d\n"


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ("insert.mod: upsert\n", ["a.yaml:4: Configuration is not defined: insert.mod; is insert.mode meant?"]),
        (
            "pk.mode: record_kye\n",
            [
                "a.yaml:1: pk.mode record_kye needs the columns of the key",
                "a.yaml:4: Invalid value record_kye for configuration pk.mode: String must be one of: none, "
                "record_key, record_value; is record_key meant?",
            ],
        ),
        ("tasks.max: many\n", ["a.yaml:4: Invalid value many for configuration tasks.max: Not a number of type INT"]),
        ("tasks.max: 1_0\n", ["a.yaml:4: Invalid value 1_0 for configuration tasks.max: Not a number of type INT"]),
        ("tasks.max: ١\n", ["a.yaml:4: Invalid value ١ for configuration tasks.max: Not a number of type INT"]),
        ("tasks.max: 0\n", ["a.yaml:4: Invalid value 0 for configuration tasks.max: Value must be at least 1"]),
        (
            "auto.create: maybe\n",
            ["a.yaml:4: Invalid value maybe for configuration auto.create: Expected value to be either true or false"],
        ),
        (
            "value.converter: JsonConvertor\n",
            [
                "a.yaml:4: Invalid value JsonConvertor for configuration value.converter: there is no such converter; "
                "there are json, text, bytes, avro, protobuf"
            ],
        ),
        (
            "delete.enabled: true\n",
            ["a.yaml:4: a tombstone has its key alone: delete.enabled needs pk.mode record_key"],
        ),
        (
            "delete.enabled: true\npk.mode: record_key\npk.fields: id\n",
            ["a.yaml:4: rows that are added one by one have no key: delete.enabled needs insert.mode upsert"],
        ),
        (
            "topics.regex: a.*\n",
            ["a.yaml:3: topics and topics.regex are mutually exclusive options, but both are set."],
        ),
    ],
)
def test_a_key_or_value_that_is_wrong_is_told_with_its_line_and_what_is_near(config: str, wrong: list[str]) -> None:
    assert told(config) == wrong


@pytest.mark.parametrize(
    ("mode", "missing"),
    [
        ("incrementing", ["incrementing"]),
        ("timestamp", ["timestamp"]),
        ("timestamp+incrementing", ["incrementing", "timestamp"]),
    ],
)
def test_each_column_that_tells_new_rows_has_to_be_named(mode: str, missing: list[str]) -> None:
    (found,) = declarations(
        f"name: a\nconnector.class: JdbcSource\ntopic: t\n{URL}table: rows\nmode: {mode}\n", "a.yaml"
    )
    assert findings(found) == [
        f'a.yaml:1: Missing required configuration "{each}.column.name" which has no default value.' for each in missing
    ]


def test_a_kind_that_is_not_there_names_the_nearest() -> None:
    (found,) = declarations("name: a\nconnector.class: JdbcSinc\n", "a.yaml")
    (wrong,) = findings(found)
    assert wrong.startswith("a.yaml:2: Failed to find any class")
    assert wrong.endswith("is JdbcSink meant?")


def test_kinds_and_converters_of_connect_by_their_short_names_are_taken() -> None:
    text = f"name: a\nconnector.class: JdbcSinkConnector\ntopics: t\n{URL}value.converter: "
    for converter in ("org.apache.kafka.connect.json.JsonConverter", "StringConverter", "bytes"):
        (found,) = declarations(f"{text}{converter}\n", "a.yaml")
        assert findings(found) == []


@pytest.mark.parametrize(
    "config",
    [
        "connection.password: hunter2\n",
        "connection.pasword: hunter2\n",
        "connection.url: jdbc:postgresql://h/d?password=hunter2\n",
        "connection.url: jdbc:mysql://u:hunter2@h/d\n",
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_told(config: str) -> None:
    (found,) = declarations(f"name: a\nconnector.class: JdbcSink\ntopics: t\n{config}", "a.yaml")
    wrong = findings(found)
    assert wrong
    assert "hunter2" not in "".join(wrong)


def test_a_secret_that_a_provider_has_is_taken() -> None:
    (found,) = declarations(
        f"name: a\nconnector.class: JdbcSink\ntopics: t\n{URL}connection.password: ${{file:/p:k}}\n", "a.yaml"
    )
    assert findings(found) == []


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        (
            "connector.class: FileSink\ntopics: t\npath: s3a://b/x\npartition.by: hours\n",
            [
                "a.yaml:4: Invalid value s3a://b/x for configuration path: it must be a directory, as /data/lake: "
                "DeltaSink writes to other stores",
                "a.yaml:5: Invalid value hours for configuration partition.by: String must be one of: none, month, "
                "day, hour; is hour meant?",
            ],
        ),
        ("connector.class: FileSink\ntopics: t\npath: file:/data/x\nformat: text\n", []),
        (
            "connector.class: TopicSink\ntopics: t\n",
            ["a.yaml:1: records would be read again: topic or cluster.bootstrap.servers says where else they go"],
        ),
        ("connector.class: TopicSink\ntopics: t\ntopic: u\n", []),
        (
            "connector.class: TopicSink\ntopics.regex: t.*\ntopic: tu\n",
            ["a.yaml:4: records would be read again: topic or cluster.bootstrap.servers says where else they go"],
        ),
        ("connector.class: TopicSink\ntopics: t\ncluster.bootstrap.servers: h:1\n", []),
        (
            "connector.class: TopicSource\ncluster.bootstrap.servers: h:1\ncluster.sasl.jaas.config: hunter2\n",
            [
                "a.yaml:1: either source.topics or source.topics.regex names what is read",
                "a.yaml:4: Invalid value [hidden] for configuration cluster.sasl.jaas.config: a secret must be named "
                "by a config provider, as ${file:/path:key}",
            ],
        ),
        (
            "connector.class: TopicSource\ncluster.bootstrap.server: h:1\nsource.topics: t\n",
            [
                "a.yaml:1: records would be read again: topic or cluster.bootstrap.servers says where else they go",
                "a.yaml:3: Configuration is not defined: cluster.bootstrap.server; is cluster.bootstrap.servers meant?",
            ],
        ),
    ],
)
def test_what_a_kind_cannot_mean_is_told_with_its_line(config: str, wrong: list[str]) -> None:
    (found,) = declarations(f"name: a\n{config}", "a.yaml")
    assert findings(found) == wrong


LETTERS = "errors.deadletterqueue.topic.name: "


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (f"connector.class: DeltaSink\npath: /t\ntopics: a, b\n{LETTERS}b\n", "topics"),
        (f"connector.class: DeltaSink\npath: /t\ntopics.regex: orders.*\n{LETTERS}orders-dlq\n", "topics.regex"),
        (f"connector.class: TopicSource\ntopic: u\nsource.topics: t\n{LETTERS}t\n", "source.topics"),
        (f"connector.class: TopicSource\ntopic: u\nsource.topics.regex: t.\n{LETTERS}tt\n", "source.topics.regex"),
    ],
)
def test_dead_letters_go_to_no_topic_that_the_connector_reads(config: str, key: str) -> None:
    (found,) = declarations(f"name: a\n{config}", "a.yaml")
    (wrong,) = findings(found)
    assert re.search(rf"The DLQ topic '.*' may not be included in the .*\('{key}=", wrong)


@pytest.mark.parametrize(
    "config",
    [
        f"connector.class: DeltaSink\npath: /t\ntopics: a, b\n{LETTERS}c\n",
        f"connector.class: DeltaSink\npath: /t\ntopics.regex: orders\n{LETTERS}orders-dlq\n",
        f"connector.class: TopicSource\ncluster.bootstrap.servers: h:1\nsource.topics: t\ntopic: u\n{LETTERS}t\n",
    ],
)
def test_dead_letters_go_to_any_other_topic(config: str) -> None:
    (found,) = declarations(f"name: a\n{config}", "a.yaml")
    assert findings(found) == []


DEBEZIUM = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db",
    "database.dbname": "shop",
    "database.user": "debezium",
    "database.password": "${file:/etc/shop.properties:password}",
    "topic.prefix": "shop",
    "slot.name": "shop",
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}


@pytest.mark.parametrize("name", [DEBEZIUM["connector.class"], "DebeziumPostgresSource"])
def test_a_configuration_of_debezium_is_taken_as_it_is(name: str) -> None:
    assert errors_of({**DEBEZIUM, "connector.class": name}) == {}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("database.password", "secret"),
        ("database.sslpassword", "secret"),
        ("schema.history.internal.producer.sasl.jaas.config", "secret"),
        ("signal.consumer.ssl.keystore.key", "secret"),
        ("signal.consumer.ssl.keystore.chain", "-----BEGIN PRIVATE KEY-----secret"),
        ("signal.url", "https://h/?sig=secret"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("topic", "orders"),
        ("topic.creation.default.partitions", "1"),
        ("offset.storage.file.filename", "/tmp/offsets"),
        ("config.providers", "file"),
        ("config.providers.file.param.allowed.paths", "/"),
        ("signal.consumer.config.providers", "file"),
    ],
)
def test_what_debezium_cannot_have_here_is_refused_and_no_secret_is_repeated(key: str, text: str) -> None:
    errors = errors_of({**DEBEZIUM, key: text})
    assert list(errors) == [key]
    assert "secret" not in text or text not in errors[key][0].replace("a secret must", "it must")


def test_what_debezium_needs_and_what_it_does_not_know_are_told_apart() -> None:
    without = {name: text for name, text in DEBEZIUM.items() if name != "topic.prefix"}
    assert list(errors_of(without)) == ["topic.prefix"]
    assert errors_of({**DEBEZIUM, "connector.class": "io.debezium.connector.mysql.MySqlConnector"})
