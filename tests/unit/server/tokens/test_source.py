"""Reading keys from a file and from a URL."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from escrowmq.server.tokens.keys import LONGEST, KeysFault
from escrowmq.server.tokens.source import fault_of_url, file_source, url_source
from tests.certificates import Authority
from tests.ports import reserve_port
from tests.tokens import KeyServer, key_server


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with key_server() as found:
        yield found


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    read = file_source(path)
    for content in (b"one", b"two"):
        path.write_bytes(content)
        assert read() == content


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeysFault, match="No such file or directory"):
        file_source(tmp_path / "missing")()
    (tmp_path / "large").write_bytes(b"x" * (LONGEST + 1))
    with pytest.raises(KeysFault, match=f"it is larger than {LONGEST} bytes"):
        file_source(tmp_path / "large")()


def test_a_url_is_fetched_each_time(server: KeyServer) -> None:
    read = url_source(server.url, None, 60.0)
    for content in (b"one", b"two"):
        server.body = content
        assert read() == content
    assert server.asked == 2


@pytest.mark.parametrize("status", [204, 302, 404, 500])
def test_other_answers_are_told_and_redirects_are_not_followed(server: KeyServer, status: int) -> None:
    server.status, server.headers, server.body = status, {"Location": server.url}, b""
    with pytest.raises(KeysFault, match=f"the server answered with status {status}"):
        url_source(server.url, None, 60.0)()
    assert server.asked == 1


def test_a_long_answer_is_refused(server: KeyServer) -> None:
    server.body = b"x" * (LONGEST + 100_000)
    with pytest.raises(KeysFault, match="it is larger than"):
        url_source(server.url, None, 60.0)()


def test_a_server_that_is_gone_is_told() -> None:
    class Owner:
        pass

    owner = Owner()
    with pytest.raises(KeysFault, match="refused"):
        url_source(f"http://127.0.0.1:{reserve_port(owner)}/", None, 60.0)()


class Slow(BaseHTTPRequestHandler):
    """Sends one byte after the other, until the client has gone."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        done = threading.Event()
        try:
            while not done.wait(0.01):
                self.wfile.write(b" ")
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the output of the tests free of it."""


def test_an_answer_that_drips_does_not_take_for_ever() -> None:
    server = HTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.handle_request, daemon=True)
    thread.start()
    with pytest.raises(KeysFault, match=r"the answer was not complete after 0\.2 s"):
        url_source(f"http://127.0.0.1:{server.server_port}/", None, 0.2)()
    thread.join()
    server.server_close()


def test_a_server_that_is_silent_does_not_take_for_ever() -> None:
    server = HTTPServer(("127.0.0.1", 0), Slow)  # it accepts in the kernel, and reads nothing
    with pytest.raises(KeysFault, match="timed out"):
        url_source(f"http://127.0.0.1:{server.server_port}/", None, 0.2)()
    server.server_close()


def test_the_certificate_of_the_server_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with key_server(context) as server:
        assert url_source(server.url, authority.path, 60.0)() == server.body
        with pytest.raises(KeysFault, match="CERTIFICATE_VERIFY_FAILED"):
            url_source(server.url, None, 60.0)()
        assert server.asked == 1


def test_authorities_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(KeysFault, match="No such file"):
        url_source("https://127.0.0.1/", tmp_path / "missing", 1.0)


@pytest.mark.parametrize(
    "url", ["https://idp.example.com/keys", "http://127.0.0.1:8080/k", "http://localhost/", "http://[::1]:1/"]
)
def test_keys_may_come_by_https_and_from_this_machine(url: str) -> None:
    assert fault_of_url(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "keys.json",
        "file:///etc/passwd",
        "ftp://x/",
        "http://idp.example.com/",
        "https://",
        "https://x:port/",
        "http://127.0.0.1.example.com/",
        "https://[::1/",
    ],
)
def test_keys_come_from_nowhere_else(url: str) -> None:
    assert fault_of_url(url) != ""
