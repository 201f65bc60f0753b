"""Throw-away certificates: an authority, and what it signs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates into files of ``directory``; its own is ``ca``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key, days=1, is_authority=True)
        self.ca = directory / f"{name}.pem"
        self.ca.write_bytes(self.certificate.public_bytes(_PEM))

    def pem(
        self, name: str, *, days: int = 1, password: str | None = None, hosts: Sequence[str] = ("localhost",)
    ) -> Path:
        """A file with a key and its certificate, for CN=``name`` at 127.0.0.1 and by the names ``hosts``."""
        key, certificate = self._issued(name, days, hosts)
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        file = self._directory / f"{name}-{days}.pem"
        private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption)
        file.write_bytes(private + certificate.public_bytes(_PEM))
        return file

    def pkcs12(self, name: str, password: str) -> Path:
        """The same as a PKCS#12 store."""
        key, certificate = self._issued(name, 1)
        file = self._directory / f"{name}.p12"
        encryption = serialization.BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(b"key", key, certificate, [self.certificate], encryption)
        file.write_bytes(data)
        return file

    def _issued(
        self, name: str, days: int, hosts: Sequence[str] = ("localhost",)
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests, Inc."),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        return key, self._signed(subject, key, days, hosts)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        days: int,
        hosts: Sequence[str] = ("localhost",),
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        names = [*map(x509.DNSName, hosts), x509.IPAddress(ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
