"""Eight topologies in Kafka Streams and as jobs on Spark, over the same topics of our broker. Starts two JVMs.

What is compared is what a reader of the output ends with, per key, and what it was told on the way: `changelogs` says
what ours may leave out of it.  Windows that are still open are in Kafka Streams' output alone, and left out.

On the way orders-named is left out, too: orders and customers change at the same time, and which of two topics' changes
comes first is open, on both sides, and values in between with it.  Where else two topics meet, each change comes from
one of them: from views and sales, which the table's changes do not touch, and from cities, which begin when all people
are there.

Needs what `scripts/spark-setup` installs, and Kafka Streams, which is built here.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
from conformance.client_folder import all_applications
from harness.child_process import ChildProcess
from harness.waiting import wait_until

from pybroker.testing import Broker
from tests.pipeline.streams.changelogs import Changelog, differences, told
from tests.source_tree import ROOT

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(400)]

PAGE = ROOT / "docs" / "pipeline" / "streams-operators.md"
# What has operators, by the section of the page where a row names them; of other classes a row says CLASS.OPERATOR.
OPERATORS_OF = {
    "KStream": ("KStream", "BranchedKStream"),
    "KTable and GlobalKTable": ("KTable", "GlobalKTable"),
    "KGroupedTable": ("KGroupedTable",),
    "KGroupedStream and windows": (
        "KGroupedStream",
        "CogroupedKStream",
        "TimeWindowedKStream",
        "SessionWindowedKStream",
        "TimeWindowedCogroupedKStream",
        "SessionWindowedCogroupedKStream",
    ),
    "": ("StreamsBuilder", "Suppressed"),
}
# Of what operators are given: what only makes or carries another class that a row names.
NOT_GIVEN = re.compile(r".*(Supplier|Serializer|Deserializer)|ForeachProcessor|NamedOperation|Windows")

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000
PATIENCE_S = 120
# Far behind all else: it closes every window, and its own stay open.
LAST_MS = START_MS + 1_000 * MINUTE_MS
WINDOWED = ("views", "clicks", "articles", "visits")
# How many records of each topic a micro-batch reads, where jobs tell what changes on the way.
AT_A_TIME = {"word-counts": 12, "people-in-cities": 12}

Sent = tuple[str | None, str | None, int]


def inputs(chance: Random) -> dict[str, list[Sent]]:
    """Records in the order of their offsets: some out of order within the grace, some later than that."""
    words = ["kafka", "Spark", "stream", "table,", "window"]
    users = [f"u{number}" for number in range(6)]

    def spread(*keys: str, values: list[str], back_ms: tuple[int, ...] = (0, 0, 5_000, 20_000)) -> list[Sent]:
        # 2 s apart, some up to 20 s before their place: within the grace of 30 s.
        return [
            (chance.choice(keys), chance.choice(values), START_MS + 2_000 * number - chance.choice(back_ms))
            for number in range(10, 130)
        ]

    late: Sent = ("u0", "late", START_MS)
    regions: list[Sent] = [(user, "north", START_MS - 1) for user in users[:4]]
    moves: list[Sent] = [("u0", "south", START_MS + 90_000), ("u1", None, START_MS + 90_001)]
    seen_ms = (("u0", 0), ("u0", 300_000), ("u1", 10_000), ("u1", 310_001), ("u2", 290_000))
    visits: list[Sent] = [(user, "", START_MS + at) for user, at in seen_ms]
    # Orders change hands, customers come and go; a name that is nobody's stays open.
    customers = ["ann", "bob", "cyd"]
    owned = [(chance.choice(["o1", "o2", "o3", "o4"]), f"{chance.choice([*customers, 'nil'])}/tea") for _ in range(30)]
    orders: list[Sent] = [(order, value, START_MS + 2_000 * at) for at, (order, value) in enumerate(owned)]
    named = [(chance.choice(customers), chance.choice(["A", "B", None])) for _ in range(20)]
    # Prices come in order, sales do not: each meets the price of its time.
    prices: list[Sent] = [
        (chance.choice(["tea", "rum"]), str(number), START_MS + 5_000 * number + 1) for number in range(40)
    ]
    found: dict[str, list[Sent]] = {
        "lines": [(None, " ".join(chance.choices(words, k=5)), START_MS + number) for number in range(50)],
        "users": regions + moves,
        # In order: which of a table's change and an older view comes first, other users' views decide in Kafka Streams.
        "views": spread(*users, values=["page"], back_ms=(0,)),
        "clicks": [*spread(*users, values=["x"]), late],
        "articles": [*spread("a1", "a2", "a3", "a4", values=["it", "law"]), ("a1", "late", START_MS)],
        "visits": visits,
        "orders": [*orders, ("o1", None, START_MS + 61_000)],
        "customers": [(who, name, START_MS + 3_000 * at) for at, (who, name) in enumerate(named)],
        "prices": [*prices, ("rum", None, START_MS + 200_001)],
        "sales": [
            (article, f"s{number}", at)
            for number, (article, _, at) in enumerate(spread("tea", "rum", "gin", values=[""], back_ms=(0, 0, 15_000)))
        ],
        "people": [(user, user.upper(), START_MS - 1) for user in users[:3]],
        "cities": [],
    }
    # Everybody moves each time: what is told twice in a row was told without a change.
    lives: dict[str, str | None] = {}
    for at in range(60):
        user = chance.choice(users[:4])
        lives[user] = chance.choice([city for city in ("Oslo", "Rome", None) if city != lives.get(user)])
        found["cities"].append((user, lives[user], START_MS + 2_000 * at))
    for topic in WINDOWED:
        found[topic].append(("u3", "last", LAST_MS))
    return found


def send(bootstrap: str, prefix: str, some: Mapping[str, list[Sent]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, records in some.items():
        for key, value, at in records:
            producer.produce(f"{prefix}{topic}", value, key=key, timestamp=at)
    assert producer.flush(30) == 0


def make_topics(bootstrap: str, names: list[str]) -> None:
    """Of one partition: which records are late depends on how far others of the partition are."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(30)


def closed(changelog: Changelog) -> Changelog:
    """The changelog without windows that were open at the end."""
    return {key: values for key, values in changelog.items() if f"@{LAST_MS // MINUTE_MS}" not in _minute(key)}


def table(changelog: Changelog) -> dict[str, str]:
    """What a reader of a changelog ends with."""
    return {key: values[-1] for key, values in changelog.items() if values[-1]}


def _minute(key: str) -> str:
    name, at, start = key.partition("@")
    return f"{name}{at}{int(start.partition('-')[0]) // MINUTE_MS}" if at else name


@pytest.fixture(scope="module")
def kafka_streams() -> list[str]:
    (folder,) = [folder for folder in all_applications() if folder.name == "kafka-streams"]
    folder.build()
    return folder.command()


@pytest.fixture
def application(kafka_streams: list[str], pybroker: Broker, tmp_path: Path) -> Iterator[Any]:
    processes: list[ChildProcess] = []

    def start(prefix: str) -> ChildProcess:
        settings = {
            "application.id": prefix,
            "bootstrap.servers": pybroker.bootstrap,
            "state.dir": str(tmp_path / "state"),
            "commit.interval.ms": "100",
            # Each change leaves.  With caches a join by a foreign key may end with the name of a customer who is gone:
            # it saw the name, which came and went between two commits, and of such a key the cache tells no change.
            "statestore.cache.max.bytes": "0",
            "max.task.idle.ms": "500",
            "auto.offset.reset": "earliest",
        }
        arguments = [f"{name}={value}" for name, value in settings.items()]
        processes.append(ChildProcess([*kafka_streams, "Topologies", prefix, *arguments], tmp_path / "log"))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.mark.slow
def test_the_same_topologies_tell_the_same_changes_and_end_with_the_same_tables(
    spark: Any, pybroker: Broker, application: Any, tmp_path: Path
) -> None:
    from pybroker.pipeline import BrokerTopics, start
    from tests.pipeline.streams.topologies import one_topology

    bootstrap = pybroker.bootstrap
    ours, theirs = f"ours-{uuid4()}-", f"theirs-{uuid4()}-"
    sent = inputs(Random(17))

    class ConnectorTopics(BrokerTopics):
        """Read by Spark's own connector, which starts quicker than Python does; `test_jobs` reads by ours."""

        def stream(self, topic: str) -> Any:
            reader = self.spark.readStream.format("kafka").option("startingOffsets", "earliest")
            return reader.options(**self._options(topic)).load()

    windowed = ("views-by-region", "anomalies", "top-articles", "sessions")
    outputs = ("word-counts", "orders-named", "sales-priced", "people-in-cities", *windowed)
    for prefix in (ours, theirs):
        make_topics(bootstrap, [f"{prefix}{name}" for name in (*sent, *outputs)])
    send(bootstrap, theirs, sent)
    process = application(theirs)

    # Spark's watermark moves between micro-batches, Kafka Streams' with each record: what is late has one of its own.
    events = {topic: sent[topic] for topic in WINDOWED}
    first = sent | {topic: records[:-2] for topic, records in events.items()}
    for part, asked in ((first, outputs), ({topic: records[-2:] for topic, records in events.items()}, windowed)):
        send(bootstrap, ours, part)
        # One by one: each query has processes of Python, which two processors start slowly all at once.
        for name in asked:
            job = partial(one_topology, ours, name)
            options = {"maxOffsetsPerTrigger": str(AT_A_TIME[name])} if name in AT_A_TIME else {}
            topics = ConnectorTopics(spark, bootstrap, options)
            (query,) = start(job, topics, tmp_path / "checkpoints", until_done=True)
            assert query.awaitTermination(PATIENCE_S)

    def changelogs(prefix: str) -> dict[str, Changelog]:
        return {name: closed(told(bootstrap, f"{prefix}{name}")) for name in outputs}

    our_changes = changelogs(ours)
    expected = {name: table(changelog) for name, changelog in our_changes.items()}
    assert all(expected.values()), expected
    assert expected["sessions"] == {
        f"u0@{START_MS}-{START_MS + 300_000}": "2",
        f"u1@{START_MS + 10_000}-{START_MS + 10_000}": "1",
        f"u1@{START_MS + 310_001}-{START_MS + 310_001}": "1",
        f"u2@{START_MS + 290_000}-{START_MS + 290_000}": "1",
    }

    def found() -> dict[str, dict[str, str]]:
        assert process.exit_code is None, process.log_tail()
        return {name: table(changelog) for name, changelog in changelogs(theirs).items()}

    with suppress(TimeoutError):
        wait_until(lambda: found() == expected, "equal tables", PATIENCE_S)
    assert found() == expected, process.log_tail()

    their_changes = changelogs(theirs)
    for name in outputs:
        if name != "orders-named":
            assert differences(our_changes[name], their_changes[name]) == [], name
    # There was something to compare: all changes there, several of a key and tombstones here, and windows when closed.
    for word, last in expected["word-counts"].items():
        assert their_changes["word-counts"][word] == [str(count) for count in range(1, int(last) + 1)]
    assert all(len(values) > 3 for values in our_changes["word-counts"].values())
    assert any(None in values[:-1] for values in our_changes["people-in-cities"].values())
    for name in windowed:
        assert all(len(values) == 1 for values in our_changes[name].values())


def named_in(section: str) -> set[str]:
    """What the rows of a section of the page are about, as they name it: ``mapValues``, ``Suppressed.withName``."""
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return set(re.findall(r"`([\w.]+)`", " ".join(rows)))


@pytest.fixture(scope="module")
def page_sections() -> dict[str, set[str]]:
    """What rows name, by the headings of the page's sections."""
    _, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {section.partition("\n")[0]: named_in(section) for section in sections}


def test_the_page_of_operators_names_each_that_kafka_streams_has_where_its_class_is(
    kafka_streams: list[str], page_sections: dict[str, set[str]]
) -> None:
    """The methods that an application finds by hand in its editor, read from the jar of Kafka Streams."""
    classpath = kafka_streams[kafka_streams.index("-cp") + 1]
    everywhere = set().union(*page_sections.values())
    names = [name for classes in OPERATORS_OF.values() for name in classes]
    packages = ["org.apache.kafka.streams" + (".kstream" if name != "StreamsBuilder" else "") for name in names]
    command = ["javap", "-public", "-cp", classpath, *map(".".join, zip(packages, names, strict=True))]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    _, *each_shown = re.split(r"^Compiled from ", shown, flags=re.MULTILINE)
    shown_of = dict(zip(names, each_shown, strict=True))
    missing: list[str] = []
    for section, classes in OPERATORS_OF.items():
        for name in classes:
            methods = set(re.findall(r" (\w+)\(", shown_of[name]))
            assert methods
            bare = page_sections.get(section, set())
            missing += [f"{name}.{one}" for one in methods if one not in bare and f"{name}.{one}" not in everywhere]
    assert not missing


def test_the_page_of_operators_names_each_class_that_they_are_given(
    kafka_streams: list[str], page_sections: dict[str, set[str]]
) -> None:
    classpath = kafka_streams[kafka_streams.index("-cp") + 1]
    (jar,) = [jar for entry in classpath.split(":") for jar in Path(entry).parent.glob("kafka-streams-*.jar")]
    names = [re.fullmatch(r"org/apache/kafka/streams/kstream/(\w+)\.class", name) for name in ZipFile(jar).namelist()]
    classes = {name[1] for name in names if name and not NOT_GIVEN.fullmatch(name[1])}
    assert {"Grouped", "Joined", "Repartitioned", "SlidingWindows"} <= classes
    named = {part for names in page_sections.values() for name in names for part in name.split(".")}
    missing = classes - named - {name for having in OPERATORS_OF.values() for name in having}
    assert not missing
