"""The HTTP process beside the broker: it is started with the broker, again if it fails, and ends with it.

It has an interpreter of its own, so that requests take no time of the broker's event loop but that of the operations
that they need. Signals to the broker's process group, such as the Ctrl-C and the hang-up of a terminal, do not
reach it: the broker ends it in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from escrowmq.config.config import Config

NEEDED: Final = ("jinja2", "prometheus_client", "starlette", "uvicorn")
"""The modules that the extra `http` installs."""
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STOP_SECONDS: Final = 5.0

_log = logging.getLogger("escrowmq.http")


def missing_modules() -> list[str]:
    """Return the modules that the HTTP process needs and that are not installed."""
    return [name for name in NEEDED if not _installed(name)]


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # a module that is hidden from this process
        return False


def _reloaded(config: Config) -> dict[str, Any]:
    """Return the options that may change while the process runs."""
    tls = config.tls.model_dump(mode="json", include={"certificate", "key", "min_version"})
    return {"log": config.log.model_dump(), "tls": tls}


class HttpProcess:
    """Runs the HTTP process on listening sockets that the broker has bound. That of a standby has other routes."""

    def __init__(self, config: Config, sockets: Sequence[socket.socket], *, standby: bool = False) -> None:
        self._sockets = sockets
        self._options: dict[str, Any] = {
            "data_dir": str(config.data_dir),
            "open_metrics": config.http.open_metrics,
            "audits": None if config.http.audits is None else str(config.http.audits),
            "backups": None if config.http.backups is None else str(config.http.backups),
            "connections": config.http.connections,
            "disk_limit": config.disk.free_limit,
            "sockets": [sock.fileno() for sock in sockets],
            "https": config.http.tls,
            "standby": standby,
            **_reloaded(config),
        }
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._given_up = False

    def start(self) -> None:
        """Start the process, and keep it running until `stop`."""
        for sock in self._sockets:
            sock.listen()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reload(self, config: Config) -> None:
        """Have the process log like this from now on, and read its certificate again."""
        self._options |= _reloaded(config)
        if self._process is not None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(_reloaded(config)).encode() + b"\n")

    async def stop(self) -> None:
        """End the process."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()  # that is how it learns it, also if the broker is killed
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def give_up(self) -> int | None:
        """Start the process no more, and return its id, if it runs. The caller ends it. May be called on any thread."""
        self._given_up = True
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def kill(self) -> None:
        """End the process at once."""
        if self._task is not None:
            self._task.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _run(self) -> None:
        wait = _FIRST_WAIT
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "escrowmq.web", json.dumps(self._options)),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=[sock.fileno() for sock in self._sockets],
                    start_new_session=True,
                )
            except OSError as error:  # the broker may have no memory or no descriptors left for the moment
                end = f"cannot be started: {error}"
            else:
                end = f"ended with status {await self._process.wait()}"
            if self._given_up:
                return
            wait = _FIRST_WAIT if loop.time() - started > _LONGEST_WAIT else min(2 * wait, _LONGEST_WAIT)
            _log.error("the HTTP process %s; it starts again in %g s", end, wait)
            await asyncio.sleep(wait)
