"""Ranges of addresses as the host of an ACL (KIP-1276): ``10.0.0.0/8``, ``2001:db8::/32``.

Owns: what a range must be, and whether an address lies in one.  A host without a slash is no range, and compared as
text (``acl_rules``).

Invariants:
- What cannot be parsed contains nothing, so that an ACL which an older version took as text allows no host more than
  before.
- An address of one family lies in no range of the other.
- Nothing of an address is looked up.

Counterpart in Kafka: ``org.apache.kafka.server.authorizer.internals.CidrUtils``, whose IPv4 numbers are decimal with
leading zeros, too, and in whose IPv4 ranges the address 0.0.0.0 does not lie.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple

_IPV4_RANGE: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_IPV4_ADDRESS: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)
_PREFIX: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_IPV4_BITS: Final = 32
_IPV6_BITS: Final = 128
# Decisions are remembered per principal and host, so that few ranges and addresses are asked for again and again.
_REMEMBERED: Final = 4096


class HostRange(NamedTuple):
    """Addresses from ``first`` to ``last``, both inclusive, as numbers of ``bits`` bits."""

    bits: int
    first: int
    last: int


def is_range(host: str) -> bool:
    """Whether the host of an ACL means a range; whether it is a valid one ``parse_range`` says."""
    return "/" in host


@lru_cache(_REMEMBERED)
def parse_range(text: str) -> HostRange:
    """The addresses of a range, whose own address may lie anywhere in it; ValueError says what is wrong with it."""
    bits = _IPV6_BITS if ":" in text else _IPV4_BITS
    address, prefix = _ipv6_range(text) if bits == _IPV6_BITS else _ipv4_range(text)
    mask = (1 << (bits - prefix)) - 1
    return HostRange(bits, address & ~mask, address | mask)


@lru_cache(_REMEMBERED)
def is_in_range(host: str, text: str) -> bool:
    """Whether the address ``host``, in Java's form, lies in the range; never in what is no valid range."""
    if not is_range(text):
        return False
    try:
        found = parse_range(text)
        # Java tells a link-local address with the interface that it came by.
        address = _ipv6_address(host.partition("%")[0]) if found.bits == _IPV6_BITS else _ipv4_address(host)
    except ValueError:
        return False
    return found.first <= address <= found.last and (address != 0 or found.bits == _IPV6_BITS)


def _ipv4_range(text: str) -> tuple[int, int]:
    match = _IPV4_RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    address = _number(match.groups()[:4])
    prefix = int(match[5])
    if prefix > _IPV4_BITS:
        raise ValueError(f"Value [{prefix}] not in range [0,{_IPV4_BITS}]")
    return address, prefix


def _ipv4_address(text: str) -> int:
    match = _IPV4_ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    return _number(match.groups())


def _number(octets: tuple[str, ...]) -> int:
    number = 0
    for octet in octets:
        value = int(octet)
        if value > 255:
            raise ValueError(f"Value [{value}] not in range [0,255]")
        number = number << 8 | value
    return number


def _ipv6_range(text: str) -> tuple[int, int]:
    address, slash, prefix = text.partition("/")
    if not slash:
        raise ValueError(f"Could not parse [{text}] - missing prefix length")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if int(prefix) > _IPV6_BITS:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
    return _ipv6_address(address), int(prefix)


def _ipv6_address(text: str) -> int:
    if "%" in text:
        raise ValueError(f"Could not parse [{text}]")
    try:
        address = IPv6Address(text)
    except ValueError:
        raise ValueError(f"Could not parse [{text}]") from None
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{text}] - not an IPv6 address")
    return int(address)
