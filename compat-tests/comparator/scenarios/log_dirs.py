"""AlterReplicaLogDirs: replicas that are moved between log dirs, where a broker has one."""

from __future__ import annotations

from typing import Any

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

# Log dirs with the partitions of topics that are to lie there.
Wanted = tuple[str, dict[str, list[int]]]


def own_dir(broker: Broker) -> str:
    path: str = broker.quietly("DescribeLogDirs", 4, topics=None)["results"][0]["log_dir"]
    return path


def move(broker: Broker, version: int, note: str, *wanted: Wanted) -> Any:
    dirs = [
        {"path": path, "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()]}
        for path, topics in wanted
    ]
    return broker.call("AlterReplicaLogDirs", version, note, dirs=dirs)


@scenario
def alter_replica_log_dirs(broker: Broker) -> None:
    broker.prepare_topic("redirected", 2)
    here = own_dir(broker)
    for version in broker.versions("AlterReplicaLogDirs"):
        move(broker, version, "to where they are", (here, {"redirected": [0, 1]}))
        move(broker, version, "an unknown partition", (here, {"redirected": [2]}))
        move(broker, version, "a partition that there cannot be", (here, {"redirected": [-1]}))
        move(broker, version, "an unknown topic", (here, {"redirected-missing": [0]}))
        move(broker, version, "a topic without a name", (here, {"": [0]}))
        move(broker, version, "a name that is too long to be moved", (here, {"n" * 249: [0]}))
        move(broker, version, "a name that just may be moved", (here, {"n" * (255 - 2 - 33 - 7): [0]}))
        move(broker, version, "to an unknown dir", ("/no-such-dir", {"redirected": [0]}))
        move(broker, version, "to a dir inside of it", (f"{here}/redirected-0", {"redirected": [0]}))
        move(broker, version, "by another name of the dir", (f"{here}/", {"redirected": [0]}))
        move(broker, version, "to a relative path", ("data", {"redirected": [0]}))
        move(broker, version, "to no path", ("", {"redirected": [0]}))
        move(broker, version, "an unknown topic to an unknown dir", ("/no-such-dir", {"redirected-missing": [0]}))
        move(broker, version, "a partition twice", (here, {"redirected": [0, 0]}))
        move(
            broker, version, "to two dirs, the last is known", ("/no", {"redirected": [0]}), (here, {"redirected": [0]})
        )
        move(
            broker,
            version,
            "to two dirs, the first is known",
            (here, {"redirected": [0]}),
            ("/no", {"redirected": [0]}),
        )
        move(broker, version, "no partitions", (here, {"redirected": []}))
        move(broker, version, "no topics", (here, {}))
        move(broker, version, "nothing")


@scenario
def ends_of_alter_replica_log_dirs(broker: Broker) -> None:
    broker.prepare_topic("ends-redirected", 1)
    here = own_dir(broker)

    def ordinary(_version: int, _name: str) -> Tree:
        return {"dirs": [{"path": here, "topics": [{"name": "ends-redirected", "partitions": [0]}]}]}

    vary(broker, "AlterReplicaLogDirs", ordinary)
