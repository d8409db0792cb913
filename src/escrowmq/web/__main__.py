"""The HTTP process: `python -m escrowmq.web OPTIONS`, an object in JSON. The broker starts it, sends it
settings that have changed on standard input, one object on each line, and ends it by closing standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from escrowmq import logs
from escrowmq.admin.http.app import HttpInterface
from escrowmq.admin.http.attempts import GuardedBroker
from escrowmq.admin.http.broker import RemoteBroker
from escrowmq.admin.http.connection import TimedProtocol
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.repetition import Repetition
from escrowmq.admin.http.standby import StandbyInterface
from escrowmq.admin.http.turns import RequestTurns
from escrowmq.console.app import Console
from escrowmq.console.standby import StandbyConsole
from escrowmq.evidence.files import BrokerFiles
from escrowmq.evidence.routes import file_routes
from escrowmq.web.https import https_context, load_certificate

_LARGEST_HEAD = 64 << 10
_PIPE_BYTES = 64 << 10
_NICENESS = 10
_SWITCH_SECONDS = 0.0005
"""The time that a thread which reads files may keep the interpreter. The event loop needs it several times for each
request, so with Python's 5 ms, even `/health` takes tenths of a second beside some readers.
"""


class _Server(uvicorn.Server):
    """uvicorn's server without its handling of signals, which would undo that of `main`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(options: dict[str, Any], sockets: list[socket.socket]) -> None:
    """Serve until standard input ends."""
    audits, backups = (None if options[name] is None else Path(options[name]) for name in ("audits", "backups"))
    files = BrokerFiles(Path(options["data_dir"]), audits, backups, options["disk_limit"])
    config = uvicorn.Config(
        _application(options, files),
        http=TimedProtocol,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=options["connections"],
    )
    repetition = Repetition()
    for name in ("uvicorn.error", "escrowmq.http"):
        logging.getLogger(name).addFilter(repetition)
    TimedProtocol.most = options["connections"]
    TimedProtocol.most_of_address = max(options["connections"] // 2, 1)
    if options["https"]:
        config.ssl_context_factory = lambda _config, _default: https_context(options["tls"])
    server = _Server(config)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _hear, server, loop)
    loop.add_signal_handler(signal.SIGTERM, _stop, server)
    try:
        await server.serve(sockets)
    finally:
        files.stop()


def _application(options: dict[str, Any], files: BrokerFiles) -> Starlette:
    broker, open_metrics = RemoteBroker(files.data_dir), options["open_metrics"]
    if options["standby"]:
        pages = StandbyConsole(broker, open_metrics=open_metrics)
        return StandbyInterface(broker, open_metrics=open_metrics).app(pages.routes())
    guarded = GuardedBroker(broker)
    lists, turns, more = KeptLists(guarded), RequestTurns(), file_routes(files)
    interface = HttpInterface(guarded, open_metrics=open_metrics, more=more, lists=lists, turns=turns)
    return interface.app(Console(guarded, lists, files, turns=turns).routes())


def _hear(server: uvicorn.Server, loop: asyncio.AbstractEventLoop) -> None:
    """Apply settings, or stop at the end of the input. The broker writes whole lines."""
    told = os.read(sys.stdin.fileno(), _PIPE_BYTES)
    for line in told.splitlines():
        changed = json.loads(line)
        _configure_log(changed["log"])
        if server.config.ssl is not None:
            load_certificate(server.config.ssl, changed["tls"])
    if not told:
        loop.remove_reader(sys.stdin.fileno())
        _stop(server)


def _stop(server: uvicorn.Server) -> None:
    server.should_exit = True


def _configure_log(settings: dict[str, Any]) -> None:
    logs.configure(settings["level"], settings["format"])


def _give_way() -> None:
    """Leave the processors to the broker when both want them. Where the system groups processes by session, this
    process has a group of its own, whose niceness counts.
    """
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))


def main() -> None:
    """Read the options, and serve."""
    options = json.loads(sys.argv[1])
    _give_way()
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for the broker
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _configure_log(options["log"])  # both processes write to the same stderr
    sockets = [socket.socket(fileno=number) for number in options["sockets"]]
    asyncio.run(serve(options, sockets))


if __name__ == "__main__":
    main()
