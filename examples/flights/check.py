"""The same aggregation in batch, in plain Python over the source file, and the comparison cell by cell.

Independent of the stream on purpose: it counts by the file's calendar columns and knows no windows, no instants and no
JSON, so that an error in the time arithmetic cannot cancel itself out.
"""

from collections.abc import Iterable, Iterator
from datetime import date

from examples.flights.dataset import Row, minutes
from examples.flights.delays import Cell, Delays, Results, delays_of_one


def aggregate(rows: Iterable[Row]) -> Results:
    """Delays per New York calendar day, carrier and origin."""
    results: dict[Cell, Delays] = {}
    for row in rows:
        cell = Cell(date(int(row["year"]), int(row["month"]), int(row["day"])), row["carrier"], row["origin"])
        flight = delays_of_one(minutes(row["dep_delay"]), minutes(row["arr_delay"]))
        results[cell] = results[cell].merged(flight) if cell in results else flight
    return results


def differences(streamed: Results, expected: Results) -> Iterator[str]:
    """One sentence for each cell in which the stream's result is not that of the batch."""
    for cell in sorted(streamed.keys() | expected.keys()):
        ours, theirs = streamed.get(cell), expected.get(cell)
        if ours != theirs:
            yield f"{cell.day} {cell.carrier} {cell.origin}: {ours} streamed, {theirs} in batch"
