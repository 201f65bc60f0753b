"""From a table of PostgreSQL to a Parquet lake by declarations alone: `scripts/demo --lake`.

flights   the table, and its rows            declared  what is declared: connectors, and a standing query
answers   one question to four places       chart     the picture, drawn from the lake
demo      everything in order (`python -m examples.lake`)
"""
