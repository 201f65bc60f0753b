"""What the kinds of connectors do, on Spark and beside it."""
