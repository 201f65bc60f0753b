"""``ClientAccess``, which says how a client gets in, on its way to another process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pybroker.security.client_access import ClientAccess


def access_to_json(access: ClientAccess) -> dict[str, str]:
    """What is given of it."""
    return {name: str(value) for name, value in access._asdict().items() if value is not None}


def access_from_json(found: Mapping[str, str]) -> ClientAccess:
    """What ``access_to_json`` gave."""
    given: dict[str, Any] = {name: Path(value) if name in ("ca", "key") else value for name, value in found.items()}
    return ClientAccess(**given)
