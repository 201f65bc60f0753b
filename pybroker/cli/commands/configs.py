"""``pybroker configs``: the settings of topics, brokers, their loggers, groups and subscriptions to client metrics.

Owns: how a resource is named, and the shapes that are printed.  Quotas of users and clients are ``quotas``, passwords
``users``.  Counterpart: kafka-configs.sh.
"""

from __future__ import annotations

import sys
from typing import Annotated, NamedTuple

import typer

from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.requests.config_requests import alter, changes_of, described, setting_row
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import INT32_MAX, misused, repeated
from pybroker.cli.terminal.output import remark
from pybroker.config.properties import parse_properties
from pybroker.config.secret_files import exposure_of_settings

app = typer.Typer(
    help="Describe and alter settings of topics, brokers, groups and client metrics.", no_args_is_help=True
)

# What is not worth a line unless --all asks for it.
_UNSET = {"DEFAULT_CONFIG"}
_OF_BROKERS = {"STATIC_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"}


class Configured(NamedTuple):
    """The resource whose settings a command describes or alters."""

    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="NAME", help="The settings of this topic.")] = (
        None
    )
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, max=INT32_MAX, metavar="ID", help="The settings of this broker.")
    ] = None
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="The settings of all brokers without their own.")
    ] = False
    broker_logger: Annotated[
        int | None,
        typer.Option(
            "--broker-logger", min=0, max=INT32_MAX, metavar="ID", help="The levels of this broker's loggers."
        ),
    ] = None
    group: Annotated[str | None, typer.Option("--group", "-g", metavar="NAME", help="The settings of this group.")] = (
        None
    )
    client_metrics: Annotated[
        str | None,
        typer.Option("--client-metrics", metavar="NAME", help="The settings of this subscription to client metrics."),
    ] = None

    def resource(self) -> tuple[str, str]:
        """Kind and name of what was named; a usage error unless that is one thing."""
        named = {
            "topic": self.topic,
            "broker": "" if self.broker_defaults else self.broker,
            "broker-logger": self.broker_logger,
            "group": self.group,
            "client-metrics": self.client_metrics,
        }
        found = [(kind, str(name)) for kind, name in named.items() if name is not None]
        if len(found) != 1 or (self.broker_defaults and self.broker is not None):
            raise misused(
                "name one resource: --topic, --broker, --broker-defaults, --broker-logger, --group or --client-metrics"
            )
        return found[0]


@admin_command(app, "describe")
def describe_configs(
    session: Session,
    *,
    configured: Configured,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show settings, too, that are not set for this resource.")
    ] = False,
) -> None:
    """Show the settings of one resource and where each comes from; (secret) is a value that brokers do not show."""
    kind, name = configured.resource()
    with session.client() as client:
        entries = described(client, kind, name)
    hidden = _UNSET if kind == "broker" else _UNSET | _OF_BROKERS
    shown = [entry for entry in entries if everything or entry["source"] not in hidden]
    rows = [setting_row(entry) for entry in shown]
    session.output.result(shown, ("NAME", "VALUE", "SOURCE"), rows)


@admin_command(app, "alter")
def alter_configs(
    session: Session,
    *,
    configured: Configured,
    settings: Annotated[list[str], repeated("--set", "-s", metavar="KEY=VALUE", help="Set a setting.")],
    file: Annotated[
        str | None,
        typer.Option("--set-from", metavar="FILE", help="Set what a properties file says, for secrets; - is stdin."),
    ] = None,
    unset: Annotated[list[str], repeated("--unset", "-d", metavar="KEY", help="Reset a setting to its default.")],
    append: Annotated[
        list[str], repeated("--append", metavar="KEY=VALUE", help="Add a value to a setting that is a list.")
    ],
    subtract: Annotated[
        list[str], repeated("--subtract", metavar="KEY=VALUE", help="Take a value from a setting that is a list.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker check the settings, and change nothing.")
    ] = False,
) -> None:
    """Change the settings of one resource, all of them or none."""
    kind, name = configured.resource()
    changes = changes_of(settings, unset, append, subtract, None if file is None else _read(file))
    if not changes:
        raise misused("nothing to change: give --set, --set-from, --unset, --append or --subtract")
    with session.client() as client:
        alter(client, kind, name, changes, dry_run=dry_run)
    status = "valid" if dry_run else "altered"
    document = [{"resource": kind, "name": name, "status": status}]
    session.output.result(document, ("RESOURCE", "NAME", "STATUS"), [(kind, name or "<default>", status)])


def _read(path: str) -> dict[str, str]:
    try:
        if path == "-":
            return parse_properties(sys.stdin.read())
        with open(path, encoding="utf-8") as file:
            settings = parse_properties(file.read())
    except ValueError as error:
        raise CommandFailed(f"{path} is no file of properties in UTF-8") from error
    if (warning := exposure_of_settings(path, settings)) is not None:
        remark(f"pybroker: {warning}")
    return settings
