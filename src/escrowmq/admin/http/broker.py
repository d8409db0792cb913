"""The broker as the HTTP process sees it: operations of the admin service, asked over the admin socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final, Protocol

from escrowmq.admin.socket import path
from escrowmq.admin.socket.path import LONGEST_REQUEST

LONGEST_ANSWER: Final = 256 << 20
"""The maximum length of an answer in bytes. The row of a queue has about 500."""
TIMEOUT_SECONDS: Final = 60.0
MOST_IDLE: Final = 4
"""Connections that are kept while nobody asks."""


class BrokerUnavailable(Exception):  # noqa: N818 - named for what happened
    """The broker cannot be reached. The text is for the operator."""


class BrokerRefused(Exception):  # noqa: N818 - named for what happened
    """The broker refused an operation. The text is for the operator. `missing`: the object does not exist; `condition`:
    that of the core, if the core has refused it (`core.conditions`).
    """

    def __init__(self, text: str, *, missing: bool = False, condition: str = "") -> None:
        super().__init__(text)
        self.missing = missing
        self.condition = condition


class AskedBroker(Protocol):
    """A broker whose operations can be asked for."""

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Return the result of an operation (see `admin.service`). Raises BrokerUnavailable, BrokerRefused."""
        ...


class RemoteBroker:
    """Asks the broker that serves `data_dir`. Connections are kept for later requests, since a new one costs the broker
    twice the time of a small answer.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, command: str, **arguments: Any) -> Any:
        """See `AskedBroker.ask`."""
        # Without escapes, a request is about as long as the HTTP request from which it comes.
        text = json.dumps({"command": command, "arguments": arguments}, ensure_ascii=False)
        request = text.encode("utf-8", "surrogatepass") + b"\n"
        if len(request) > LONGEST_REQUEST:  # for which the broker would disconnect this process
            raise BrokerRefused(f"the request has more than the {LONGEST_REQUEST:,} bytes that the broker takes")
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                line = await self._exchange(request)
        except TimeoutError as error:
            raise BrokerUnavailable(f"the broker did not answer within {TIMEOUT_SECONDS:g} s") from error
        except (OSError, ValueError) as error:
            raise BrokerUnavailable(f"the broker on {self._data_dir} cannot be reached: {error}") from error
        if not line.endswith(b"\n"):
            raise BrokerUnavailable("the broker closed the connection before its answer was complete")
        answer = json.loads(line)
        if "error" in answer:
            raise BrokerRefused(
                str(answer["error"]), missing=answer.get("missing", False), condition=answer.get("condition", "")
            )
        return answer["result"]

    async def _exchange(self, request: bytes) -> bytes:
        """Return the answer to a request. Its connection is kept only if the answer is complete."""
        reader, writer = await self._connection()
        line = b""
        try:
            writer.write(request)
            line = await reader.readline()
        finally:
            if line.endswith(b"\n") and len(self._idle) < MOST_IDLE:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return line

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        with path.address(self._data_dir) as address:
            return await asyncio.open_unix_connection(address, limit=LONGEST_ANSWER)
