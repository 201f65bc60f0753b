"""Settings of pybroker's own, which Apache Kafka does not have: all that there is to say of each, once.

Owns: their rows.  The tables ``broker_settings`` and ``topic_settings`` take them in; DescribeConfigs and the table of
docs/reference.md show their words.  ``scripts/new-setting`` lays a new row.

Invariants: each name begins with ``pybroker.``; a topic's setting has the name, the bounds and the words of the
broker's, which is its default.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pybroker.config.bounds import NATURAL
from pybroker.config.schema import (
    BOOLEAN,
    CLUSTER,
    FIXED,
    HIGH,
    INT,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    USED,
    Matching,
    Range,
    Setting,
    Validator,
)

# What the names of a cluster link's settings begin with; the link's own name follows (``link_settings``).
LINKS_PREFIX: Final = "pybroker.links."

_METADATA_FORMS: Final = "sqlite:///path or zookeeper://host:port,.../chroot"
METADATA_URL: Final = Matching(r"sqlite:///.+|zookeeper://[^/]+(?:/.*)?", _METADATA_FORMS, f"must be {_METADATA_FORMS}")
CLUSTER_UUID: Final = Matching("[A-Za-z0-9_-]{22}", "a uuid as kafka-storage random-uuid prints it", "must be a uuid")


class OwnSetting(NamedTuple):
    """One row: the fields of ``Setting``, what it is for, and whether each topic may have a value of its own.

    ``words`` are whole sentences without a line break.
    """

    name: str
    type: int
    default: Any
    valid: Validator | None
    importance: str
    mode: str
    flags: int
    words: str
    of_topics: bool = False


# fmt: off
OWN_SETTINGS: Final[tuple[OwnSetting, ...]] = (
    OwnSetting(
        "pybroker.accept.lost.metadata", BOOLEAN, False, None, LOW, FIXED, USED,
        "Whether the broker starts though the metadata's store has lost acknowledged changes.",
    ),
    OwnSetting(
        "pybroker.busy.poll.us", INT, -1, Range(-1), LOW, FIXED, USED,
        "How many microseconds the broker looks for the next small request of a lone client before it sleeps. "
        "0 is never; -1 is 200 where the broker has a process of its own and more than one processor, and else never.",
    ),
    OwnSetting(
        "pybroker.cluster.id", STRING, None, CLUSTER_UUID, LOW, FIXED, USED,
        "The id of a cluster that is new: 22 characters, as kafka-storage random-uuid prints them. With a data "
        "directory or a metadata store of another cluster the start is refused. Unset, the id is a random one.",
    ),
    OwnSetting(
        "pybroker.fsync.before.ack", BOOLEAN, False, None, HIGH, FIXED, USED,
        "Whether a batch is synced to disk before it is acknowledged; batches share syncs.",
    ),
    OwnSetting(
        "pybroker.fsync.enable", BOOLEAN, True, None, MEDIUM, FIXED, USED,
        "Whether anything is ever synced to disk; off means that a power failure may cost data.",
    ),
    OwnSetting(
        "pybroker.liveness.timeout.ms", INT, 500, NATURAL, MEDIUM, FIXED, USED,
        "Silence after which the brokers of one cluster, which send each other datagrams every 100 ms, take one for "
        "dead whose machine does not answer. One whose machine takes connections for it has three times as long, one "
        "that refuses them none. Whether a machine takes connections is asked after 150 ms, whatever is set here. "
        "0 sends no datagrams: sessions alone say who is alive.",
    ),
    OwnSetting(
        "pybroker.metadata", STRING, None, METADATA_URL, HIGH, FIXED, USED,
        "Where the brokers of one cluster share their metadata: sqlite:///PATH for brokers of one machine, or "
        "zookeeper://HOST:PORT,.../CHROOT, which needs the extra zookeeper. Unset, the broker is alone, and its "
        "metadata lie in its data directory.",
    ),
    OwnSetting(
        "pybroker.metadata.session.timeout.ms", INT, 6000, Range(100), MEDIUM, FIXED, USED,
        "Silence after which a broker counts as gone in shared metadata.",
    ),
    OwnSetting(
        "pybroker.metadata.zookeeper.digest", PASSWORD, None, None, MEDIUM, FIXED, USED,
        "user:password of ZooKeeper's digest scheme: what the brokers write there is theirs alone; unset, "
        "everybody's. It is set from a cluster's first start on. Where the znodes are there and open, or another's, a "
        "start is refused. Stop all brokers and set the ACLs of all znodes with ZooKeeper's own tool, or begin a new "
        "cluster below another path.",
    ),
    OwnSetting(
        "pybroker.validate.records", BOOLEAN, False, None, MEDIUM, CLUSTER, USED,
        "Whether all of each record is looked at before its batch is stored, as Apache Kafka does it; that costs "
        "0.5 µs a record. Otherwise header, checksum, and the length and time of each record decide: how many records "
        "there are and which is the latest is always right. A client that builds batches wrongly may then store a "
        "record whose offset, key, value or headers no consumer can read.",
        of_topics=True,
    ),
)
# fmt: on

# Of topics every setting may change at any time.
OWN_BROKER_SETTINGS: Final[dict[str, Setting]] = {row.name: Setting._make(row[:7]) for row in OWN_SETTINGS}
OWN_TOPIC_SETTINGS: Final[dict[str, Setting]] = {
    row.name: OWN_BROKER_SETTINGS[row.name]._replace(mode=CLUSTER) for row in OWN_SETTINGS if row.of_topics
}
