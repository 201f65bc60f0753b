"""Files that a setting names: read whole, or refused with the setting's name.

Owns: what such a file may be (a regular one, of bounded size) and the words of its refusal.  Owns no meaning of what is
read.  Blocks, as a disk does: while a broker serves it is for a thread.

Invariants:
- Nothing but a regular file is ever opened, because to open a device may already do something.
- No read waits for a writer, so that a FIFO that takes the file's place in between blocks no start.
- No more than the size that the file says is read, so that what the kernel makes up (``/proc``) is empty.
- A link to a regular file is one: Kubernetes mounts secrets so.

Kafka reads whatever the JVM opens.
"""

from __future__ import annotations

import os
import stat

from pybroker.config.schema import ConfigError

# A file that a setting names: stores of keys, files of settings and of users.  Java's own trust store has 200 KB.
NAMED_FILE_BYTES_MAX = 4 << 20

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_named_file(path: str, setting: str, bytes_max: int = NAMED_FILE_BYTES_MAX) -> bytes:
    """What the file holds that ``setting`` names; ConfigError, which names both."""
    try:
        _require_regular(os.stat(path), path, setting, bytes_max)
        descriptor = os.open(path, _FLAGS)
        try:
            # It may be another one by now.
            size = _require_regular(os.fstat(descriptor), path, setting, bytes_max)
            return _read(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError(f"{setting}: {path!r} is no name of a file") from None


def read_named_text(path: str, setting: str) -> str:
    """The same of a file in UTF-8."""
    try:
        return read_named_file(path, setting).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{setting}: {path} is not UTF-8") from None


def _require_regular(found: os.stat_result, path: str, setting: str, bytes_max: int) -> int:
    """The file's size."""
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise ConfigError(f"{setting}: {path} is {kind}")
    if found.st_size > bytes_max:
        raise ConfigError(f"{setting}: {path} has {found.st_size} bytes, more than {bytes_max}")
    return found.st_size


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
