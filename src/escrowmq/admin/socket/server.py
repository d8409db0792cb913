"""The admin socket: requests as lines of JSON, `{"command": …, "arguments": {…}}`, each answered by one line.

An answer is `{"result": …}` or `{"error": "…"}`. Who may open the socket may do everything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from typing import Any, Final

from escrowmq.admin.operation import Command, OperationRefused
from escrowmq.core.conditions import BrokerError

LONGEST_REQUEST: Final = 1 << 20

_log = logging.getLogger("escrowmq.admin")


class AdminServer:
    """Runs the commands of a table, by name."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self, sock: socket.socket) -> None:
        """Serve the clients of a listening socket."""
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=LONGEST_REQUEST)

    def stop(self) -> None:
        """Serve nobody any more."""
        if self._server is not None:
            self._server.close()
        for writer in self._clients:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            while line := await reader.readline():
                answer = await self.answer(line)
                writer.write(json.dumps(answer, default=str).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):  # gone, or a line that is too long
            pass
        finally:
            self._clients.discard(writer)
            writer.close()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """What is to be answered to a request."""
        try:
            request = json.loads(line)
            name, arguments = request["command"], request.get("arguments", {})
            command = self._commands[name]
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"error": "no such command, or no request at all; the command line and the broker differ in version"}
        try:
            return {"result": await command(**arguments)}
        except BrokerError as error:
            return {"error": error.text}
        except OperationRefused as error:
            return {"error": str(error)}
        except TypeError as error:
            return {"error": f"{name}: {error}"}
        except Exception as error:  # noqa: BLE001 - a fault of ours in one command
            _log.exception("internal error in the admin command %s", name)
            return {"error": f"internal error: {error!r}; see the broker's log"}
