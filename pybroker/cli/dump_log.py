"""``pybroker dump-log``."""


def dump_log() -> None:
    """Print what is in the files of a log."""
