"""Finds the node of a NATS cluster that has a certain name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final

_ANSWER_SECONDS: Final = 2.0
_LONGEST: Final = 64 * 1024
_INFO: Final = b"INFO "


async def find_node(hosts: Iterable[str], name: str) -> str | None:
    """Return the first of `hosts`, each with its port, at which a server of this name answers, or None."""
    hosts = list(hosts)
    names = await asyncio.gather(*map(_name, hosts))
    return next((host for host, each in zip(hosts, names, strict=True) if each == name), None)


async def _name(host: str) -> str:
    """Return the name of the server at `host`, or nothing. A server says it first of all, before TLS and login."""
    address, _, port = host.rpartition(":")
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address.strip("[]"), int(port), limit=_LONGEST)
            try:
                line = await reader.readline()
            finally:
                writer.transport.abort()
        if not line.startswith(_INFO):
            return ""
        return str(json.loads(line[len(_INFO) :])["server_name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
