"""Where a run of the job reads and writes: shared by the job and by what starts it. Pure; imports no Spark."""

from pathlib import Path
from typing import NamedTuple

LOCAL_MASTER = "local[2]"


class JobOptions(NamedTuple):
    """Where a run reads, writes and keeps its progress, how many records it takes at a time, and on whose Spark."""

    bootstrap: str
    flights_topic: str
    delays_topic: str
    parquet_dir: Path
    checkpoint_dir: Path
    batch_records_max: int
    master: str = LOCAL_MASTER

    def arguments(self) -> list[str]:
        """The options as the job's command line takes them."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in self._asdict().items()]
