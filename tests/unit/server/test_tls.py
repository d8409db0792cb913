"""TLS contexts, and the user that a certificate names."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from escrowmq.config.errors import ConfigError
from escrowmq.config.security import TlsSection
from escrowmq.server.tls import certificate_user, server_context
from tests.certificates import Authority


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "O"),), (("commonName", "alice"),))}, "alice"),
        ({"subject": (), "subjectAltName": (("DNS", "bob.example"), ("DNS", "x"))}, "bob.example"),
        ({"subject": ((("commonName", ""),),), "subjectAltName": (("email", "c@example"),)}, "c@example"),
        ({"subject": ((("commonName", "alice"),),), "subjectAltName": (("DNS", "bob"),)}, "alice"),
        ({"subject": (), "subjectAltName": (("IP Address", "10.0.0.1"),)}, None),
    ],
)
def test_whom_a_certificate_names(certificate: Any, user: str | None) -> None:
    assert certificate_user(certificate) == user


@pytest.mark.parametrize(
    ("verify", "mode"),
    [("none", ssl.CERT_NONE), ("optional", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_the_context_follows_the_configuration(tmp_path: Path, verify: Any, mode: ssl.VerifyMode) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    context = server_context(
        TlsSection(certificate=certificate, key=key, ca=authority.path, verify_client=verify, min_version="1.3")
    )
    assert context.verify_mode == mode
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(("offered", "selected"), [(["h2"], "h2"), (["http/1.1"], None), ([], None)])
def test_http2_is_selected_if_the_client_offers_it(tmp_path: Path, offered: list[str], selected: str | None) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    theirs = ssl.create_default_context(cafile=str(authority.path))
    if offered:
        theirs.set_alpn_protocols(offered)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(down, up, server_hostname="localhost")
    server = server_context(TlsSection(certificate=certificate, key=key)).wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.selected_alpn_protocol() == server.selected_alpn_protocol() == selected
    assert client.version()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _, key = Authority(tmp_path).issue("localhost")
    absent = tmp_path / "absent.pem"
    with pytest.raises(ConfigError) as raised:
        server_context(TlsSection(certificate=absent, key=key))
    assert str(raised.value) == (
        f"tls.certificate: expected a certificate chain in PEM; {absent}: No such file or directory"
    )


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    with pytest.raises(ConfigError, match=r"^tls\.certificate: .*not a certificate with its key") as raised:
        server_context(TlsSection(certificate=certificate, key=key))
    assert str(certificate) in str(raised.value)


def test_a_file_without_certificates_of_authorities_is_refused(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    junk = tmp_path / "junk.pem"
    junk.write_text("nothing")
    with pytest.raises(ConfigError, match=r"^tls\.ca: .*no certificates of authorities"):
        server_context(TlsSection(certificate=certificate, key=key, ca=junk))


def test_a_key_with_a_passphrase_does_not_ask_for_it(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost", passphrase=b"x")
    with pytest.raises(ConfigError, match="passphrase"):
        server_context(TlsSection(certificate=certificate, key=key))
