"""Connectors: declarations, the supervisor and its REST interface; `jvm/` needs Spark."""
