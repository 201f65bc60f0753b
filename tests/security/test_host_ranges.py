"""Ranges of addresses in ACLs (KIP-1276): which are valid, and what lies in them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.security.host_ranges import is_in_range, parse_range


@pytest.mark.parametrize(
    ("host", "text", "inside"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.99.0.1/8", True),  # bits of the host mean nothing
        ("11.0.0.0", "10.0.0.0/8", False),
        ("10.0.0.0", "10.0.0.0/8", True),
        ("10.255.255.255", "10.0.0.0/8", True),
        ("192.168.1.7", "192.168.1.7/32", True),
        ("192.168.1.8", "192.168.1.7/32", False),
        ("192.168.1.6", "192.168.1.7/31", True),
        ("8.8.8.8", "0.0.0.0/0", True),
        ("0.0.0.0", "0.0.0.0/0", False),  # as in Kafka
        ("10.1.2.3", "010.000.0.0/8", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::/32", True),
        ("2001:db9:0:0:0:0:0:1", "2001:db8::/32", False),
        ("0:0:0:0:0:0:0:0", "::/0", True),
        ("10.1.2.3", "::/0", False),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::/64", True),
        ("2001:db8:0:0:0:0:0:1", "0.0.0.0/0", False),
        ("10.1.2.3", "10.1.2.3", False),  # no range
        ("10.1.2.3", "10.0.0.0/33", False),
        ("10.1.2.3", "*/8", False),
        ("localhost", "10.0.0.0/8", False),
    ],
)
def test_address_lies_in_a_range_or_does_not(host: str, text: str, inside: bool) -> None:
    assert is_in_range(host, text) is inside


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/33", "10.0.0/8", "10.0.0.0.0/8", "10.0.0.0/", "/8", "/", "10.0.0.0/-1", "10.0.0.0/8/8", "256.0.0.0/8",
        "10.0.0.0/255.0.0.0", "10.0.0.0/8 ", " 10.0.0.0/8", "10.0.0.0/8\n", "\u0661\u0660.0.0.0/8", "*/8", "host/8",
        "::/129", "::/", "::", ":/8", "2001:db8::/x", "2001:db8::/+8", "::ffff:10.0.0.1/104", "fe80::%eth0/64",
        "1:2:3:4:5:6:7:8:9/8", "2001:db8::/" + "9" * 5000,
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_range_is_refused_and_contains_nobody(text: str) -> None:
    with pytest.raises(ValueError, match=r"parse|range"):
        parse_range(text)
    assert not is_in_range("10.0.0.1", text)


@given(st.integers(0, 2**32 - 1), st.integers(0, 32), st.integers(1, 2**32 - 1))
def test_ranges_of_ipv4_are_those_of_the_standard_library(network: int, prefix: int, address: int) -> None:
    text = f"{IPv4Address(network)}/{prefix}"
    assert is_in_range(str(IPv4Address(address)), text) is (IPv4Address(address) in ip_network(text, strict=False))


@given(st.integers(2**64, 2**128 - 1), st.integers(0, 128), st.integers(2**64, 2**128 - 1))
def test_ranges_of_ipv6_are_those_of_the_standard_library(network: int, prefix: int, address: int) -> None:
    text = f"{IPv6Address(network)}/{prefix}"
    assert is_in_range(str(IPv6Address(address)), text) is (IPv6Address(address) in ip_network(text, strict=False))
