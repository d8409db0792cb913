"""The life of the process: lock, recover, serve, and leave in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import ssl
import sys
from collections.abc import Callable
from random import SystemRandom
from typing import Final

from escrowmq.config import Config
from escrowmq.core.broker import Broker
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.server import logs
from escrowmq.server.resources import allow_descriptors, return_large_blocks
from escrowmq.server.server import Server
from escrowmq.server.start import advice, recover
from escrowmq.server.tls import server_context

SWITCH_SECONDS: Final = 0.0005
"""How long the loop may keep the interpreter to itself while the journal's writer waits for it."""

_log = logging.getLogger("escrowmq.server")


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT. Raises JournalError, OSError when the broker cannot start."""
    logs.configure(config.log.level, config.log.format)
    return_large_blocks()
    room = allow_descriptors(config.limits.connections)
    if room < config.limits.connections:
        _log.warning(
            "the system's limit of open files leaves room for %d connections, not for %d (limits.connections)",
            *(room, config.limits.connections),
        )
        limits = config.limits.model_copy(update={"connections": max(room, 1)})
        config = config.model_copy(update={"limits": limits})
    context = server_context(config.tls) if config.listen.tls_address else None
    if not config.data_dir.exists():
        config.data_dir.mkdir(mode=0o700, parents=True)
    storage = FileStorage(config.data_dir)
    gc.disable()  # nothing that recovery makes is garbage
    try:
        journal = Journal.open(storage, segment_bytes=config.journal.segment_bytes)
        broker = Broker(journal, SystemRandom(), resident_limit=config.memory.queue_resident_bytes)
        recover(journal, broker)
    except JournalDamaged as error:
        raise advice(error, config.data_dir) from error
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, storage, journal, broker, context))


async def _serve(
    config: Config, storage: FileStorage, journal: Journal, broker: Broker, context: ssl.SSLContext | None
) -> None:
    await Server(config, storage, journal, broker).serve(context)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop
