"""The settings of logins: certificates, SASL mechanisms and bearer tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from escrowmq.config.values import (
    Duration,
    File,
    Mechanism,
    Secret,
    Section,
    TokenAlgorithm,
    some_algorithm,
    some_mechanism,
)


class TlsSection(Section):
    """The certificates for `listen.tls_address`, and for HTTP with `http.tls`."""

    certificate: File | None = Field(default=None, description="The server's certificate chain in PEM format.")
    key: File | None = Field(
        default=None, description="The certificate's private key in PEM format, without a passphrase."
    )
    ca: File | None = Field(
        default=None, description="The authorities for checking client certificates, in PEM format."
    )
    verify_client: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether clients present a certificate. `EXTERNAL` needs one and takes the user name from it.",
    )
    min_version: Literal["1.2", "1.3"] = Field(default="1.2", description="The oldest supported version of TLS.")


class SecuritySection(Section):
    """How clients authenticate, and the user and virtual host of the first start."""

    mechanisms: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(some_mechanism)] = Field(
        default=("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        description="The SASL mechanisms to offer, in this order. `SCRAM-SHA-256` and `SCRAM-SHA-512` are offered as "
        "soon as every user with a password has keys for them, which are stored with new passwords and at logins with "
        "`PLAIN`. Without these mechanisms, no such keys are stored.",
    )
    scram_iterations: int = Field(
        default=10_000,
        ge=4096,
        le=1_000_000,
        description="The number of iterations for the keys of SCRAM. Clients compute them at each login, the broker "
        "for each new password and, after a change of this number, at a user's next login with `PLAIN`.",
    )
    anonymous_user: str = Field(
        default="",
        description="The existing user as which clients without credentials log in, if `security.mechanisms` has "
        "`ANONYMOUS`. Without it, such logins are refused.",
    )
    websocket_origins: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        description="The origins of web pages that may connect by WebSocket, such as `https://example.com`; `*` "
        "permits all of them. Clients that are no browsers send no origin and need no permission.",
    )
    guest_loopback_only: bool = Field(
        default=True, description="Whether the user `guest` may connect only from this machine."
    )
    default_user: str = Field(default="guest", min_length=1, description="The user to create at the first start.")
    default_password: Secret = Field(default=SecretStr("guest"), description="The password of that user.")
    default_vhost: str = Field(default="/", min_length=1, description="The virtual host to create at the first start.")


class TokensSection(Section):
    """Logins by bearer tokens (JWT) of an authorization server: see [the guide](guides/tokens.md)."""

    issuer: str = Field(
        default="",
        description="The claim `iss` of every token. By default, no tokens are accepted. It needs `pip install "
        "'escrowmq[tokens]'`.",
    )
    audience: str = Field(
        default="", description="The name of this broker among the claims `aud` of every token. It is required."
    )
    keys_file: File | None = Field(
        default=None, description="A file with the issuer's public keys, a key set in JSON (RFC 7517)."
    )
    keys_url: str = Field(
        default="",
        description="The address of the same, in place of a file. It must begin with `https:`, except on this machine.",
    )
    ca: File | None = Field(
        default=None,
        description="The authorities for the certificate at `tokens.keys_url`, in PEM format; by default, those of the "
        "system.",
    )
    refresh_seconds: Duration = Field(
        default=300.0,
        ge=1,
        description="The time after which the keys are read again. They are also read again when a token names an "
        "unknown key, at most once in 10 seconds.",
    )
    timeout_seconds: Duration = Field(
        default=5.0, ge=0.1, le=60, description="The time limit for the answer from `tokens.keys_url`."
    )
    algorithms: Annotated[tuple[TokenAlgorithm, ...], Field(strict=False), AfterValidator(some_algorithm)] = Field(
        default=("RS256", "ES256", "EdDSA", "Ed25519"),
        description="The accepted algorithms of signatures. Those with a shared secret are not supported.",
    )
    leeway_seconds: Duration = Field(
        default=5.0, le=300, description="How much the clocks of the issuer and of this machine may differ."
    )
    user_claim: str = Field(default="sub", min_length=1, description="The claim that has the name of the user.")
    scope_claim: str = Field(
        default="scope",
        min_length=1,
        description="The claim that has the scopes, as a list or as a text with spaces between them.",
    )
    scope_prefix: str | None = Field(
        default=None,
        description="The beginning of scopes that concern this broker. By default, it is `tokens.audience` and a dot. "
        "Other scopes are ignored.",
    )
