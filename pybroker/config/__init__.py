"""The settings: what they are (tables), what they say now (layers), and how they are described and altered."""

from os.path import exists

# lib-pybroker came later: its `pybroker` imports a module `config`, and finds this one.
if exists(f"{__path__[0]}/../strategy.py"):
    from pybroker.extras import SHARED_PACKAGE

    raise ImportError(SHARED_PACKAGE)
