"""The report of a conformance run: what ran, what was found, and the figures beside Apache Kafka's.

``parts`` runs what is reported and keeps it as one JSON document; ``sections`` and its neighbours shape that document
into blocks of text, tables and plots, purely; ``page`` writes the blocks as HTML and as Markdown.  No figure is typed
by hand, and none is of another run: a part that did not run says so.
"""
