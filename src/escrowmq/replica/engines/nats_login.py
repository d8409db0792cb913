"""How a client of NATS shows who it is: by user and password, a token or a file with credentials, and over TLS."""

from __future__ import annotations

import base64
import ipaddress
import re
import ssl
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from escrowmq.replica.engines.address import NATS_TLS, EngineAddress
from escrowmq.urls import TLS_PARAMETERS, tls_context

_CREDENTIALS: Final = re.compile(
    rb"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END NATS USER JWT-+.*?-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END", re.DOTALL
)


def client_options(address: EngineAddress) -> dict[str, Any]:
    """Return the settings of `nats-py` for login and TLS. Raises ValueError with one line if a file cannot be used."""
    options: dict[str, Any] = {"user_credentials": address.options.get("credentials")}
    if address.user is not None and address.password is not None:
        options |= {"user": address.user, "password": address.password}
    elif address.user is not None:
        options["token"] = address.user
    tls = context(address)
    return options | {"tls": tls} if tls is not None else options


def context(address: EngineAddress) -> ssl.SSLContext | None:
    """Return how to encrypt, or None. Raises ValueError with one line if a file cannot be used."""
    if address.scheme != NATS_TLS:
        return None
    return tls_context({name: value for name, value in address.options.items() if name in TLS_PARAMETERS})


def certified_name(address: EngineAddress, host: str) -> str:
    """Return the name that the certificate of the server at `host` must have.

    Servers tell each other's IP addresses, which their certificates often lack. As in other clients of NATS, the
    certificate may then have a name of the URL.
    """
    name = _name(host)
    if host in address.hosts or not _is_ip(name):
        return name
    return next((each for each in map(_name, address.hosts) if not _is_ip(each)), name)


def _name(host: str) -> str:
    return host.rpartition(":")[0].strip("[]")


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_options(address: EngineAddress) -> None:
    """Raise ValueError with one line if the parameters of the URL cannot be used. NATS need not be there."""
    context(address)
    if "credentials" in address.options:
        if find_spec("nkeys") is None:
            raise ValueError("credentials need a further library: pip install 'nats-py[nkeys]'")
        _credentials(address.options["credentials"])


def connect_options(address: EngineAddress, nonce: str) -> dict[str, str]:
    """Return the fields of CONNECT for the login. A server that knows keys has sent a nonce, to be signed.

    Raises ValueError with one line if the credentials cannot be used.
    """
    if nonce and "credentials" in address.options:
        jwt, seed = _credentials(address.options["credentials"])
        try:
            signature = import_module("nkeys").from_seed(bytearray(seed)).sign(nonce.encode())
        except Exception as error:  # noqa: BLE001 - those of the library
            raise ValueError(f"credentials: {type(error).__name__} for the key {error}".rstrip()) from None
        return {"jwt": jwt.decode(), "sig": base64.b64encode(signature).decode()}
    if address.user is None:
        return {}
    if address.password is None:
        return {"auth_token": address.user}
    return {"user": address.user, "pass": address.password}


def _credentials(file: str) -> tuple[bytes, bytes]:
    """Return token and seed of a file with credentials. Raises ValueError."""
    try:
        found = _CREDENTIALS.search(Path(file).read_bytes())
    except OSError as error:
        raise ValueError(f"credentials: {error}") from None
    if found is None:
        raise ValueError(f"credentials: {file} has no token and key of a user of NATS")
    return found[1], found[2]
