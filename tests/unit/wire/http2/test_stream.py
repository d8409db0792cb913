"""A new stream is open, and has nothing to send."""

from __future__ import annotations

from escrowmq.wire.http2.stream import Stream, StreamState


def test_a_stream_begins_open_with_its_windows() -> None:
    stream = Stream(5, 10, 20)
    assert (stream.state, stream.send_window, stream.receive_window) == (StreamState.OPEN, 10, 20)
    assert not stream.unsent
    assert stream.call is None
