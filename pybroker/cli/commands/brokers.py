"""``pybroker brokers``: list the brokers of a cluster, and forget those that are gone for good.

Owns: the shapes that these commands print.  Counterparts: kafka-cluster.sh, kafka-broker-api-versions.sh.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.changes import settled
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests.wire_requests import described_cluster
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import INT32_MAX
from pybroker.cli.terminal.output import Row, remark

app = typer.Typer(help="List the brokers of a cluster, and unregister stopped ones.", no_args_is_help=True)

BROKER_COLUMNS = ("BROKER", "ADDRESS", "RACK", "STATE", "CONTROLLER")


def broker_documents(cluster: Any) -> list[dict[str, Any]]:
    """The brokers of a cluster, by their ids."""
    return [
        {
            "id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": broker.is_fenced,
            "controller": broker.broker_id == cluster.controller_id,
        }
        for broker in sorted(cluster.brokers, key=lambda broker: int(broker.broker_id))
    ]


def broker_row(broker: dict[str, Any]) -> Row:
    """A broker's row below ``BROKER_COLUMNS``."""
    return (
        broker["id"],
        f"{broker['host']}:{broker['port']}",
        broker["rack"],
        "fenced" if broker["fenced"] else "running",
        broker["controller"],
    )


@admin_command(app, "list")
def list_brokers(session: Session) -> None:
    """List the brokers, as far as the cluster tells of them; a fenced one has stopped, or is not heard."""
    with session.client() as client:
        shown = broker_documents(retried(lambda: described_cluster(client)))
    session.output.result(shown, BROKER_COLUMNS, map(broker_row, shown))


@admin_command(app, "unregister")
def unregister_broker(
    session: Session,
    *,
    broker_id: Annotated[int, typer.Argument(metavar="ID", min=0, max=INT32_MAX, help="The id of a stopped broker.")],
) -> None:
    """Unregister a broker that was stopped and does not come back."""
    from pybroker.cli.requests.internal_topics import too_few_brokers
    from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest

    with session.client() as client:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = retried(lambda: client.ask(request))
        if settled(client, request, response.error_code, f"broker {broker_id}"):
            raise refused(f"broker {broker_id}", response.error_code, response.error_message)
        session.output.result(
            [{"id": broker_id, "status": "unregistered"}], ("BROKER", "STATUS"), [(broker_id, "unregistered")]
        )
        session.output.flush()
        with suppress(CommandFailed):  # who may unregister a broker may not ask for its settings
            if lack := too_few_brokers(client, without=broker_id):
                remark(lack)
