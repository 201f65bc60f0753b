"""``scripts/check-it-yourself``: the tools that a sceptic runs, against Apache Kafka and pybroker in turn.

Owns: which tools those are, how each is had, run and read, and the one table.  The tools are other people's, but for
``shape_load``: a row says what the tool itself printed, or whether what came back is what it was given.
``docs/check-it-yourself.md`` is the page.
"""
