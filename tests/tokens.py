"""An authorization server for tests: it signs tokens, and publishes its keys on 127.0.0.1."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

ISSUER = "https://idp.example.com"
AUDIENCE = "broker"
MAKERS: dict[str, Any] = {
    "RS256": lambda: RSAKey.generate_key(2048),
    "PS256": lambda: RSAKey.generate_key(2048),
    "ES256": lambda: ECKey.generate_key("P-256"),
    "EdDSA": lambda: OKPKey.generate_key("Ed25519"),
    "Ed25519": lambda: OKPKey.generate_key("Ed25519"),
}


@cache
def key_of(name: str, algorithm: str = "RS256") -> Any:
    """Return a private key, always the same for one name in this process."""
    return MAKERS[algorithm]()


def jwk(name: str, algorithm: str = "RS256", **more: Any) -> dict[str, Any]:
    """Return the public key `name` as an entry of a key set."""
    return {**key_of(name, algorithm).as_dict(private=False), "kid": name, **more}


def key_set(*names: str) -> bytes:
    return json.dumps({"keys": [jwk(name) for name in names]}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a token that is valid for an hour; a change to None leaves a claim out."""
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": int(time.time()) + 3600,
        "scope": "broker.read:*/* broker.write:*/* broker.configure:*/*",
        **changes,
    }
    return {name: value for name, value in given.items() if value is not None}


def part(document: Any) -> str:
    """Return one part of a token."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key: str = "one", algorithm: str = "RS256", header: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a token with these claims, signed by the key `key`, which its header names unless it says otherwise."""
    head = {"alg": algorithm, "kid": key, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    signed = f"{part(head)}.{part(claims(**changes))}"
    signature = jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key_of(key, algorithm))
    return f"{signed}.{part(signature)}"


class KeyServer:
    """A server of a key set. `body` is what it answers, `status` how, and `asked` how often it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.body = key_set("one")
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked += 1
                self.send_response(owner.status)
                for name, value in owner.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(owner.body)))
                self.end_headers()
                self.wfile.write(owner.body)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the output of the tests free of it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if context is not None else 'http'}://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def key_server(context: ssl.SSLContext | None = None) -> Iterator[KeyServer]:
    """Serve keys, by TLS with a `context`."""
    server = KeyServer(context)
    try:
        yield server
    finally:
        server.close()
