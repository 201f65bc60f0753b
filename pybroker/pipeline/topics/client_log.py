"""Where librdkafka's own log lines go: to Python's logger ``librdkafka``, instead of standard error.

What goes wrong fails a call, and is said once by who made it. The lines beside it are of brokers that are gone, and of
producers that another attempt has fenced, as it should. A handler of the logger shows them where they are wanted.
"""

import logging
from collections.abc import Mapping
from typing import Any

_log = logging.getLogger("librdkafka")
# Without any handler Python writes warnings to standard error.
_log.addHandler(logging.NullHandler())
# Spark's and the application's own handlers are not asked for these lines.
_log.propagate = False


def with_client_log(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a client whose lines go to the logger; with ``debug`` they stay on standard error.

    Who debugs a task's client has no other place to read them: its process has no handlers of the user's.
    """
    return dict(settings) if settings.get("debug") else {"logger": _log, **settings}
