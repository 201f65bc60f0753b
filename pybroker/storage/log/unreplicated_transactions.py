"""Which transactions of an opened log are decided by markers that lie past its high watermark.

Owns the search for them, backwards from the log's end.  A snapshot of producers does not name them: it has the open
transactions alone, so that one taken behind a marker says nothing of where the marker's transaction began.

The search ends after ``UNREPLICATED_TRANSACTIONS_BYTES``. Of a transaction that begins further back only the part that
was looked at counts, and one whose marker lies there does not count at all. Markers are past the high watermark for as
long as the replicas take to copy them.

Kafka: none.  There a log that was closed cleanly, with a marker past its high watermark, takes the transaction for
replicated after the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.files.stored_headers import stored_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.storage.log.log_state import LogState
    from pybroker_protocol.records import BatchHeader

# How far from a log's end transactions are looked for that were decided and not replicated when it was closed.
UNREPLICATED_TRANSACTIONS_BYTES = 8 << 20

_WINDOW_BYTES = 64 << 10


def unreplicated_transactions(log: LogState) -> dict[int, int]:
    """First offset -> marker's offset, of the transactions whose marker is not below the high watermark.

    Raises OSError.
    """
    found: dict[int, int] = {}
    undecided_from = log.high_watermark
    sought: dict[int, tuple[int, int]] = {}  # producer id -> first offset seen, marker's offset
    for header in _headers_backwards(log):
        offset, producer_id = header.base_offset, header.producer_id
        if offset < undecided_from and not sought:
            break
        if header.is_control:  # what was sought of this producer began behind its marker before
            _keep(found, sought.pop(producer_id, None))
            if offset >= undecided_from and producer_id >= 0:
                sought[producer_id] = offset, offset
        elif header.is_transactional and producer_id in sought:
            sought[producer_id] = offset, sought[producer_id][1]
    for began in sought.values():
        _keep(found, began)
    return found


def _keep(found: dict[int, int], began: tuple[int, int] | None) -> None:
    if began is not None and began[0] < began[1]:
        found[began[0]] = began[1]


def _headers_backwards(log: LogState) -> Iterator[BatchHeader]:
    """The headers of the log's last batches, from its end on."""
    bytes_left = UNREPLICATED_TRANSACTIONS_BYTES
    for segment in reversed(list(log.segments)):
        segment.open()
        end = segment.size
        while end > 0 and bytes_left > 0:
            start = segment.offset_index.floor_position(max(end - _WINDOW_BYTES, 0))
            window = []
            for at, header in stored_headers(segment, start):
                if at >= end:
                    break
                window.append(header)
            yield from reversed(window)
            bytes_left -= end - start
            end = start
