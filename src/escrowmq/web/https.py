"""The TLS context of the HTTP process. The broker has checked the files at its start and before each reload."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Final

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_log = logging.getLogger("escrowmq.http")


def https_context(tls: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context for `certificate`, `key` and `min_version`. Clients need no certificate. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls["min_version"]]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(tls["certificate"], tls["key"])
    return context


def load_certificate(context: ssl.SSLContext, tls: Mapping[str, str]) -> None:
    """Use the present content of the files for new connections. If that fails, the former certificate stays."""
    try:
        context.load_cert_chain(tls["certificate"], tls["key"])
    except OSError as error:
        _log.error("the certificate was not read again, because it has a fault: %s", error)
