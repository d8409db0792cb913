"""One line for each event."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from hpack import Decoder, Encoder

from escrowmq.logs import configure


def fault() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("escrowmq.x").exception("failed")


def test_headers_of_clients_are_not_logged() -> None:
    stream = io.StringIO()
    configure("debug", "text", stream)
    Decoder().decode(Encoder().encode([("authorization", "MQv2-HMAC-SHA1 Credential=alice")]))
    assert stream.getvalue() == ""


@pytest.mark.parametrize("library", ["asyncio", "hpack", "uvicorn.error"])
def test_libraries_log_warnings_unless_only_errors_are_wanted(library: str) -> None:
    stream = io.StringIO()
    configure("debug", "text", stream)
    logging.getLogger(library).info("a detail")
    logging.getLogger(library).warning("a fault")
    assert stream.getvalue().endswith(f" warning {library}: a fault\n")
    assert "a detail" not in stream.getvalue()
    configure("error", "text", errors := io.StringIO())
    logging.getLogger(library).warning("a fault")
    assert errors.getvalue() == ""


def test_text_is_one_line_whatever_a_peer_sends() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    logging.getLogger("escrowmq.auth").info("user %s", "a\nb\x1b[0mé")
    logging.getLogger("escrowmq.auth").debug("not worth a line")
    time, _, rest = stream.getvalue().partition(" ")
    assert time.endswith("Z")
    assert rest == "info auth: user a\\nb\\x1b[0mé\n"


def test_json_is_one_object_on_each_line() -> None:
    stream = io.StringIO()
    configure("debug", "json", stream)
    logging.getLogger("escrowmq.auth").warning("user %s", "a\nb")
    fault()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "user a\nb"
    assert (first["level"], first["logger"]) == ("warning", "escrowmq.auth")
    assert "ValueError: broken" in second["exception"]


def test_faults_have_their_traceback() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    fault()
    assert "error x: failed\nTraceback" in stream.getvalue()


def test_to_configure_twice_says_nothing_twice() -> None:
    stream = io.StringIO()
    configure("info", "text", io.StringIO())
    configure("info", "text", stream)
    logging.getLogger("escrowmq").info("once")
    assert stream.getvalue().count("once") == 1


def test_json_has_the_values_of_an_event_under_keys_of_their_own() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    fields = {"peer": Path("a"), "user": None, "seconds": 1.5, "message": "of the event"}
    logging.getLogger("escrowmq.x").info("closed %s", "a", extra={"fields": fields})
    told = json.loads(stream.getvalue())
    assert (told["peer"], told["seconds"], told["message"]) == ("a", 1.5, "closed a")
    assert "user" not in told


def test_text_does_not_repeat_the_values_of_an_event() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    logging.getLogger("escrowmq.x").info("closed", extra={"fields": {"peer": "a"}})
    assert stream.getvalue().endswith(" info x: closed\n")


def test_json_has_an_escape_for_half_of_a_surrogate_pair() -> None:
    stream = io.TextIOWrapper(raw := io.BytesIO(), "utf-8", write_through=True)
    configure("info", "json", stream)
    logging.getLogger("escrowmq.x").info("user %s", "\ud800é", extra={"fields": {"user": "\ud800é"}})
    told = json.loads(raw.getvalue())
    assert (told["message"], told["user"]) == ("user \ud800é", "\ud800é")
