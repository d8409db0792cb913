"""TLS: the context of the server, and the user that a client certificate names."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from escrowmq.config.errors import ConfigError
from escrowmq.config.security import TlsSection

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_EXPECTED: Final = {
    "certificate": "a certificate chain in PEM",
    "key": "a private key in PEM without a passphrase",
    "ca": "certificates of authorities in PEM",
}
_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(tls: TlsSection) -> ssl.SSLContext:
    """Return the TLS listener's context. Raises ConfigError with the setting, the expected content, and the file."""
    assert tls.certificate is not None
    assert tls.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Clients of gRPC insist that the server selects HTTP/2. Others offer nothing of this list, and go on without.
    context.set_alpn_protocols(["h2"])
    for name, path in (("certificate", tls.certificate), ("key", tls.key), ("ca", tls.ca)):
        if path is not None:
            try:
                path.read_bytes()  # errors of the ssl module do not name the file
            except OSError as error:
                raise _unusable(name, path, error.strerror or str(error)) from error
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        text = f"not a certificate with its key {tls.key} ({_reason(error)})"
        raise _unusable("certificate", tls.certificate, text) from error
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except ssl.SSLError as error:
            raise _unusable("ca", tls.ca, f"no certificates of authorities ({_reason(error)})") from error
    context.verify_mode = _VERIFY[tls.verify_client]
    return context


def _unusable(name: str, path: Path, why: str) -> ConfigError:
    return ConfigError(f"tls.{name}: expected {_EXPECTED[name]}; {path}: {why}")


def certificate_user(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the user that a verified certificate names: its common name, else the first subject alternative name.

    `certificate` is in the form of `SSLSocket.getpeercert`. Returns None without a certificate or a name.
    """
    if not certificate:
        return None
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName" and value:
                return str(value)
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "email", "URI"} and value:
            return str(value)
    return None


def _no_passphrase() -> str:
    raise ValueError("the key is protected by a passphrase")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)
