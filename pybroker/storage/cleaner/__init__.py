"""Log cleaning: compaction of the logs with ``cleanup.policy=compact``.  Kafka's LogCleaner.

A round over one log is a ``CleaningJob`` (``cleaner_jobs``). The parts:
- ``selection`` decides on the broker's loop which log is due and what of it may be cleaned.
- ``round`` reads the sealed segments and writes ``.cleaned`` ones. It runs in a process of its own (``__main__``,
  driven by ``runners.ProcessRunner``) or on a thread of the broker's process (``runners.ThreadRunner``).
- ``swap`` puts them in the place of the old ones.
- ``log_cleaner`` drives all that and keeps the checkpoint.
"""
