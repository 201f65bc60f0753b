"""What is read of a certificate: its subject's parts by the numbers that they have."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from pybroker.security.certificates import CertificateError, read_alternative_names, read_certificate
from tests.certificates import Authority

CN = bytes((0x06, 0x03, 0x55, 0x04, 0x03))


def certificate(number: str, text: str) -> bytes:
    """One whose subject is a part of this number."""
    name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier(number), text)])
    key, now = Ed25519PrivateKey.from_private_bytes(bytes(32)), datetime(2026, 1, 1, tzinfo=UTC)
    return (
        x509.CertificateBuilder(x509.Name([]), name, key.public_key(), 1, now, now.replace(year=2027))
        .sign(key, None)
        .public_bytes(Encoding.DER)
    )


@pytest.mark.parametrize("number", ["2.999.3", "2.48.1", "1.3.6.1.4.1.99999.300", "0.39.16384"])
def test_parts_without_a_short_name_are_written_by_their_numbers(number: str) -> None:
    assert read_certificate(certificate(number, "x")).subject == f"{number}=#0c0178"


def test_a_number_that_does_not_end_is_not_taken_for_another_one() -> None:
    der = certificate("2.5.4.3", "alice")
    assert read_certificate(der).subject == "CN=alice"
    assert der.count(CN) == 1
    # The same bytes, of which the last one says that more of the number follows.
    endless = der.replace(CN + b"\x0c\x05alice", CN[:1] + b"\x04" + CN[2:] + b"\x83" + b"\x0c\x04lice")
    assert len(endless) == len(der)
    with pytest.raises(CertificateError):
        read_certificate(endless)


def test_alternative_names_are_read_where_there_are_any(tmp_path: Path) -> None:
    def names_of(*hosts: str) -> frozenset[bytes]:
        pem = Authority(tmp_path).pem("broker", hosts=hosts).read_text().partition("-----END PRIVATE KEY-----\n")[2]
        return read_alternative_names(ssl.PEM_cert_to_DER_cert(pem))

    assert names_of("a.example") == {b"\x82\x09a.example", b"\x87\x04\x7f\x00\x00\x01"}
    assert names_of("a.example", "b.example") - names_of("a.example") == {b"\x82\x09b.example"}
    assert read_alternative_names(certificate("2.5.4.3", "alice")) == frozenset()
    with pytest.raises(CertificateError):
        read_alternative_names(b"0\x03")
