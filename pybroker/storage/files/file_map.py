"""A segment's map: views of it are what a reader gets, and what a socket takes from the file without a copy.

Owns: where a view of the map lies in the file, and whether the file's descriptor is still the one that was mapped.
Does not own the descriptor: ``segment_file`` opens and closes it, and takes it away here before it does.

Invariant: a descriptor that may be another file's by now is not used.

Kafka counterpart: FileRecords.writeTo.
"""

from __future__ import annotations

import errno

from pybroker.storage.files import os_file

# A file system whose files cannot be sent from, or a host that does not let the process.
_CANNOT_BE_SENT_FROM = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


class FileMap(os_file.MappedFile):
    """A read-only map; ``fd`` is its file's descriptor, or -1 since that may have been closed or changed.

    ``sent_end``: up to here sockets took the file's pages themselves, which they may hold until their peers have read.
    """

    fd = -1
    sent_end = 0
    _address = -1  # looked up at first need

    @property
    def address(self) -> int:
        """Where the map lies in memory; 0 if that cannot be known."""
        if self._address < 0:
            self._address = os_file.map_address(self)
        return self._address

    def position_of(self, view: memoryview) -> int:
        """Where a view of the map begins in the file; -1 where the file cannot be sent from."""
        if self.fd < 0 or not self.address:
            return -1
        return os_file.map_address(view) - self.address

    def send(self, socket_fd: int, position: int, length: int) -> int:
        """Send so many bytes of the file, or fewer, to a socket that is written to without waiting; how many it took.

        -1 where the file cannot be sent from any more.  Raises BlockingIOError where it takes none, and OSError.
        """
        if self.fd < 0:
            return -1
        try:
            sent = os_file.send_file(socket_fd, self.fd, position, length)
        except OSError as error:
            if error.errno not in _CANNOT_BE_SENT_FROM:
                raise
            self.fd = -1
            return -1
        self.sent_end = max(self.sent_end, position + sent)
        return sent
