"""The TLS context of the HTTP process."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from escrowmq.web.https import https_context, load_certificate
from tests.certificates import Authority


def shown(context: ssl.SSLContext, authority: Authority) -> object:
    """Return the serial number of the certificate that a client gets."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with ours, context.wrap_socket(ours, server_side=True) as wrapped:
            wrapped.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    asking = ssl.create_default_context(cafile=str(authority.path))
    with theirs, asking.wrap_socket(theirs, server_hostname="localhost") as wrapped:
        found = wrapped.getpeercert()
    thread.join()
    assert found is not None
    return found["serialNumber"]


def files(folder: Path, authority: Authority) -> dict[str, str]:
    certificate, key = authority.issue("localhost")
    folder.mkdir(exist_ok=True)
    for path, name in ((certificate, "certificate"), (key, "key")):
        shutil.copy(path, folder / name)
    return {"certificate": str(folder / "certificate"), "key": str(folder / "key"), "min_version": "1.2"}


def test_a_renewed_certificate_is_shown_to_new_connections_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    tls = files(tmp_path / "used", authority)
    context = https_context(tls)
    first = shown(context, authority)
    files(tmp_path / "used", authority)
    assert shown(context, authority) == first
    load_certificate(context, tls)
    second = shown(context, authority)
    assert second != first
    Path(tls["certificate"]).write_text("nothing")
    load_certificate(context, tls)
    assert shown(context, authority) == second
    assert "was not read again" in caplog.text


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = https_context(files(tmp_path / "used", authority) | {"min_version": "1.3"})
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
