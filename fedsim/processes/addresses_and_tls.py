"""Addresses and certificates of the sockets of a run."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fedsim.errors import UserError
from fedsim.numerals import parse_whole
from fedsim.quoting import MAX_SHOWN, quoted, shortened


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Read ``HOST:PORT``; a port of 0 lets the system choose."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = parse_whole(port)
    if not colon or not _is_host(host) or number is None or not 0 <= number <= 65535:
        raise UserError(f"{quoted(text)} is no address: write a host and a port, as in 127.0.0.1:8470")
    return Address(host, number)


def server_url(text: str) -> str:
    """Return the URL of a server as it was written."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and _is_host(parts.hostname or "") and parts.port != 0
        is_url = is_url and not any((parts.username, parts.password, parts.query, parts.fragment))
    except ValueError:  # a port that is no number, or brackets around what is no address
        is_url = False
    if not is_url:
        raise UserError(f"{quoted(text)} is no address of a server: write it as http://127.0.0.1:8470")
    return text


def _is_host(name: str) -> bool:
    """Say whether a text can be the name or the address of a host."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:  # a label is empty, or longer than 63 characters
        return False


def server_tls(certificate: str | Path | None, key: str | Path | None) -> ssl.SSLContext | None:
    """Return how a server encrypts; None if it does not."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UserError("a certificate and its key (tls_cert, tls_key) belong together: give both")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"{shortened(certificate, MAX_SHOWN)} and {shortened(key, MAX_SHOWN)} are no certificate "
            f"and its private key: {reason(error)}. Give the two files in PEM, the certificate with its chain"
        ) from None
    return context


def client_tls(authority: str | Path | None) -> ssl.SSLContext | None:
    """Return whom a client trusts; None for those that the system does."""
    if authority is None:
        return None
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"the certificate to trust (ca), {shortened(authority, MAX_SHOWN)}: {reason(error)}. Give that "
            "of the authority, or of the server itself, in PEM"
        ) from None


def reason(error: OSError) -> str:
    """Return what the system says of a failure."""
    return (error.strerror or str(error)).lower()
