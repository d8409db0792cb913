"""Keys and tokens of NATS: an operator, an account that may use JetStream, and the credentials of a user."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KINDS: Final = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED: Final = 18 << 3


class Key:
    """A key pair. The texts are those of nkeys: base32 of a prefix, the key, and a checksum."""

    def __init__(self, kind: str) -> None:
        self._kind = _KINDS[kind]
        self._secret = Ed25519PrivateKey.generate()

    @classmethod
    def from_seed(cls, seed: bytes) -> Key:
        """Read a user's key."""
        key = cls("user")
        key._secret = Ed25519PrivateKey.from_private_bytes(base64.b32decode(_padded(bytes(seed), 8))[2:34])
        return key

    @property
    def public(self) -> str:
        return _text(bytes([self._kind]) + self._secret.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        prefix = bytes([_SEED | self._kind >> 5, (self._kind & 31) << 3])
        return _text(prefix + self._secret.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return self._secret.sign(data)

    def token(self, subject: Key, kind: str, **claims: Any) -> str:
        """Return a token in which the owner of this key says something of another key."""
        body: dict[str, Any] = {
            "iss": self.public,
            "sub": subject.public,
            "name": kind,
            "iat": int(time.time()),
            "nats": {"type": kind, "version": 2, **claims},
        }
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
        signed = ".".join(_part(each) for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return f"{signed}.{_web(self.sign(signed.encode()))}"


def settings_and_credentials() -> tuple[str, str]:
    """Return lines for a server's configuration, and the content of a user's file."""
    operator, system, account, user = Key("operator"), Key("account"), Key("account"), Key("user")
    everything = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    preload = {
        system.public: operator.token(system, "account", limits=everything),
        account.public: operator.token(account, "account", limits=everything | storage),
    }
    tokens = ", ".join(f"{name}: {token}" for name, token in preload.items())
    settings = (
        f"operator: {operator.token(operator, 'operator')}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {tokens} }}\n"
    )
    token = account.token(user, "user", pub={}, sub={}, subs=-1, data=-1, payload=-1)
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return settings, credentials


def _text(data: bytes) -> str:
    checksum = 0
    for byte in data:
        checksum ^= byte << 8
        for _ in range(8):
            checksum = (checksum << 1 ^ 0x1021 if checksum & 0x8000 else checksum << 1) & 0xFFFF
    return base64.b32encode(data + checksum.to_bytes(2, "little")).decode().rstrip("=")


def _part(content: dict[str, Any]) -> str:
    return _web(json.dumps(content).encode())


def _web(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _padded(data: bytes, to: int) -> bytes:
    return data + b"=" * (-len(data) % to)
