"""Clients that disconnect while they are not read."""

from __future__ import annotations

import socket
import struct
import sys
from typing import cast

import pytest

from escrowmq.server.connection import ClientConnection, Pause
from escrowmq.server.hangup import hung_up
from tests.broker import wait_until


class Held:
    """The part of a connection that matters here."""

    def __init__(self, sock: socket.socket | None, paused: Pause) -> None:
        self.descriptor = -1 if sock is None else sock.fileno()
        self.paused = paused


def held(sock: socket.socket | None, paused: Pause) -> ClientConnection:
    return cast("ClientConnection", Held(sock, paused))


@pytest.mark.skipif(sys.platform != "linux", reason="POLLRDHUP is Linux's")
@pytest.mark.parametrize("reset", [False, True])
def test_a_closed_or_reset_connection_is_found_although_bytes_are_unread(reset: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = []
        for _ in range(4):
            client = socket.create_connection(server.getsockname())
            pairs.append((client, server.accept()[0]))
        for client, _ in pairs:
            client.sendall(b"unread")
        alarm, there, owing, journal = (
            held(pair[1], pause)
            for pair, pause in zip(pairs, (Pause.ALARM, Pause.ALARM, Pause.UNSENT, Pause.JOURNAL), strict=True)
        )
        everybody = [alarm, there, owing, journal, held(None, Pause.ALARM)]
        assert hung_up(everybody) == []
        for i in (0, 2, 3):
            if reset:
                pairs[i][0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            pairs[i][0].close()
        wait_until(lambda: len(hung_up(everybody)) >= 2)
        found = hung_up(everybody)
        assert len(found) == 2
        assert set(found) == {alarm, owing}
        for pair in pairs:
            for sock in pair:
                sock.close()
