"""``pybroker quotas``: what clients may use, described, set and removed.

Owns: how entities and quotas are written on the command line, and the shapes that are printed.  Which quotas there are
and what they may be the broker says.  Counterpart: kafka-configs.sh for users, clients and ips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import retried
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.options import misused

if TYPE_CHECKING:
    from pybroker_protocol.messages.alter_client_quotas import OpData

app = typer.Typer(help="Quotas of clients: describe, set and remove them.", no_args_is_help=True)

_EXACT, _DEFAULT = 0, 1  # how a component of DescribeClientQuotas names what it asks for
_DEFAULT_NAME = "<default>"
_COLUMNS = ("ENTITY", "QUOTA", "VALUE")

Entity = dict[str, str | None]


class Clients(NamedTuple):
    """The clients that a command names."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="The quotas of this user.")] = None
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="The quotas of clients with this client id.")
    ] = None
    ip: Annotated[
        str | None, typer.Option("--ip", metavar="ADDRESS", help="The quotas of connections from this address.")
    ] = None
    user_defaults: Annotated[bool, typer.Option("--user-defaults", help="The quotas of each user without its own.")] = (
        False
    )
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="The quotas of each client id without its own.")
    ] = False
    ip_defaults: Annotated[bool, typer.Option("--ip-defaults", help="The quotas of each address without its own.")] = (
        False
    )

    def entity(self) -> Entity:
        """By type; a usage error where a name and the default are both given."""
        named = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        defaults = {"user": self.user_defaults, "client-id": self.client_defaults, "ip": self.ip_defaults}
        entity: Entity = {kind: name for kind, name in named.items() if name is not None}
        for kind, is_default in defaults.items():
            if is_default and kind in entity:
                raise misused(f"give either a name or the default of a {kind}")
            if is_default:
                entity[kind] = None
        return entity


@admin_command(app, "describe")
def describe_quotas(
    session: Session,
    *,
    clients: Clients,
) -> None:
    """Show the quotas that are set, all of them or those of what is named."""
    entity = clients.entity()
    with session.client() as client:
        shown = described(client, entity)
    session.output.result(
        shown,
        _COLUMNS,
        [(entity_text(row["entity"]), key, f"{value:.15g}") for row in shown for key, value in row["quotas"].items()],
    )


def described(client: AdminClient, entity: Entity) -> list[dict[str, Any]]:
    """The quotas of what has these parts, as ``entity`` and ``quotas``, in the order of names; CommandFailed."""
    from pybroker_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    reply = retried(lambda: client.ask(DescribeClientQuotasRequest(components=components, strict=False)))
    if reply.error_code:
        raise refused("quotas", reply.error_code, reply.error_message)
    found = (
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in sorted(entry.values, key=lambda value: str(value.key))},
        }
        for entry in reply.entries
    )
    return sorted(found, key=lambda row: entity_text(row["entity"]))


@admin_command(app, "set")
def set_quotas(
    session: Session,
    *,
    quotas: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=VALUE…", help="A quota with its value, like producer_byte_rate=1048576."),
    ],
    clients: Clients,
) -> None:
    """Set quotas of a user, a client id, both, an address, or of all that have none of their own.

    Of users and client ids: producer_byte_rate and consumer_byte_rate in bytes per second and broker,
    request_percentage in percent of a thread's time, controller_mutation_rate in partitions created and deleted per
    second. Of addresses: connection_creation_rate in connections per second.
    """
    from pybroker_protocol.messages.alter_client_quotas import OpData

    operations = []
    for quota in quotas:
        key, equals, value = quota.partition("=")
        try:
            operations.append(OpData(key=key, value=float(value), remove=False))
        except ValueError as error:
            raise typer.BadParameter(f"{quota}: not of the form QUOTA=NUMBER") from error
        if not equals:
            raise typer.BadParameter(f"{quota}: not of the form QUOTA=NUMBER")
    _alter(session, clients.entity(), operations)


@admin_command(app, "remove")
def remove_quotas(
    session: Session,
    *,
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA…", help="A quota by its name, like producer_byte_rate.")
    ],
    clients: Clients,
) -> None:
    """Remove quotas of a user, a client id, both, an address, or of all that have none of their own."""
    from pybroker_protocol.messages.alter_client_quotas import OpData

    _alter(session, clients.entity(), [OpData(key=key, value=0.0, remove=True) for key in quotas])


def _alter(session: Session, entity: Entity, operations: list[OpData]) -> None:
    if not entity:
        raise misused("name whose quotas they are: --user, --client-id, both, --ip, or their defaults")
    changes = {operation.key: None if operation.remove else operation.value for operation in operations}
    with session.client() as client:
        alter(client, [entity], changes)
    rows = [
        (entity_text(entity), key, None if value is None else f"{value:.15g}", "removed" if value is None else "set")
        for key, value in changes.items()
    ]
    session.output.result([{"entity": entity, "quotas": changes}], (*_COLUMNS, "STATUS"), rows)


def alter(client: AdminClient, entities: Sequence[Entity], changes: Mapping[str, float | None]) -> None:
    """Set quotas of each, and for None remove them; CommandFailed."""
    from pybroker_protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntityData,
        AlterClientQuotasRequestEntryData,
        OpData,
    )

    entries = [
        AlterClientQuotasRequestEntryData(
            entity=[
                AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        for entity in entities
    ]
    reply = retried(lambda: client.ask(AlterClientQuotasRequest(entries=entries, validate_only=False)))
    for answered in reply.entries:
        if answered.error_code:
            of = entity_text({part.entity_type: part.entity_name for part in answered.entity})
            raise refused(of, answered.error_code, answered.error_message)


def entity_text(entity: Entity) -> str:
    """An entity as people read it: ``client-id=etl user=<default>``."""
    return " ".join(f"{kind}={_DEFAULT_NAME if name is None else name}" for kind, name in sorted(entity.items()))
