"""The admin socket: requests as lines of JSON, `{"command": …, "arguments": {…}}`, each answered by one line.

An answer is `{"result": …}` or `{"error": "…"}`, with `"missing": true` if the object does not exist, or with the
`"condition"` for which the core refused it.
Every process that may open the socket may use every operation. The rows of a list are sent while they are made, so an
answer of any length takes little memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from escrowmq.admin.operation import Listing, NothingFound, Operation, OperationRefused
from escrowmq.admin.socket.path import LONGEST_REQUEST
from escrowmq.admin.values import NESTED, is_nested
from escrowmq.core.conditions import BrokerError

PART_BYTES: Final = 1 << 15
"""Bytes of a list that are sent together. A piece of its rows is shorter, and each part wakes the client."""
UNKNOWN: Final = "no such command, or not a request; the command line and the broker may be of different versions"
_ENCODE: Final = json.JSONEncoder(default=str).encode  # `json.dumps` would make an encoder each time

_log = logging.getLogger("escrowmq.admin")


class AdminServer:
    """Runs the operations of a table for the clients of a listening socket. Lists are sent in parts of `part_bytes`."""

    def __init__(self, operations: Mapping[str, Operation], part_bytes: int = PART_BYTES) -> None:
        self._operations = operations
        self._part_bytes = part_bytes
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self, sock: socket.socket) -> None:
        """Serve the clients of a listening socket."""
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=LONGEST_REQUEST)

    def stop(self) -> None:
        """Accept no more clients, and disconnect the present ones."""
        if self._server is not None:
            self._server.close()
        for writer in self._clients:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            while line := await reader.readline():
                async for part in self.answer(line):
                    writer.write(part)
                    await writer.drain()
        except (OSError, ValueError):  # the client disconnected, or its line is too long
            pass
        except Exception:  # noqa: BLE001 - a fault of one operation must not end the broker
            _log.exception("internal error in the middle of an answer on the admin socket; the client is disconnected")
        finally:
            self._clients.discard(writer)
            writer.close()

    async def answer(self, line: bytes) -> AsyncIterator[bytes]:
        """Yield the answer to a request, in parts; the last one ends with a newline."""
        result, error = await self._run(line)
        if error:
            yield json.dumps(error).encode() + b"\n"
        elif isinstance(result, Listing):
            part, between = bytearray(b'{"result": ['), b""
            async for rows in result.pieces():
                if rows:
                    part += between + _ENCODE(rows)[1:-1].encode()
                    between = b", "
                if len(part) >= self._part_bytes:
                    yield bytes(part)
                    part.clear()
            yield bytes(part) + b"]}\n"
        else:
            yield _ENCODE({"result": result}).encode() + b"\n"

    async def _run(self, line: bytes) -> tuple[Any, dict[str, Any]]:
        """Return the result of a request, and its answer if it has failed."""
        try:
            request = json.loads(line)
            name, arguments = request["command"], request.get("arguments", {})
            operation = self._operations[name]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None, {"error": UNKNOWN}
        if is_nested(arguments):
            return None, {"error": f"{name}: {NESTED}"}
        try:
            return await operation(**arguments), {}
        except BrokerError as error:
            return None, {"error": error.text, "condition": error.condition.value}
        except NothingFound as error:
            return None, {"error": str(error), "missing": True}
        except OperationRefused as error:
            return None, {"error": str(error)}
        except TypeError as error:
            return None, {"error": f"{name}: {error}"}
        except Exception as error:  # noqa: BLE001 - a fault of one operation must not end the broker
            _log.exception("internal error in the admin operation %s", name)
            return None, {"error": f"internal error: {error!r}; see the broker's log"}
