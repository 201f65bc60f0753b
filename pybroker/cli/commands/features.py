"""``pybroker features``: which features a cluster has finalized, which levels a broker supports, and other levels.

Owns: the shapes that these commands print.  Counterpart: kafka-features.sh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from pybroker import __version__
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import retried
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import INT32_MAX

app = typer.Typer(help="Show the features of a cluster, raise and lower their levels.", no_args_is_help=True)

_LEVEL_MAX = 2**15 - 1
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_TIMEOUT_MS = 60_000
_NEVER_UNSAFE = "Nothing was changed. This command never asks for a downgrade that may lose metadata."
# What controllers say in front of the reason, whose words name the feature.
_OF_ALL = "The update failed for all features since the following feature had an error:"


@admin_command(app, "describe")
def describe(
    session: Session,
    *,
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="ID",
            min=0,
            max=INT32_MAX,
            help="The broker whose supported levels are shown; otherwise any broker's.",
        ),
    ] = None,
) -> None:
    """Show each feature: the level that the cluster has finalized, and the levels that a broker supports."""
    with session.client() as client:
        answer = retried(lambda: api_versions(client, broker_id))
    finalized = {each.name: int(each.max_version_level) for each in answer.finalized_features}
    supported = {each.name: (int(each.min_version), int(each.max_version)) for each in answer.supported_features}
    epoch = None if answer.finalized_features_epoch < 0 else int(answer.finalized_features_epoch)
    document = [
        {
            "feature": name,
            "finalized_level": finalized.get(name, 0),
            "supported_min": supported.get(name, (None, None))[0],
            "supported_max": supported.get(name, (None, None))[1],
            "epoch": epoch,
        }
        for name in sorted({*finalized, *supported})
    ]
    rows = [
        (name, finalized.get(name, 0), "{} to {}".format(*supported[name]) if name in supported else None, epoch)
        for name in (entry["feature"] for entry in document)
    ]
    session.output.result(document, ("FEATURE", "FINALIZED", "SUPPORTED", "EPOCH"), rows)


@admin_command(app, "set")
def set_levels(
    session: Session,
    *,
    levels: Annotated[
        list[str], typer.Argument(metavar="FEATURE=LEVEL…", help="A feature and its level, like metadata.version=33.")
    ],
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="Allow lower levels, where the cluster loses nothing by them.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the controller check the levels, and change nothing.")
    ] = False,
) -> None:
    """Raise features to levels, all or none; level 0 switches a feature off."""
    from pybroker_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

    wanted = dict(_parse_level(text) for text in levels)
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=_SAFE_DOWNGRADE if downgrade else _UPGRADE)
        for name, level in wanted.items()
    ]
    request = UpdateFeaturesRequest(timeout_ms=_TIMEOUT_MS, feature_updates=updates, validate_only=dry_run)
    with session.client() as client:
        answer = retried(lambda: api_versions(client))
        before = {each.name: int(each.max_version_level) for each in answer.finalized_features}
        reply = retried(lambda: client.ask(request, min_version=FeatureUpdateKey.since("upgrade_type")))
    lowered = [name for name, level in wanted.items() if level < before.get(name, 0)]
    if reply.error_code:
        raise _refused(reply.error_message, reply.error_code, lowered, downgrade=downgrade)
    for result in reply.results or ():
        if result.error_code:
            raise _refused(f"{result.feature}: {result.error_message}", result.error_code, lowered, downgrade=downgrade)
    status = "valid" if dry_run else "set"
    document = [{"feature": name, "level": level, "status": status} for name, level in wanted.items()]
    session.output.result(document, ("FEATURE", "LEVEL", "STATUS"), [list(entry.values()) for entry in document])


def _refused(message: str | None, code: int, lowered: Sequence[str], *, downgrade: bool) -> CommandFailed:
    """What the controller says, and what there is to do where a level would be lowered."""
    reason = (message or "").removeprefix(_OF_ALL).strip() or None
    if lowered and not downgrade and reason is not None and "upgrade type" in reason:
        reason = f"The cluster has a higher level of {', '.join(lowered)}."  # a type is a word of Kafka's API
    answer = str(refused("features", code, reason))
    if not lowered:
        return CommandFailed(answer)
    if downgrade:
        return CommandFailed(f"{answer}\n{_NEVER_UNSAFE}")
    return CommandFailed(f"{answer}\nNothing was changed. To lower {', '.join(lowered)} add --downgrade.")


def _parse_level(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not level.isdecimal() or int(level) > _LEVEL_MAX:
        raise typer.BadParameter(f"expected FEATURE=LEVEL, got {text!r}")
    return name, int(level)


def api_versions(client: AdminClient, broker_id: int | None = None) -> Any:
    """A broker's ApiVersions, or any broker's; CommandFailed."""
    from pybroker_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="pybroker", client_software_version=__version__)
    answer = client.ask(request, broker_id, min_version=ApiVersionsResponse.since("supported_features"))
    if answer.error_code:
        raise refused("features", answer.error_code)
    return answer
