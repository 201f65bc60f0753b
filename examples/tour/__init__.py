"""The tour: flights, weather, planes and airports as topics, joined, counted, watched, kept and drawn.

topics    the four topics, and producing them         jobs       the queries, as functions from topics
unusual   what is unusual, by custom state            postgres   a PostgreSQL of the tour's own
check     the same answers in batch, by pandas        picture    the plot
chapters  one after another, each verified
tour      everything in order, and what people see of it (`python -m examples.tour`, `scripts/demo --tour`)

The flights demo (`examples.flights`) is its first chapter.
"""
