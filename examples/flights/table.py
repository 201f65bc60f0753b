"""The results as a table for people: one row per airline and airport of departure, over the whole stream."""

import re
from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from examples.flights.delays import Delays, Results, total

# What a register adds to an airline's name: without it the table has room in 80 columns.
LEGAL_FORM = re.compile(r",? (Inc\.?|Co\.?|Corporation|LLC)$")


def by_carrier_and_origin(results: Results) -> dict[tuple[str, str], Delays]:
    """The delays of all windows together, sorted by carrier and origin."""
    merged: dict[tuple[str, str], Delays] = {}
    for cell, delays in results.items():
        carrier_and_origin = (cell.carrier, cell.origin)
        merged[carrier_and_origin] = merged.get(carrier_and_origin, Delays()).merged(delays)
    return dict(sorted(merged.items()))


def delay_table(results: Results, airline_names: Mapping[str, str]) -> Table:
    """A table of all carriers and origins, and a last row for everything. Late is from `LATE_FROM_MINUTES` on."""
    title = "Departures from New York in 2013"
    table = Table(title=title, box=SIMPLE_HEAD, show_footer=True, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Airline", footer="All", overflow="fold")
    table.add_column("From", no_wrap=True)
    headers = ("Flights", "Cancelled", "Late", "Mean\n(min)", "Worst\n(min)", "Arrival\n(min)")
    for header, footer in zip(headers, _cells(total(results.values())), strict=True):
        table.add_column(header, footer=footer, justify="right", no_wrap=True)
    previous = None
    for (carrier, origin), delays in by_carrier_and_origin(results).items():
        name = LEGAL_FORM.sub("", airline_names.get(carrier, carrier))
        table.add_row("" if carrier == previous else name, origin, *_cells(delays))
        previous = carrier
    return table


def _cells(delays: Delays) -> tuple[str, ...]:
    departed = delays.flights - delays.cancelled
    worst = delays.departure_delay_max_minutes
    return (
        f"{delays.flights:,}",
        _quotient(delays.cancelled, delays.flights, ".1%"),
        _quotient(delays.late, departed, ".1%"),
        _quotient(delays.departure_delay_sum_minutes, departed, "z.1f"),
        "" if worst is None else f"{worst:,}",
        _quotient(delays.arrival_delay_sum_minutes, delays.arrived, "z.1f"),
    )


def _quotient(dividend: int, divisor: int, format_spec: str) -> str:
    return format(dividend / divisor, format_spec) if divisor else ""
