"""Cycles of dependencies between transactions, in the terms of Adya: ww, wr; strongly connected components.

Owns: the graphs, and Tarjan's algorithm without recursion, in linear time.

A wr edge goes from the transaction that wrote a value to the one that consumed it, and another from each transaction
of a transactional id to its next: a cycle of these (G1c) says that transactions took effect before each other.  It
follows from no clock, unlike ``precommitted-read``.  A ww edge goes from the writer of a record to that of the next one
in its partition: such cycles (G0) are what interleaved transactions look like.  See ``anomalies`` on rw edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

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
    """The components of more than one vertex; Tarjan (1972) with a stack of its own instead of recursion."""
    unseen = -1
    number = [unseen] * len(graph)  # in the order of discovery
    low = [0] * len(graph)
    on_path = [False] * len(graph)
    path: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in range(len(graph)):
        if number[root] != unseen:
            continue
        work = [(root, iter(graph[root]))]
        number[root] = low[root] = count
        count += 1
        path.append(root)
        on_path[root] = True
        while work:
            vertex, successors = work[-1]
            for successor in successors:
                if number[successor] == unseen:
                    number[successor] = low[successor] = count
                    count += 1
                    path.append(successor)
                    on_path[successor] = True
                    work.append((successor, iter(graph[successor])))
                    break
                if on_path[successor]:
                    low[vertex] = min(low[vertex], number[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == number[vertex]:
                    component = _pop_component(path, on_path, vertex)
                    if len(component) > 1:
                        found.append(component)
    return found


def _pop_component(path: list[int], on_path: list[bool], root: int) -> list[int]:
    start = len(path) - 1
    while path[start] != root:
        start -= 1
    component = path[start:]
    del path[start:]
    for vertex in component:
        on_path[vertex] = False
    return component
