"""What of a certificate (X.509) is needed here: whose it is, by which other names, and until when.

Owns: reading these out of DER, and a name as Java prints it (RFC 2253).  Owns no trust: that is OpenSSL's, before.

Counterpart in Kafka: ``X500Principal.getName`` and ``SslFactory.CertificateEntries``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE, _SET, _OID, _VERSION, _UTC_TIME = 0x30, 0x31, 0x06, 0xA0, 0x17
_BMP_STRING, _UNIVERSAL_STRING, _LATIN_STRINGS = 0x1E, 0x1C, (0x14,)
# Those that RFC 2253 has short names for; of others the number is written, and the value in hex.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class CertificateError(ValueError):
    """These bytes are no certificate."""


class Certificate(NamedTuple):
    """``subject`` as RFC 2253 writes it; times are UTC."""

    subject: str
    not_before: datetime
    not_after: datetime


class _Element(NamedTuple):
    tag: int
    whole: bytes
    value: bytes


def read_certificate(der: bytes) -> Certificate:
    """The certificate; CertificateError."""
    try:
        fields = _fields(der)
        not_before, not_after = (_time(each) for each in _elements(fields[3].value))
        return Certificate(_name(fields[4].value), not_before, not_after)
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise CertificateError("a certificate that cannot be read") from error


def read_alternative_names(der: bytes) -> frozenset[bytes]:
    """The names of its extension subjectAltName, each as it stands there; CertificateError."""
    try:
        extensions = [each for field in _fields(der)[6:] if field.tag == _EXTENSIONS for each in _elements(field.value)]
        found = [
            parts[-1].value
            for extension in (each for sequence in extensions for each in _elements(sequence.value))
            if (parts := _elements(extension.value))[0].value == _ALTERNATIVE_NAMES
        ]
        return frozenset(name.whole for names in found for name in _elements(_elements(names)[0].value))
    except (IndexError, ValueError) as error:
        raise CertificateError("a certificate that cannot be read") from error


def _fields(der: bytes) -> list[_Element]:
    """Serial, algorithm, issuer, validity, subject, key, ..."""
    certificate, _ = _element(der, 0)
    fields = _elements(_elements(certificate.value)[0].value)
    return fields[1:] if fields[0].tag == _VERSION else fields


def _element(data: bytes, pos: int) -> tuple[_Element, int]:
    tag, length, start = data[pos], data[pos + 1], pos + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if end > len(data):
        raise ValueError("an element ends behind the data")
    return _Element(tag, data[pos:end], data[start:end]), end


def _elements(data: bytes) -> list[_Element]:
    elements = []
    pos = 0
    while pos < len(data):
        element, pos = _element(data, pos)
        elements.append(element)
    return elements


def _time(element: _Element) -> datetime:
    text = element.value.decode("ascii").rstrip("Z")
    if element.tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _name(data: bytes) -> str:
    """The last part of the name first."""
    parts = ["+".join(_attribute(each.value) for each in _elements(part.value)) for part in _elements(data)]
    return ",".join(reversed(parts))


def _attribute(data: bytes) -> str:
    oid, value = _elements(data)
    number = _dotted(oid.value)
    keyword = _KEYWORDS.get(number)
    return f"{number}=#{value.whole.hex()}" if keyword is None else f"{keyword}={_escaped(_text(value))}"


def _dotted(data: bytes) -> str:
    if data[-1] & 0x80:
        raise ValueError("a number that does not end")
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    # The first two are one.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _text(element: _Element) -> str:
    if element.tag == _BMP_STRING:
        return element.value.decode("utf-16-be")
    if element.tag == _UNIVERSAL_STRING:
        return element.value.decode("utf-32-be")
    return element.value.decode("latin-1" if element.tag in _LATIN_STRINGS else "utf-8")


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return escaped
