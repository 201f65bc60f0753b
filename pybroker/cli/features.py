"""``pybroker features``: which features a cluster has finalized, and which levels a broker supports.

Owns: the shape that this command prints.  Counterpart: kafka-features.sh describe.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pybroker import __version__
from pybroker.cli.admin_command import Session, admin_command
from pybroker.cli.connection import retried
from pybroker.cli.error_names import refused
from pybroker.cli.options import INT32_MAX
from pybroker.cli.wire_requests import ask

app = typer.Typer(help="Show the features of a cluster, and the levels that brokers support.", no_args_is_help=True)

_FEATURES_SINCE = 3  # version of ApiVersions


@admin_command(app, "describe")
def describe(
    session: Session,
    *,
    broker_id: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", min=0, max=INT32_MAX, help="Whose support to show; otherwise any's."),
    ] = None,
) -> None:
    """Show each feature: the level that the cluster has finalized, and the levels that a broker supports."""
    with session.client() as client:
        told = retried(lambda: api_versions(client, broker_id))
    finalized = {each.name: int(each.max_version_level) for each in told.finalized_features}
    supported = {each.name: (int(each.min_version), int(each.max_version)) for each in told.supported_features}
    epoch = None if told.finalized_features_epoch < 0 else int(told.finalized_features_epoch)
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


def api_versions(client: Any, broker_id: int | None = None) -> Any:
    """A broker's ApiVersions, or any broker's; CommandFailed."""
    from pybroker_protocol.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="pybroker", client_software_version=__version__)
    told = ask(client, request, broker_id, min_version=_FEATURES_SINCE)
    if told.error_code:
        raise refused("features", told.error_code)
    return told
