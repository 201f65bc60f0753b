"""Cycles of dependencies between transactions, in the terms of Adya: ww, wr; strongly connected components.

Owns: the graphs; their components are networkx's (Tarjan's algorithm without recursion, in linear time).

A wr edge goes from the transaction that wrote a value to the one that consumed it, and another from each transaction
of a transactional id to its next: a cycle of these (G1c) says that transactions took effect before each other.  It
follows from no clock, unlike ``precommitted-read``.  A ww edge goes from the writer of a record to that of the next one
in its partition: such cycles (G0) are what interleaved transactions look like.  See ``anomalies`` on rw edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import networkx

from histories.anomalies import Report
from histories.index import Index, Transaction

Graph = Sequence[Iterable[int]]


def check_cycles(index: Index, report: Report) -> None:
    transactions = [transaction for transaction in index.transactions if transaction.committed]
    vertex_of = {write.value: vertex for vertex, found in enumerate(transactions) for write in found.writes}
    for kind, graph in (
        ("G1c", _reads_and_sessions(transactions, vertex_of)),
        ("G0", _writes(index, transactions, vertex_of)),
    ):
        for component in strongly_connected_components(graph):
            members = ", ".join(str(transactions[vertex].operation) for vertex in component[:4])
            report.add(kind, f"{len(component)} transactions: {members}")


def _reads_and_sessions(transactions: Sequence[Transaction], vertex_of: dict[int, int]) -> Graph:
    graph: list[set[int]] = [set() for _ in transactions]
    sessions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for reader, transaction in enumerate(transactions):
        for _, _, value in transaction.consumed:
            writer = vertex_of.get(value)
            if writer is not None and writer != reader:
                graph[writer].add(reader)
        sessions[transaction.transactional_id].append((transaction.operation.invoked_ns, reader))
    for session in sessions.values():
        session.sort()
        for (_, earlier), (_, later) in pairwise(session):
            graph[earlier].add(later)
    return graph


def _writes(index: Index, transactions: Sequence[Transaction], vertex_of: dict[int, int]) -> Graph:
    graph: list[set[int]] = [set() for _ in transactions]
    for key, offsets in index.committed_offsets.items():
        last: int | None = None
        for offset in offsets:
            vertex = vertex_of.get(index.log[key][offset])
            if vertex is not None:
                if last is not None and last != vertex:
                    graph[last].add(vertex)
                last = vertex
    return graph


def strongly_connected_components(graph: Graph) -> list[list[int]]:
    """The components of more than one vertex, each in the order of its vertices."""
    edges: networkx.DiGraph[int] = networkx.DiGraph()
    edges.add_nodes_from(range(len(graph)))
    edges.add_edges_from((vertex, successor) for vertex, successors in enumerate(graph) for successor in successors)
    return [sorted(found) for found in networkx.strongly_connected_components(edges) if len(found) > 1]
