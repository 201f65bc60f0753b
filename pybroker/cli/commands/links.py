"""``pybroker links``: mirrors of another cluster's topics, at its offsets: made, looked at, promoted and deleted.

Owns: how a link and its topics are named on the command line, what each command waits for, and what it says then.
What a link may be set to the broker says.  Secrets come out of a file (``link_options``), and are never shown.

Topics are named as at the source, ``*`` for any characters.  A name of none of the link's topics is refused, because
brokers would wait for one.  ``link_wishes`` has what becomes of the names.

Counterpart: none in Kafka yet; KIP-1279 proposes ``kafka-cluster-mirrors.sh``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import typer

from pybroker.cli.commands.link_options import (
    Append,
    Exclude,
    Groups,
    Prefix,
    ReplicationFactor,
    Set,
    Source,
    SourceConfig,
    Subtract,
    Topics,
    Unset,
    check_name,
    given_settings,
    kept_login,
)
from pybroker.cli.commands.link_tables import LinkView, counted_topics, show_link, show_partitions, show_settings
from pybroker.cli.commands.link_wishes import (
    ALL,
    WISH_S,
    adoption,
    chosen_topics,
    ended_pauses,
    fulfil,
    pause_stopped,
    wanted_names,
)
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.requests import link_requests
from pybroker.cli.requests.config_requests import Changes, changes_of
from pybroker.cli.requests.link_requests import (
    ADOPTED,
    FAILED_OVER,
    LACKS,
    PAUSED,
    PROMOTED,
    STOPPED,
    WRITABLE,
    Link,
    Mirror,
)
from pybroker.cli.terminal.error_names import show
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused
from pybroker.cli.terminal.output import counted, remark

app = typer.Typer(
    help="Links that mirror topics of another cluster at its offsets: create, watch, promote and delete them.",
    no_args_is_help=True,
)

# After 10 s the controller reports a source that does not answer.
_FIRST_LOOK_S: Final = 15.0
_PROMOTION_S: Final = 60.0

Name = Annotated[str, typer.Argument(metavar="LINK", help="The link's name: letters, digits, - and _.")]
SomeTopics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Topics by their names at the source; all without.")
]
NamedTopics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Topics by their names at the source.")
]
AllTopics = Annotated[bool, typer.Option("--all", help="All topics that the link mirrors now.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker check the settings, and change nothing.")]


@admin_command(app, "create")
def create_link(
    session: Session,
    *,
    name: Name,
    source: Source = None,
    topics: Topics,
    exclude: Exclude,
    prefix: Prefix = None,
    groups: Groups,
    replication_factor: ReplicationFactor = None,
    source_config: SourceConfig = None,
    settings: Set,
    dry_run: DryRun = False,
) -> None:
    """Create a link: topics of the source are mirrored here from now on, read-only, at the source's own offsets.

    It ends when the source has answered. Files that --source-config names, as of certificates, are read by the brokers.
    """
    check_name(name)
    given = given_settings(source, topics, exclude, prefix, groups, replication_factor, source_config, settings)
    for needed, option in (("bootstrap.servers", "--source"), ("topics", "--topic")):
        if not given.get(needed):
            raise misused(f"a link needs {option}")
    with session.client() as client:
        if name in link_requests.links(client):
            raise CommandFailed(f"there is a link {name} already: alter or delete it")
        if not link_requests.knows_links(client):
            raise CommandFailed("these brokers have no links: they are not pybroker's")
        # What a former link of the name has left is no wish of this one: it would promote topics as they come.
        left = link_requests.left_of(client, name)
        kept = kept_login(left, given)
        changes: Changes = {key: ("DELETE", None) for key in left if key not in kept}
        changes = {**changes, **{key: ("SET", text) for key, text in given.items()}}
        link_requests.change(client, name, changes, dry_run=dry_run)
        link = Link(name, given, frozenset(given)) if dry_run else _first_look(client, name)
    document = {
        "link": name,
        "source": given["bootstrap.servers"],
        "source_cluster": link.source_cluster,
        "status": "valid" if dry_run else "created",
        "problem": link.problem,
        "refused": dict(link.refused),
    }
    failures = []
    if link.problem is not None:
        failures = [CommandFailed(f"link {name} is there, and mirrors nothing: {link.problem}")]
    columns = ("LINK", "SOURCE", "SOURCE-CLUSTER", "STATUS")
    show(session.output, document, columns, [tuple(document.values())[: len(columns)]], failures)
    for topic, reason in link.refused.items():
        remark(f"pybroker: {topic} is not mirrored: {reason}")
    if kept:
        remark(f"pybroker: the login that stands under the name {name} is the link's: {', '.join(kept)}")
    if not dry_run and link.source_cluster is None and link.problem is None:
        remark(f"pybroker: its source has said nothing yet: see pybroker links describe {name}")


def _first_look(client: AdminClient, name: str) -> Link:
    """The link once the source has answered, or something is the matter; or when the time is over."""
    return link_requests.await_link(
        client, name, lambda link: link.source_cluster is not None or link.problem is not None, _FIRST_LOOK_S
    )


@admin_command(app, "list")
def list_links(session: Session) -> None:
    """Show all links: their sources, how their topics stand, and what is the matter."""
    with session.client() as client:
        found = link_requests.links(client)
        mirrors = link_requests.mirrors(client) if found else []
    shown: list[dict[str, Any]] = [
        {
            "link": link.name,
            "source": link.settings["bootstrap.servers"],
            "source_cluster": link.source_cluster,
            "states": dict(sorted(Counter(each.state for each in mirrors if each.link == link.name).items())),
            "problem": link.problem,
            "refused": dict(link.refused),
            "refused_more": link.refused_more,
        }
        for link in found.values()
    ]
    rows = [
        (
            each["link"],
            each["source"],
            counted_topics(each["states"], len(each["refused"]) + each["refused_more"]),
            each["problem"],
        )
        for each in shown
    ]
    session.output.result(shown, ("LINK", "SOURCE", "TOPICS", "PROBLEM"), rows)


@admin_command(app, "describe")
def describe_link(
    session: Session,
    *,
    name: Name,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Show each partition: both ends, the lag and the rate.")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show what it is set to; (secret) is a value that brokers do not show.")
    ] = False,
) -> None:
    """Show a link: its source, and of each topic the state, the lag in records and the bytes that come per second.

    A topic that is stopped, or is not mirrored though the link is set to, has its reason beside it.
    """
    if partitions and settings:
        raise misused("--partitions and --settings exclude each other")
    with session.client() as client:
        link = link_requests.link_named(client, name)
        mirrors = link_requests.mirrors_of(client, name)
        view = LinkView.of(link, mirrors, link_requests.progress(client, name))
    if session.output.as_json:
        session.output.json(view.document())
    elif settings:
        show_settings(session.output, link)
    elif partitions:
        show_partitions(session.output, view)
    else:
        show_link(session.output, view)


@admin_command(app, "alter")
def alter_link(
    session: Session,
    *,
    name: Name,
    source: Source = None,
    topics: Topics,
    exclude: Exclude,
    prefix: Prefix = None,
    groups: Groups,
    replication_factor: ReplicationFactor = None,
    source_config: SourceConfig = None,
    settings: Set,
    unset: Unset,
    append: Append,
    subtract: Subtract,
    dry_run: DryRun = False,
) -> None:
    """Change what a link is set to, all of it or nothing; a list that is given takes the former one's place.

    Topics that it mirrors no more stop, and stay read-only.
    """
    given = given_settings(source, topics, exclude, prefix, groups, replication_factor, source_config, settings)
    changes = changes_of((), unset, append, subtract, given)
    if not changes:
        raise misused("nothing to change: give an option of what the link is set to")
    if "bootstrap.servers" in unset:
        raise misused(f"without a source a link is none: pybroker links delete {name}")
    with session.client() as client:
        link_requests.link_named(client, name)
        link_requests.change(client, name, changes, dry_run=dry_run)
    document = {"link": name, "settings": sorted(changes), "status": "valid" if dry_run else "altered"}
    session.output.result(document, ("LINK", "SETTINGS", "STATUS"), [tuple(document.values())])


@admin_command(app, "pause")
def pause_topics(session: Session, *, name: Name, topics: SomeTopics = None) -> None:
    """Mirror topics no more for the time being; they stay read-only. * and all mean those that come later, too."""
    wanted = topics or [ALL]
    with session.client() as client:
        chosen = chosen_topics(client, link_requests.link_named(client, name), wanted)
        link_requests.change(client, name, {"pause": ("APPEND", ",".join(wanted))})
        found = link_requests.await_states(client, chosen, (PAUSED, ADOPTED), WISH_S)
    _report(session, found, (PAUSED,))


@admin_command(app, "resume")
def resume_topics(session: Session, *, name: Name, topics: SomeTopics = None) -> None:
    """Mirror topics again that are paused, or have stopped by what is mended now."""
    with session.client() as client:
        link = link_requests.link_named(client, name)
        chosen = chosen_topics(client, link, topics or [ALL])
        pause_stopped(client, link, [each for each in chosen if each.state == STOPPED])
        link = link_requests.link_named(client, name)
        ended = ended_pauses(link, topics, chosen)
        if ended:
            link_requests.change(client, name, {"pause": ("SUBTRACT", ",".join(ended))})
        states = link_requests.FETCHED
        found = link_requests.await_states(client, chosen, {*states, ADOPTED}, WISH_S)
    _report(session, found, states)


@admin_command(app, "promote")
def promote_topics(
    session: Session,
    *,
    name: Name,
    topics: NamedTopics = None,
    everything: AllTopics = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="How long to wait until all is here.")
    ] = _PROMOTION_S,
) -> None:
    """Have topics take writes here, once all is here that the source has; stop its producers first.

    A promotion that takes longer than --timeout goes on.
    """
    wanted = wanted_names(topics, everything)
    with session.client() as client:
        chosen = chosen_topics(client, link_requests.link_named(client, name), wanted)
        if stopped := next((each for each in chosen if each.state == STOPPED), None):
            raise CommandFailed(
                f"{stopped.topic} is stopped: {stopped.reason}; resume it first, or fail over to what is here"
            )
        if adopted := next((each for each in chosen if each.state == ADOPTED), None):
            raise _not_yet(adopted, None)
        deadline_s = time.monotonic() + timeout
        found = fulfil(client, name, "promote", chosen, (PROMOTED, STOPPED), timeout)
        found = link_requests.await_last_looks(client, found, deadline_s - time.monotonic())
        behind = {}
        if any(each.state not in WRITABLE for each in found):
            behind = LinkView.of(Link(name, {}, frozenset()), found, link_requests.progress(client, name)).lags()
    _report(session, found, (PROMOTED,), behind)
    if unsettled := [each for each in found if each.awaits_last_look]:
        remark(f"pybroker: of {counted(len(unsettled), 'topic')} {unsettled[0].reason}: see links describe {name}")


@admin_command(app, "failover")
def fail_over_topics(
    session: Session, *, name: Name, topics: NamedTopics = None, everything: AllTopics = False
) -> None:
    """Have topics take writes here at once, with what is here; the source is not asked, and may be gone.

    What it has acknowledged and was not mirrored yet is not here.
    """
    wanted = wanted_names(topics, everything)
    with session.client() as client:
        chosen = chosen_topics(client, link_requests.link_named(client, name), wanted)
        found = fulfil(client, name, "failover", chosen, (FAILED_OVER,), WISH_S)
    _report(session, found, (FAILED_OVER,))


@admin_command(app, "adopt")
def adopt_topics(
    session: Session,
    *,
    name: Name,
    topics: NamedTopics = None,
    everything: AllTopics = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="How long to wait until it is known.")
    ] = WISH_S,
) -> None:
    """Mirror topics that are here already, as on the way back to a former source: they take no more writes here.

    Nothing of them is cut. Where the source has all that is here, records come at once; else it is said what it lacks,
    and links discard or links failover goes on.
    """
    wanted = wanted_names(topics, everything)
    with session.client() as client:
        link = link_requests.link_named(client, name)
        here = link_requests.topics_here(client, link, wanted)
        link_requests.change(client, name, adoption(link, list(here.values())))
        found = link_requests.await_adoption(client, name, list(here), timeout)
        link = link_requests.link_named(client, name)
    known = {each.topic for each in found}
    failures = [_not_adopted(link, topic) for topic in here if topic not in known]
    failures += [CommandFailed(f"{each.topic} takes writes still") for each in found if each.state in WRITABLE]
    document = [_stands(each) for each in found]
    rows = [(each["topic"], each["state"], each["reason"]) for each in document]
    show(session.output, document, ("TOPIC", "STATE", "REASON"), rows, failures)
    if any(each.state == ADOPTED for each in found):
        remark(
            f"To delete what the source lacks: pybroker links discard {name} TOPIC\n"
            f"To keep a topic as it is, and write to it here: pybroker links failover {name} TOPIC"
        )


def _not_adopted(link: Link, topic: str) -> CommandFailed:
    at_source = topic.removeprefix(link.settings.get("prefix") or "")
    why = link.refused.get(at_source) or link.problem or "the source has said nothing of it yet"
    if any(fnmatchcase(at_source, each) for each in link.listed("topics.exclude")):
        why = "the link excludes it, see --exclude"
    return CommandFailed(f"{topic} is not mirrored: {why}")


@admin_command(app, "discard")
def discard_records(
    session: Session,
    *,
    name: Name,
    topics: NamedTopics = None,
    everything: AllTopics = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the records; without this it is only shown which these are.")
    ] = False,
) -> None:
    """Delete the records of adopted topics that the source lacks, for good; then the topics are mirrored.

    Groups that have read such records go on behind the last one that both clusters have.
    """
    wanted = wanted_names(topics, everything)
    with session.client() as client:
        chosen = chosen_topics(client, link_requests.link_named(client, name), wanted)
        adopted = [each for each in chosen if each.state == ADOPTED]
        if not everything and (other := next((each for each in chosen if each.state != ADOPTED), None)):
            raise CommandFailed(f"{other.topic} is {other.state}: only what is adopted has records to discard")
        if unknown := next((each for each in adopted if not (each.reason or "").startswith(LACKS)), None):
            raise CommandFailed(f"it is not known yet what {unknown.topic} would lose: {unknown.reason}")
        found = adopted
        if adopted and yes:
            names = ",".join(each.source_topic for each in adopted)
            link_requests.change(client, name, {"discard": ("APPEND", names)})
            found = link_requests.await_states(client, adopted, (*link_requests.FETCHED, PAUSED), WISH_S)
    lost = {each.topic: each.reason for each in adopted}
    document = [{**_stands(each), "lost": lost[each.topic]} for each in found]
    rows = [(each["topic"], each["state"], each["lost"]) for each in document]
    failures = [_not_yet(each, None) for each in found if yes and each.state == ADOPTED]
    show(session.output, document, ("TOPIC", "STATE", "LOST"), rows, failures)
    if adopted and not yes:
        remark("Nothing was deleted; add --yes to delete these records for good.")


@admin_command(app, "delete")
def delete_link(
    session: Session,
    *,
    name: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where topics stay read-only, or groups' offsets are still to come."),
    ] = False,
) -> None:
    """Delete a link; the topics that it has mirrored stay."""
    with session.client() as client:
        link = link_requests.link_named(client, name)
        if "bootstrap.servers" not in link.removable:
            raise CommandFailed(f"link {name} is set in the files of the brokers: take it out there")
        mirrors = link_requests.mirrors_of(client, name)
        left = [each for each in mirrors if each.state not in WRITABLE]
        if left and not force:
            raise CommandFailed(
                f"link {name} has {counted(len(left), 'topic')} that {'is' if len(left) == 1 else 'are'} not promoted: "
                "promote or fail over first, or --force leaves read-only topics"
            )
        promoted = [] if force else link_requests.await_last_looks(client, mirrors, _PROMOTION_S)
        if unsettled := [each for each in promoted if each.awaits_last_look]:
            raise CommandFailed(
                f"link {name} is needed still: of {counted(len(unsettled), 'topic')} {unsettled[0].reason}; "
                "--force gives that up"
            )
        link_requests.change(client, name, dict.fromkeys(sorted(link.removable), ("DELETE", None)))
        found = link_requests.await_states(client, left, (STOPPED, ADOPTED), WISH_S)
        if link_requests.await_deletion(client, name, WISH_S):
            raise CommandFailed(f"link {name} goes on as the files of the brokers have it: take it out there, too")
    document = {"link": name, "status": "deleted", "stopped": [each.topic for each in found if each.state == STOPPED]}
    session.output.result(document, ("LINK", "STATUS", "STOPPED"), [tuple(document.values())])
    if left:
        remark("What has stopped stays read-only: a link of the same name has it again, or links adopt of another.")


# --- topics of a link ------------------------------------------------------------------------------------------------


def _report(
    session: Session, found: Sequence[Mirror], states: Collection[str], behind: dict[str, int | None] | None = None
) -> None:
    """The topics and their states; it fails for those that have none of these."""
    document = [_stands(each) for each in found]
    failures = [
        _not_yet(each, (behind or {}).get(each.topic)) for each in found if each.state not in {*states, *WRITABLE}
    ]
    rows = [(each["topic"], each["state"]) for each in document]
    show(session.output, document, ("TOPIC", "STATE"), rows, failures)


def _stands(mirror: Mirror) -> dict[str, Any]:
    return {"topic": mirror.topic, "state": mirror.state, "reason": mirror.reason, "source_topic": mirror.source_topic}


def _not_yet(mirror: Mirror, behind: int | None) -> CommandFailed:
    if mirror.state == STOPPED:
        return CommandFailed(f"{mirror.topic} has stopped: {mirror.reason}")
    if mirror.state == ADOPTED:
        of_it = f"links discard {mirror.link} {mirror.source_topic}, or links failover, goes on"
        return CommandFailed(f"{mirror.topic} is adopted: {mirror.reason}; {of_it}")
    how_far = "" if behind is None else f", {counted(behind, 'record')} behind"
    return CommandFailed(
        f"{mirror.topic} is {mirror.state} still{how_far}; that goes on: see pybroker links describe {mirror.link}"
    )
