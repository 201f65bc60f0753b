"""What the znodes of a ``ZooKeeperStore`` hold is read as it was written, and kazoo gets whole addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.store.metadata_store import Entry, RefusedWriteError
from pybroker.cluster.store.zookeeper import zookeeper_codec as codec
from pybroker.cluster.store.zookeeper.zookeeper_client import new_client

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map("/".__add__)


@given(st.dictionaries(keys, st.binary(max_size=50)), st.lists(keys, unique=True))
def test_writes_are_read_as_written(puts: dict[str, bytes], deletes: list[str]) -> None:
    assert codec.decode_writes(codec.encode_writes(puts, deletes)) == (puts, tuple(deletes))


@given(st.dictionaries(keys, st.builds(Entry, st.binary(max_size=50), st.integers(0, 2**32 - 1))))
def test_snapshots_are_read_as_written(entries: dict[str, Entry]) -> None:
    data = b"".join(codec.encode_entry(key, entry) for key, entry in entries.items())
    assert dict(codec.decode_snapshot(data)) == entries
    assert b"".join(codec.cut(data)) == data


@pytest.mark.parametrize("parts", [(), ("0000000001-ff-0", "0000000001-ff-1")])
@pytest.mark.parametrize("touches_ephemerals", [False, True])
def test_changes_are_read_as_written(parts: tuple[str, ...], touches_ephemerals: bool) -> None:
    change = codec.Change(bytes(range(16)), touches_ephemerals, b"" if parts else b"writes", parts)
    assert codec.decode_change(codec.encode_change(change)) == change


@given(keys)
def test_ephemeral_keys_are_one_znode_each(key: str) -> None:
    path = codec.ephemeral_path(key)
    assert path.count("/") == 2
    assert codec.ephemeral_key(path.rpartition("/")[2]) == key


def test_places_are_told_from_names() -> None:
    assert codec.position_of(codec.part_name(7, b"\xff", 3)) == 7
    assert codec.position_of(codec.change_path(12).rpartition("/")[2]) == 12
    assert codec.position_of("stranger") == -1
    assert codec.decode_pointer(b"") == (0, [])
    assert codec.decode_pointer(codec.encode_pointer(5, ["a", "b"])) == (5, ["a", "b"])


def test_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(RefusedWriteError, match="too long"):
        codec.encode_writes({"/" + "a" * 70_000: b""}, [])


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zookeeper://h1", [("h1", 2181)], ""),
        ("zookeeper://h1:1,h2/a/b/", [("h1", 1), ("h2", 2181)], "/a/b"),
        ("zookeeper://[::1]:5,[::2]", [("::1", 5), ("::2", 2181)], ""),
    ],
)
def test_url_has_hosts_with_or_without_ports_and_a_chroot(url: str, hosts: list[object], chroot: str) -> None:
    client = new_client(url, 1_000, None)
    assert (client.hosts, client.chroot) == (hosts, chroot)
    client.close()
