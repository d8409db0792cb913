"""The parser of NATS takes any bytes in pieces of any size."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.replica.engines.nats_wire import MOST_LINE, NatsLine, NatsMessage, NatsParser, WireError, connect, publish

SUBJECTS = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="._-*"), min_size=1)


def parsed(data: bytes) -> list[NatsMessage | NatsLine]:
    return NatsParser().feed(data)


@given(st.lists(st.tuples(SUBJECTS, st.binary(), st.sampled_from(["", "503"])), max_size=5), st.data())
def test_messages_are_found_wherever_the_bytes_are_divided(
    messages: list[tuple[str, bytes, str]], data: st.DataObject
) -> None:
    stream = b"PING\r\n"
    for subject, content, status in messages:
        headers = b"NATS/1.0 %s\r\n\r\n" % status.encode() if status else b""
        sizes = b"%d %d" % (len(headers), len(headers + content)) if status else b"%d" % len(content)
        verb = b"HMSG" if status else b"MSG"
        stream += b"%s %s 1 %s\r\n%s%s\r\n" % (verb, subject.encode(), sizes, headers, content)
    parser, found, begin = NatsParser(), [], 0
    while begin < len(stream):
        end = data.draw(st.integers(begin + 1, len(stream)))
        found += parser.feed(stream[begin:end])
        begin = end
    assert found == [
        NatsLine("PING", ""),
        *(NatsMessage(subject, status, content) for subject, content, status in messages),
    ]


@given(st.lists(st.one_of(st.binary(), st.sampled_from([b"MSG a 1 2\r\n", b"HMSG a 1 9 9\r\n", b"NATS/1.0", b"\r\n"]))))
@example([b"MSG a 1 -1\r\n"])
@example([b"HMSG a 1 5 4\r\n"])
@example([b"\xff\xfe\r\n"])
def test_any_bytes_are_accepted_or_refused_with_one_error(pieces: list[bytes]) -> None:
    parser = NatsParser()
    with suppress(WireError):
        for piece in pieces:
            parser.feed(piece)


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n",
        b"x" * (MOST_LINE + 1),
        b"MSG a 1 999999999\r\n",
        b"MSG a 1 1\r\nxyz",
        b"HMSG a 1 4 4\r\nHTTP\r\n",
        b"MSG a b c d 1\r\n",
        b"HMSG a 1 1\r\n",
        b"MSG a 1 1_0\r\n",
    ],
)
def test_bytes_of_another_protocol_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        parsed(data)


def test_lines_have_a_verb_and_a_text() -> None:
    assert parsed(b"INFO {} \r\n+OK\r\n-ERR 'Stale Connection'\r\npong\r\nPIN") == [
        NatsLine("INFO", "{}"),
        NatsLine("+OK", ""),
        NatsLine("-ERR", "'Stale Connection'"),
        NatsLine("PONG", ""),
    ]


def test_a_message_may_have_a_subject_for_an_answer() -> None:
    assert parsed(b"MSG a 1 reply 1\r\nx\r\n") == [NatsMessage("a", "", b"x")]


def test_headers_need_no_status() -> None:
    assert parsed(b"HMSG a 1 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n") == [NatsMessage("a", "", b"x")]


def test_entries_are_published_with_their_sizes() -> None:
    assert publish("s", [("r.1", b"ab"), ("r.2", b"")]) == b"PUB s r.1 2\r\nab\r\nPUB s r.2 0\r\n\r\n"
    assert connect({"a": 1}) == b'CONNECT {"a": 1}\r\n'
