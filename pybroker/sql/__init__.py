"""SQL on topics: a question is answered now, in this process, by DuckDB over record batches that are fetched for it.

Owns what a statement means, which records it needs, and how they become columns.  Owns no connection (``cluster`` is
the port), no parser (sqlglot's), no engine (DuckDB's) and no terminal but the prompt.

Invariant: nothing is committed, and no group is joined, so that a question leaves no trace on the cluster.
"""
