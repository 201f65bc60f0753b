"""One partition's log: how the files and the rules make a log."""
