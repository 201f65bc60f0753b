"""A question now, in this process: DuckDB, its progress, rows as they arrive, and rows that are written."""
