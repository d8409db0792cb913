"""The process that serves reads of streams on a standby: `python -m escrowmq.server.replica.reading_broker DESCRIPTOR`.

It recovers a broker from the standby's files as they are at its start, and never changes them. It listens nowhere: the
standby passes it one end of a pair of sockets for each client, over the socket with the number DESCRIPTOR. It ends
when the standby closes that one. Its configuration comes on standard input, since a command line is visible to others.

Nothing happens by itself in it: no deadline runs, and nothing is delivered. It would otherwise expire or delay messages
as the leader does, and could append something to a stream that the leader has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final

from escrowmq import logs
from escrowmq.admin.socket.client import AdminError, ask
from escrowmq.backup.manifest import BackupError
from escrowmq.backup.source import PinnedFiles, allow_descriptors
from escrowmq.config.config import Config
from escrowmq.core.access.table import READS
from escrowmq.core.broker import Broker
from escrowmq.journal.errors import JournalError
from escrowmq.journal.journal import Journal
from escrowmq.journal.overlay import Overlay, visible_bytes
from escrowmq.loops import new_event_loop
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import ClientConnection
from escrowmq.server.passwords import Passwords
from escrowmq.server.resources import Alarms, memory_bytes, resident_bytes
from escrowmq.server.runtime import Runtime
from escrowmq.server.scram import ScramUsers
from escrowmq.server.secret_keys import SecretKeys
from escrowmq.server.start import recover
from escrowmq.server.tokens.setting_up import token_logins
from escrowmq.server.turn import Turns
from escrowmq.wire.endpoint import Peer
from escrowmq.wire.sniff import AMQP_FAMILY

SECTIONS: Final = frozenset(
    ("data_dir", "limits", "memory", "journal", "security", "tokens", "compatibility", "log")  # no secrets are used
)
"""The part of the configuration that this process has."""
_SEGMENT_BYTES: Final = 1 << 20
_NICENESS: Final = 10
_HEAD: Final = 4
"""The bytes of the length of what precedes a client's own bytes."""

_log = logging.getLogger("escrowmq.replication")


def introduction(peer: Peer) -> bytes:
    """Return what the standby writes before the bytes of a client: who the client is."""
    text = json.dumps(asdict(peer)).encode()
    return len(text).to_bytes(_HEAD, "big") + text


def introduced(sock: socket.socket) -> Peer:
    """Read an introduction, which is already there."""
    size = int.from_bytes(sock.recv(_HEAD, socket.MSG_WAITALL), "big")
    return Peer(**json.loads(sock.recv(size, socket.MSG_WAITALL)))


def recovered(data_dir: Path, *, chain_contents: bool, resident_limit: int) -> tuple[Journal, Broker]:
    """Return a broker with everything that was confirmed before this call, by whichever node.

    Raises:
        AdminError: The standby does not know what was confirmed, or is no standby any more.
        BackupError, JournalError, OSError: Its files cannot be read.
    """
    # As for a backup, the first question has everything copied, perhaps into new files. The answer to the second one is
    # not earlier than the newest snapshot among the files.
    ask(data_dir, "journal.synced")
    files = PinnedFiles(data_dir)  # they stay open, and can be read after the standby has deleted them
    storage = Overlay(files, visible_bytes(files, ask(data_dir, "journal.synced")))
    journal = Journal.open(storage, segment_bytes=_SEGMENT_BYTES, chain_contents=chain_contents)
    broker = Broker(journal, SystemRandom(), resident_limit=resident_limit)
    broker.operations = READS
    recover(journal, broker)
    broker.engine.deadlines.stop()
    broker.engine.turn.withheld = True
    return journal, broker


class ReadingBroker:
    """A broker for the clients that the standby passes over `control`. It is created and used on the event loop."""

    def __init__(self, config: Config, journal: Journal, broker: Broker, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._control = control
        self._turns = Turns(loop, broker, journal)
        threads = ThreadPoolExecutor(2, thread_name_prefix="password")
        passwords = Passwords(config.security.mechanisms, config.security.scram_iterations)
        authenticator = Authenticator(
            broker.access,
            threads,
            self._turns.post,
            ScramUsers(broker.access, passwords, journal.identity),
            lambda _: None,  # what a login would change is the leader's to change
            SecretKeys(config.data_dir),
            token_logins(config.tokens, loop, self._turns.post),
            guest_loopback_only=config.security.guest_loopback_only,
            anonymous_user=config.security.anonymous_user,
            patience=config.limits.unauthenticated_seconds,
        )
        self._runtime = Runtime(
            self._turns,
            authenticator,
            Alarms(config.memory.high_watermark_bytes(memory_bytes()), 0, resident_bytes, lambda: 0),
            config.limits,
            config.security.mechanisms,
        )

    async def serve(self) -> None:
        """Serve until the standby closes the socket of control."""
        loop = asyncio.get_running_loop()
        self._turns.begin()
        self._runtime.ticker.start()
        ended = asyncio.Event()
        self._control.setblocking(False)
        clients: set[asyncio.Task[None]] = set()

        def passed() -> None:
            with contextlib.suppress(BlockingIOError):
                data, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                if not data:
                    loop.remove_reader(self._control)
                    ended.set()
                for descriptor in descriptors:
                    task = loop.create_task(self._adopt(socket.socket(fileno=descriptor)))
                    clients.add(task)
                    task.add_done_callback(clients.discard)

        loop.add_reader(self._control, passed)
        await ended.wait()

    async def _adopt(self, sock: socket.socket) -> None:
        peer = introduced(sock)
        sock.setblocking(False)
        make = partial(ClientConnection, self._runtime, AMQP_FAMILY, peer)
        await asyncio.get_running_loop().connect_accepted_socket(make, sock)


async def _serve(config: Config, journal: Journal, broker: Broker, control: socket.socket) -> None:
    reading = ReadingBroker(config, journal, broker, control)
    sys.stdout.write(f"{journal.recovery.end_lsn}\n")
    sys.stdout.flush()
    await reading.serve()


def main(arguments: Sequence[str]) -> int:
    """Recover, write the LSN up to which the journal is read to standard output, and serve. Returns the exit status."""
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for the standby
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    control = socket.socket(fileno=int(arguments[0]))
    config = Config.model_validate_json(sys.stdin.read())
    logs.configure(config.log.level, config.log.format)
    allow_descriptors()
    gc.disable()  # as at each start of a broker
    try:
        journal, broker = recovered(
            config.data_dir,
            chain_contents=config.journal.chain == "contents",
            resident_limit=config.memory.queue_resident_bytes,
        )
    except (AdminError, BackupError, JournalError, OSError) as error:
        _log.error("the copy for reads cannot be made: %s", error)
        return 1
    gc.enable()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config, journal, broker, control))
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # nothing of it is to be kept
