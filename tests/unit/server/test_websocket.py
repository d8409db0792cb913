"""WebSockets: the upgrade, frames in both directions, and the end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from escrowmq.server.websocket import WebSocket
from tests.unit.server.benches import FakeEndpoint, on_loop, until
from tests.unit.server.scenes import HEADER, Scene, receive

wsproto: Any = pytest.importorskip("wsproto")
events: Any = pytest.importorskip("wsproto.events")


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


class Browser:
    """The client's side of a WebSocket."""

    def __init__(
        self, *, subprotocols: tuple[str, ...] = ("binary", "amqp"), origin: str = "", host: str = "h"
    ) -> None:
        self._connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        headers = [(b"origin", origin.encode())] if origin else []
        self.request: bytes = self._connection.send(
            events.Request(host=host, target="/", subprotocols=list(subprotocols), extra_headers=headers)
        )

    def says(self, event: Any) -> bytes:
        return cast("bytes", self._connection.send(event))

    def hears(self, data: bytes) -> list[Any]:
        self._connection.receive_data(data)
        return list(self._connection.events())


def opened(browser: Browser) -> WebSocket:
    websocket = WebSocket(())
    assert websocket.receive(browser.request) == b""
    (accepted,) = browser.hears(websocket.answers())
    assert accepted.subprotocol == "amqp"
    assert not accepted.extensions
    assert websocket.is_open
    return websocket


def test_bytes_go_both_ways() -> None:
    browser = Browser()
    websocket = opened(browser)
    assert websocket.receive(browser.says(events.BytesMessage(b"hello"))) == b"hello"
    (message,) = browser.hears(websocket.wrap([b"wo", memoryview(b"rld")]))
    assert bytes(message.data) == b"world"


def test_everything_may_arrive_byte_by_byte() -> None:
    browser, websocket = Browser(), WebSocket(())
    for i in range(len(browser.request)):
        assert websocket.receive(browser.request[i : i + 1]) == b""
    browser.hears(websocket.answers())
    frame = browser.says(events.BytesMessage(b"x" * 300))
    assert b"".join(websocket.receive(frame[i : i + 1]) for i in range(len(frame))) == b"x" * 300
    assert not websocket.ended


def test_the_content_of_a_large_frame_is_passed_on_as_it_arrives() -> None:
    browser = Browser()
    websocket = opened(browser)
    frame = browser.says(events.BytesMessage(bytes(1 << 20)))
    assert len(websocket.receive(frame[:70_000])) > 69_000


def test_pings_are_answered() -> None:
    browser = Browser()
    websocket = opened(browser)
    assert websocket.receive(browser.says(events.Ping(b"x"))) == b""
    (pong,) = browser.hears(websocket.answers())
    assert (type(pong), bytes(pong.payload)) == (events.Pong, b"x")


@pytest.mark.parametrize(
    ("origins", "origin", "accepted"),
    [
        ((), "", True),
        ((), "https://evil.example", False),
        (("https://good.example",), "https://good.example", True),
        (("https://good.example",), "https://evil.example", False),
        (("*",), "null", True),
    ],
)
def test_web_pages_need_permission(origins: tuple[str, ...], origin: str, accepted: bool) -> None:
    browser, websocket = Browser(origin=origin), WebSocket(origins)
    websocket.receive(browser.request)
    (answer,) = browser.hears(websocket.answers())[:1]
    assert (type(answer) is events.AcceptConnection) == accepted
    assert websocket.ended != accepted
    if not accepted:
        assert answer.status_code == 403
        assert "security.websocket_origins" in websocket.refusal


@pytest.mark.parametrize(
    ("host", "origin", "tls", "accepted"),
    [
        ("127.0.0.1:5672", "http://127.0.0.1:5672", False, True),
        ("[::1]:5672", "http://[::1]:5672", False, True),
        ("[::1]", "http://[::1]", False, True),
        ("localhost:5672", "http://localhost:5672", False, True),
        ("localhost:5672", "http://localhost:8080", False, False),
        ("broker.example:5672", "http://broker.example:5672", False, False),
        ("broker.example:5671", "https://broker.example:5671", True, True),
        ("broker.example:5671", "https://evil.example:5671", True, False),
    ],
)
def test_the_brokers_own_address_is_no_web_page(host: str, origin: str, tls: bool, accepted: bool) -> None:
    browser, websocket = Browser(origin=origin, host=host), WebSocket((), tls=tls)
    websocket.receive(browser.request)
    assert websocket.ended != accepted


def test_the_subprotocol_is_needed() -> None:
    browser, websocket = Browser(subprotocols=("mqtt",)), WebSocket(())
    websocket.receive(browser.request)
    assert browser.hears(websocket.answers())[0].status_code == 400
    assert websocket.ended


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"GET nonsense\r\n\r\n", b"GET /" + b"x" * 100_000]
)
def test_other_requests_and_large_ones_are_refused(request_: bytes) -> None:
    websocket = WebSocket(())
    assert websocket.receive(request_) == b""
    assert websocket.ended
    assert websocket.refusal
    assert websocket.answers().startswith(b"HTTP/1.1 400 ")
    assert websocket.close() == b""


def test_text_frames_and_unmasked_frames_end_the_websocket() -> None:
    browser = Browser()
    websocket = opened(browser)
    assert websocket.receive(browser.says(events.TextMessage("hello"))) == b""
    (close,) = browser.hears(websocket.answers())
    assert (close.code, websocket.ended) == (1003, True)
    websocket = opened(Browser())
    websocket.receive(b"\x82\x01x")
    assert websocket.ended


@pytest.mark.parametrize(
    "last", [b"\x81\x80\0\0\0\0", b"\x82\x01x", b"\x88\x80\0\0\0\0"], ids=["text", "unmasked", "close"]
)
def test_bytes_before_the_end_are_passed_on_and_their_answer_is_dropped(last: bytes) -> None:
    browser = Browser()
    websocket = opened(browser)
    assert websocket.receive(browser.says(events.BytesMessage(b"hello")) + last) == b"hello"
    assert websocket.ended
    assert websocket.wrap([b"answer"]) == b""
    assert websocket.receive(browser.says(events.Ping(b"x"))) == b""


def test_a_close_is_answered_once() -> None:
    browser = Browser()
    websocket = opened(browser)
    data = browser.says(events.BytesMessage(b"bye")) + browser.says(events.CloseConnection(1000))
    assert websocket.receive(data) == b"bye"
    assert websocket.ended
    assert type(browser.hears(websocket.answers())[0]) is events.CloseConnection
    assert websocket.close() == b""


# -- on a connection


def test_an_endpoint_is_behind_a_websocket() -> None:
    async def test() -> None:
        scene, browser = Scene(), Browser()
        connection, transport, _ = scene.connect(greeting=browser.request)
        assert connection.endpoint is None
        browser.hears(transport.text())
        receive(connection, browser.says(events.BytesMessage(HEADER + b"more")))
        endpoint = cast("FakeEndpoint", connection.endpoint)
        assert endpoint.heard == [HEADER + b"more"]
        transport.sent = b""
        scene.stir(endpoint, b"answer")
        await until(lambda: transport.sent)
        assert bytes(browser.hears(transport.text())[0].data) == b"answer"
        transport.sent = b""
        endpoint.finished = True
        scene.stir(endpoint, b"end")
        await until(lambda: transport.closed)
        assert [type(each) for each in browser.hears(transport.text())] == [events.BytesMessage, events.CloseConnection]
        await scene.bench.close()

    on_loop(test)


def test_the_clients_close_ends_the_connection_behind_its_last_bytes() -> None:
    async def test() -> None:
        scene, browser = Scene(), Browser()
        connection, transport, _ = scene.connect(greeting=browser.request)
        browser.hears(transport.text())
        receive(connection, browser.says(events.BytesMessage(HEADER)) + browser.says(events.CloseConnection(1000)))
        assert cast("FakeEndpoint", connection.endpoint).heard == [HEADER]
        assert transport.closed
        await scene.bench.close()

    on_loop(test)


def test_a_refused_upgrade_closes_the_connection() -> None:
    async def test() -> None:
        scene = Scene()
        _, transport, _ = scene.connect(greeting=Browser(origin="https://evil.example").request)
        assert transport.text().startswith(b"HTTP/1.1 403")
        assert transport.closed
        await scene.bench.close()

    on_loop(test)


def test_an_unknown_protocol_within_a_websocket_is_refused() -> None:
    async def test() -> None:
        scene, browser = Scene(), Browser()
        connection, transport, _ = scene.connect(greeting=browser.request)
        browser.hears(transport.text())
        transport.sent = b""
        receive(connection, browser.says(events.BytesMessage(b"NOT AMQP")))
        assert [type(each) for each in browser.hears(transport.text())] == [events.BytesMessage, events.CloseConnection]
        assert transport.closed
        await scene.bench.close()

    on_loop(test)
