"""The controller: it takes each change of the metadata, has it decided, commits it, and is elected."""
