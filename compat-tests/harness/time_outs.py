"""How long a test may take by its own mark.  Does not own what ends one that takes longer (``hung_tests``)."""

from __future__ import annotations

import pytest


def marked_time_out_s(item: pytest.Item) -> float | None:
    """The seconds of the test's nearest mark ``timeout``, 0 where it may take for ever; None where it has no mark."""
    marker = item.get_closest_marker("timeout")
    return None if marker is None else float(marker.args[0] if marker.args else marker.kwargs["timeout"])
