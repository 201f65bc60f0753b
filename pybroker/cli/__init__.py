"""The command line: ``pybroker serve`` and the client commands, as README.md draws them.

``main`` is the console script; ``serve`` stays off typer, rich and client libraries, because a broker must be ready
within 300 ms of exec.  Everything else is a client of any Kafka cluster.
"""
