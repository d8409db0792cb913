"""The HTTP process: `python -m escrowmq.admin.http DATA_DIR DESCRIPTOR …`. The broker starts it, and ends it by closing
its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from escrowmq.admin.http.app import HttpInterface
from escrowmq.admin.http.broker import RemoteBroker
from escrowmq.admin.http.connection import TimedProtocol

_LARGEST_HEAD = 64 << 10


async def serve(options: dict[str, Any], sockets: list[socket.socket]) -> None:
    """Serve until standard input ends."""
    interface = HttpInterface(RemoteBroker(Path(options["data_dir"])), open_metrics=options["open_metrics"])
    config = uvicorn.Config(
        interface.app(),
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
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _stop, server, loop)
    await server.serve(sockets)


def _stop(server: uvicorn.Server, loop: asyncio.AbstractEventLoop) -> None:
    loop.remove_reader(sys.stdin.fileno())
    server.should_exit = True


def main() -> None:
    """Read the options, and serve."""
    options = json.loads(sys.argv[1])
    # The broker has configured the log's format; its own process writes these lines to the same stderr.
    logging.basicConfig(level=options["level"].upper(), format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker gets it, too, and ends this process in order
    sockets = [socket.socket(fileno=number) for number in options["sockets"]]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options, sockets))


if __name__ == "__main__":
    main()
