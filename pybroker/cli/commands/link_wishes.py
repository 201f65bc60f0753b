"""What commands want of a link's topics, as its settings have it: which topics are meant, and how a wish is made.

Owns: the names that go into the settings, and when they are taken out again.  Does not own the commands, nor what they
say (``links``), nor the requests (``link_requests``).

A pattern means the topics that the link mirrors now: a wish that is left as a pattern would have later topics take
writes as they come.  A wish that is fulfilled is taken back, so that the setting keeps room for others.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.requests import link_requests
from pybroker.cli.requests.link_requests import PAUSED, STOPPED, WRITABLE, Link, Mirror
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused

ALL: Final = "*"
WISH_S: Final = 20.0
# Of the 32,767 bytes that a setting may have.
NAMES_BYTES_MAX: Final = 30_000


def wanted_names(topics: Sequence[str] | None, everything: bool) -> list[str]:
    """The names that a command is given, or all; a usage error for both and for none."""
    if bool(topics) == everything:
        raise misused("name topics, or say --all")
    return [ALL] if everything else list(topics or ())


def chosen_topics(client: AdminClient, link: Link, wanted: Sequence[str]) -> list[Mirror]:
    """The topics of the link that are named; CommandFailed for a name of none, but for all of them."""
    found = link_requests.mirrors_of(client, link.name)
    for name in wanted:
        if name != ALL and not any(fnmatchcase(each.source_topic, name) for each in found):
            raise CommandFailed(f"link {link.name} mirrors no topic {name}")
    return [each for each in found if any(fnmatchcase(each.source_topic, name) for name in wanted)]


def fulfil(
    client: AdminClient, name: str, setting: str, chosen: Sequence[Mirror], states: Collection[str], timeout_s: float
) -> list[Mirror]:
    """Want ``setting`` of these topics, and how they stand once each has one of the states, or the time is over.

    As many at once as the setting has room for; CommandFailed where it has none.
    """
    deadline_s = time.monotonic() + timeout_s
    found = [each for each in chosen if each.state in WRITABLE]
    left = [each for each in chosen if each.state not in WRITABLE]
    while left:
        link = link_requests.link_named(client, name)
        some = _portion(left, NAMES_BYTES_MAX - len(",".join(link.listed(setting)).encode()))
        if not some:
            raise CommandFailed(f"{setting} of link {name} has no room for more topics: repeat that once it has")
        left = left[len(some) :]
        # What was adopted would be adopted again, once nothing else is wanted of it.
        no_more = taken_back(link, ("adopt",), [each.source_topic for each in some])
        link_requests.change(client, name, {setting: ("APPEND", _names(some)), **no_more})
        stand = link_requests.await_states(client, some, states, max(deadline_s - time.monotonic(), 0))
        if done := [each for each in stand if each.state in WRITABLE]:
            link_requests.change(client, name, {setting: ("SUBTRACT", _names(done))})
        found += stand
    return sorted(found)


def _names(mirrors: Sequence[Mirror]) -> str:
    return ",".join(each.source_topic for each in mirrors)


def _portion(mirrors: Sequence[Mirror], room: int) -> list[Mirror]:
    """The first of them, as far as there is room for their names."""
    some = []
    for each in mirrors:
        room -= len(each.source_topic.encode()) + 1
        if room < 0:
            break
        some.append(each)
    return some


# --- what is taken back ----------------------------------------------------------------------------------------------


def taken_back(link: Link, settings: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """The changes by which nothing of these settings is wanted of the topics any more.

    CommandFailed where a pattern names one, because others are meant by it, too.
    """
    changes: dict[str, tuple[str, str | None]] = {}
    for setting in settings:
        listed = link.listed(setting)
        for pattern in listed:
            if "*" in pattern and (held := next((name for name in names if fnmatchcase(name, pattern)), None)):
                undo = f"pybroker links alter {link.name} --subtract '{setting}={pattern}'"
                raise CommandFailed(f"{held} is named by {setting}={pattern}, which {undo} takes back")
        if of_these := [name for name in names if name in listed]:
            changes[setting] = ("SUBTRACT", ",".join(of_these))
    return changes


def adoption(link: Link, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Have these mirrored, by their names at the source, and take back what was wanted of them before.

    What was once agreed to be discarded is asked for again.  CommandFailed where a pattern wants it.
    """
    return {"adopt": ("APPEND", ",".join(names)), **taken_back(link, ("discard", "promote", "failover"), names)}


def pause_stopped(client: AdminClient, link: Link, stopped: Sequence[Mirror]) -> None:
    """What has stopped goes on by a pause that ends; a promotion that was asked for is asked for no more."""
    if not stopped:
        return
    names = [each.source_topic for each in stopped]
    changes = {"pause": ("APPEND", ",".join(names)), **taken_back(link, ("promote",), names)}
    link_requests.change(client, link.name, changes)
    for each in link_requests.await_states(client, stopped, (PAUSED,), WISH_S):
        if each.state == STOPPED:
            raise CommandFailed(f"{each.topic} is still stopped: {each.reason}")


def ended_pauses(link: Link, topics: Sequence[str] | None, chosen: Sequence[Mirror]) -> list[str]:
    """What is taken out of ``pause`` to resume these, all of it without ``topics``; CommandFailed where a pattern that
    is left holds one of them."""
    names = [each.source_topic for each in chosen]
    ended = [pause for pause in link.listed("pause") if not topics or pause in topics or pause in names]
    left = [pause for pause in link.listed("pause") if pause not in ended]
    for name in names:
        if held := next((pause for pause in left if fnmatchcase(name, pause)), None):
            raise CommandFailed(f"{name} is paused by {held}: resume that")
    return ended
