"""pybroker: a broker that speaks the real Kafka protocol over an mmap-backed log."""

from os.path import exists

# Both are installed here, and this one came later; config/__init__.py sees the other order.
if exists(f"{__path__[0]}/strategy.py"):
    from pybroker.extras import SHARED_PACKAGE

    raise ImportError(SHARED_PACKAGE)

__version__ = "0.1.0"
