"""TLS: the server's context from the configuration, and whom a client's certificate names."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Mapping
from typing import Any, Final

from escrowmq.config import TlsSection

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(tls: TlsSection) -> ssl.SSLContext:
    """The context of the TLS listener. Raises OSError that names the file which is missing or no certificate."""
    assert tls.certificate is not None
    assert tls.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    for path in (tls.certificate, tls.key, tls.ca):
        if path is not None:
            path.read_bytes()  # names the file, which the ssl module's errors do not
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        text = f"not a certificate with its key ({_reason(error)})"
        raise OSError(errno.EINVAL, text, str(tls.certificate)) from error
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except ssl.SSLError as error:
            raise OSError(errno.EINVAL, f"no certificates of authorities ({_reason(error)})", str(tls.ca)) from error
    context.verify_mode = _VERIFY[tls.verify_client]
    return context


def certificate_user(certificate: Mapping[str, Any] | None) -> str | None:
    """The user that a verified certificate (as of `SSLSocket.getpeercert`) names: its CN, else the first name in its
    SAN. None without a certificate, or when it names nobody.
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
