"""CRC-32C, the checksum of Kafka's batches, by the package ``crc32c``.

Owns: that the package's extension is loaded without the package.  That one brings along a command, and learns its own
version by ``importlib.metadata``, with ``email``, ``zipfile`` and twenty others: a tenth of a broker's start, and 2 MB.

Kafka counterpart: org.apache.kafka.common.utils.Crc32C.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final


def _extension() -> Any:
    """The package's module that computes it; ImportError where it is not laid out so, or not in a plain folder."""
    package = PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        raise ImportError("crc32c has no extension of the name _crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def implementation() -> Callable[..., int]:
    """``crc32c(data, crc of what stands before it)``, of the extension or, where that is not found, of the package."""
    try:
        of_extension: Callable[..., int] = _extension().crc32c
    except (ImportError, AttributeError):
        from crc32c import crc32c as of_package

        return of_package
    return of_extension


crc32c: Final = implementation()
