"""SQL on topics: a question is answered now, in this process, by DuckDB over record batches that are fetched for it.

Owns what a statement means, which records it needs, and how they become columns.  Owns no connection (the port is
``cluster_port``), no parser (sqlglot's), no engine (DuckDB's) and no terminal but the prompt.
"""
