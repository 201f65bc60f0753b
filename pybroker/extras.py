"""What to type where an extra is missing: the words are right wherever this pybroker came from.

Owns: the name of the distribution, and how an extra of it is installed. Everybody may import it; it imports nothing
before it is asked.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "pybroker-kafka"
# What lib-pybroker has in its own package `pybroker`, in every version, and this one never has.
OTHERS_FILE: Final = "strategy.py"
SHARED_PACKAGE: Final = (
    f"{DISTRIBUTION} and lib-pybroker both bring the package pybroker, and both are installed here: "
    f"`pip uninstall {DISTRIBUTION} lib-pybroker`, then install the one that is wanted"
)


def how_to_install(extra: str) -> str:
    """The command that installs an extra from where pybroker itself was installed: an index, a directory or a file."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # run from its sources
        return f"pip install '/path/to/checkout[{extra}]'"
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        return f"pip install '{url.removeprefix('file://')}[{extra}]'"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}"
    return f"pip install '{DISTRIBUTION}[{extra}]{f' @ {url}' if url else ''}'"
