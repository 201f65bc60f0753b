"""Cluster links as commands ask for them: what they are set to, how their topics stand, and how far partitions are.

Owns: which settings and entries of DescribeConfigs say so, and the wait for a state.  A link is settings of all brokers
together, and no request is a link's alone.  Owns no wish (``commands/links``).  Counterpart: none in Kafka yet.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import RETRY_BACKOFF_S, is_passing_with_brokers, retried
from pybroker.cli.requests import config_requests
from pybroker.cli.requests.config_requests import Changes, Resource
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.config.link_settings import OF_LINKS
from pybroker.config.own_settings import LINKS_PREFIX

MIRRORING, PROMOTING, PAUSED, STOPPED = "mirroring", "promoting", "paused", "stopped"
PROMOTED, FAILED_OVER, ADOPTED = "promoted", "failed-over", "adopted"
# How the reason of an adopted topic begins once it is known of each partition what its source lacks.
LACKS: Final = "the source lacks "
# In these records come, or do where the source has any.
FETCHED: Final = frozenset({MIRRORING, PROMOTING})
# In these a topic takes writes, and no link changes it any more.
WRITABLE: Final = frozenset({PROMOTED, FAILED_OVER})

# What brokers tell beside a link's settings, and of a mirrored topic.
_CLUSTER, _PROBLEM, _REFUSED, _NOT_CARRIED = "source.cluster.id", "problem", "refused", "not.carried"
_OF_MIRRORS: Final = tuple(f"pybroker.mirror.{name}" for name in ("link", "topic", "state", "reason"))
_TOPICS_AT_ONCE: Final = 500
_OWN: Final = "pybroker."
_NEXT_REFUSED: Final = re.compile(r"; (?=[\w.-]+: )")
_MORE: Final = re.compile(r"; and (\d+) more$")


class Link(NamedTuple):
    """A link by its settings, without the link's name before theirs: a secret is None.

    ``removable`` are those that commands have set; the others stand in the files of brokers.  ``refused_more`` topics
    are refused, too, whose names the brokers leave out, because a value has 32 KiB at most.
    """

    name: str
    settings: Mapping[str, str | None]
    removable: frozenset[str]
    source_cluster: str | None = None
    problem: str | None = None
    refused: Mapping[str, str] = {}
    not_carried: tuple[str, ...] = ()
    refused_more: int = 0

    def listed(self, setting: str) -> list[str]:
        """The names in a setting that is a list."""
        return [name for name in (self.settings.get(setting) or "").split(",") if name]


class Mirror(NamedTuple):
    """A mirrored topic by its name here, and how it stands; why, where there is a reason."""

    topic: str
    link: str
    source_topic: str
    state: str
    reason: str | None = None

    @property
    def awaits_last_look(self) -> bool:
        """Whether groups' offsets at the source are to be looked at once more: nothing else is left of a promotion."""
        return self.state == PROMOTED and self.reason is not None


class Progress(NamedTuple):
    """How far a mirrored partition is: offsets, records behind, bytes per second; None for what is not known.

    ``problem`` is what keeps its broker from going on for now.
    """

    topic: str
    partition: int
    end: int | None
    source_end: int | None
    lag: int | None
    rate: int | None
    problem: str | None = None


def links(client: AdminClient) -> dict[str, Link]:
    """All links, in the order of their names; CommandFailed."""
    return {name: link for name, link in _named(client).items() if link.settings.get("bootstrap.servers")}


def left_of(client: AdminClient, name: str) -> list[str]:
    """Settings of a link that is none: without a source."""
    found = _named(client).get(name)
    return [] if found is None else sorted(found.removable)


def _named(client: AdminClient) -> dict[str, Link]:
    """What has settings of a link, by its name."""
    of_all = config_requests.described(client, "broker", "")
    of_one = _of_any_broker(client)
    settings: dict[str, dict[str, str | None]] = {}
    removable: dict[str, set[str]] = {}
    told: dict[str, dict[str, str]] = {}
    for entry in [*of_one, *of_all]:
        match = OF_LINKS.fullmatch(entry["name"])
        if match is None:
            continue
        link, setting = match.groups()
        if entry["read_only"] and entry["source"] != "STATIC_BROKER_CONFIG":
            told.setdefault(link, {})[setting] = entry["value"]
            continue
        settings.setdefault(link, {})[setting] = entry["value"]
        if entry["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG":
            removable.setdefault(link, set()).add(setting)
    return {
        name: _link(name, settings[name], removable.get(name, set()), told.get(name, {})) for name in sorted(settings)
    }


def _link(name: str, settings: dict[str, str | None], removable: set[str], told: Mapping[str, str]) -> Link:
    told_refused = told.get(_REFUSED, "")
    more = _MORE.search(told_refused)
    refused = (part.partition(": ") for part in _NEXT_REFUSED.split(_MORE.sub("", told_refused)) if part)
    return Link(
        name,
        dict(sorted(settings.items())),
        frozenset(removable),
        told.get(_CLUSTER) or None,
        told.get(_PROBLEM) or None,
        {topic: reason for topic, _, reason in refused},
        tuple(note for note in told.get(_NOT_CARRIED, "").split("; ") if note),
        0 if more is None else int(more[1]),
    )


def link_named(client: AdminClient, name: str) -> Link:
    """CommandFailed where there is none."""
    found = links(client)
    if name not in found:
        raise CommandFailed(f"there is no link {name}")
    return found[name]


def await_link(client: AdminClient, name: str, is_so: Callable[[Link], bool], timeout_s: float) -> Link:
    """A link once it is so, or when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        link = links(client).get(name)
        if link is not None and (is_so(link) or time.monotonic() >= deadline_s):
            return link
        if time.monotonic() >= deadline_s:
            raise CommandFailed(f"the brokers do not know the link {name} yet")
        time.sleep(RETRY_BACKOFF_S)


def await_deletion(client: AdminClient, name: str, timeout_s: float) -> bool:
    """Whether the link is there still, by the files of brokers, once none of its settings can be removed."""
    deadline_s = time.monotonic() + timeout_s
    while (link := links(client).get(name)) is not None and link.removable and time.monotonic() < deadline_s:
        time.sleep(RETRY_BACKOFF_S)
    return link is not None


def knows_links(client: AdminClient) -> bool:
    """Whether these brokers are pybroker's: others take any setting, and do nothing by it."""
    return any(entry["name"].startswith(_OWN) for entry in _of_any_broker(client))


def _of_any_broker(client: AdminClient) -> list[dict[str, Any]]:
    """What a broker is set to, its file included."""

    def asked() -> list[dict[str, Any]]:
        found = client.metadata().brokers
        return config_requests.described(client, "broker", str(found[0].node_id)) if found else []

    return retried(asked, passes=is_passing_with_brokers)


def change(client: AdminClient, link: str, changes: Changes, *, dry_run: bool = False) -> None:
    """Change settings of a link, all of them or none; CommandFailed in the broker's words.

    What is added to a list, or taken from one, that stands in the files of brokers, leaves its other names in force.
    """
    named = {f"{LINKS_PREFIX}{link}.{setting}": what for setting, what in changes.items()}
    config_requests.alter(client, "broker", "", named, dry_run=dry_run, what=f"link {link}")


# --- topics ----------------------------------------------------------------------------------------------------------


def mirrors(client: AdminClient, topics: Iterable[str] | None = None) -> list[Mirror]:
    """The mirrored topics among these, or among all, in the order of their names."""
    if topics is None:
        topics = [each.name for each in retried(lambda: client.metadata(None)).topics if each.name]
    names = sorted(topics)
    found: list[Mirror] = []
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        asked = [Resource("topic", name, _OF_MIRRORS) for name in names[start : start + _TOPICS_AT_ONCE]]
        for resource, entries in config_requests.described_all(client, asked):
            told = {entry["name"].removeprefix("pybroker.mirror."): entry["value"] for entry in entries}
            if "link" in told and "state" in told:
                source_topic = told.get("topic") or resource
                found.append(Mirror(resource, told["link"], source_topic, told["state"], told.get("reason")))
    return found


def mirrors_of(client: AdminClient, link: str) -> list[Mirror]:
    """The topics that a link mirrors, or has mirrored."""
    return [each for each in mirrors(client) if each.link == link]


def await_states(
    client: AdminClient, chosen: Sequence[Mirror], states: Collection[str], timeout_s: float
) -> list[Mirror]:
    """How these stand once each has one of the states, takes writes, or is gone; or when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    names = [each.topic for each in chosen]
    while True:
        found = mirrors(client, names)
        if all(each.state in states or each.state in WRITABLE for each in found) or time.monotonic() >= deadline_s:
            return found
        time.sleep(RETRY_BACKOFF_S)


def await_last_looks(client: AdminClient, chosen: Sequence[Mirror], timeout_s: float) -> list[Mirror]:
    """How these stand once groups' offsets at the source were looked at for the last time, or the time is over."""
    deadline_s = time.monotonic() + timeout_s
    found, names = list(chosen), [each.topic for each in chosen]
    while any(each.awaits_last_look for each in found) and time.monotonic() < deadline_s:
        time.sleep(RETRY_BACKOFF_S)
        found = mirrors(client, names)
    return found


def topics_here(client: AdminClient, link: Link, wanted: Sequence[str]) -> dict[str, str]:
    """The topics of this cluster that are meant, with their names at the source; CommandFailed for a name of none."""
    prefix = link.settings.get("prefix") or ""
    found = retried(lambda: client.metadata(None)).topics
    names = {each.name.removeprefix(prefix): each.name for each in found if each.name and each.name.startswith(prefix)}
    for name in wanted:
        if "*" not in name and name not in names:
            raise CommandFailed(f"there is no topic {prefix}{name} here: what is not here is mirrored without adoption")
    linked = [name for name in names if any(fnmatchcase(name, each) for each in link.listed("topics"))]
    found_here = {names[name]: name for name in sorted(linked) if any(fnmatchcase(name, each) for each in wanted)}
    if not found_here:
        raise CommandFailed(f"no topic that link {link.name} names is here: what is not here is mirrored at once")
    return found_here


def await_adoption(client: AdminClient, link: str, topics: Sequence[str], timeout_s: float) -> list[Mirror]:
    """How these stand once the link mirrors each, and it is known what the source lacks; or when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = [each for each in mirrors(client, topics) if each.link == link]
        is_known = all(
            each.state not in WRITABLE and (each.state != ADOPTED or (each.reason or "").startswith(LACKS))
            for each in found
        )
        if (is_known and len(found) == len(topics)) or time.monotonic() >= deadline_s:
            return found
        time.sleep(RETRY_BACKOFF_S)


# --- partitions ------------------------------------------------------------------------------------------------------


def progress(client: AdminClient, link: str) -> list[Progress]:
    """How far the partitions are that are fetched now, each by the word of the broker that leads it here."""
    name = f"{LINKS_PREFIX}{link}.partitions"

    def told() -> list[Any]:
        """By all brokers that run: one that has just gone is asked no more in the next attempt."""
        found: list[Any] = []
        for broker in client.metadata().brokers:
            asked = [Resource("broker", str(broker.node_id), (name,))]
            for _, entries in config_requests.described_all(client, asked, broker.node_id):
                for entry in entries:
                    found += json.loads(entry["value"]) if entry["name"].startswith(f"{name}.") else ()
        return found

    found = [
        Progress(
            each["topic"],
            each["partition"],
            _known(each.get("end")),
            _known(each.get("sourceEnd")),
            _known(each.get("lag")),
            _known(each.get("rate")),
            each.get("problem"),
        )
        for each in retried(told, passes=is_passing_with_brokers)
    ]
    return sorted(found, key=lambda each: each[:2])


def _known(number: int | None) -> int | None:
    return None if number is None or number < 0 else round(number)
