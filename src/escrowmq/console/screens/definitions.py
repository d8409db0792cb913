"""Definitions: users, virtual hosts, exchanges, queues and so on, as a file in RabbitMQ's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from escrowmq.admin.http.definition_routes import bring_in, exported
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.writing import parsed
from escrowmq.console.actions import FormRefused
from escrowmq.console.visit import Visit


async def definitions(visit: Visit) -> dict[str, Any]:
    """Show the number of definitions by section, and the virtual hosts."""
    document = await exported(visit.ask)
    sections = {name: len(objects) for name, objects in document.items() if isinstance(objects, list)}
    return {"sections": sections, "vhosts": await visit.ask("vhost.list")}


async def file_of(visit: Visit) -> tuple[str, bytes]:
    """Return the name and the content of the file of all definitions, or of those in the query's virtual host."""
    vhost = visit.query.get("vhost") or None
    document = await exported(visit.ask, vhost)
    part = "" if vhost is None else "-" + "".join(char if char.isascii() and char.isalnum() else "_" for char in vhost)
    return f"definitions{part}.json", json.dumps(document, indent=2).encode()


async def import_form(visit: Visit, form: Mapping[str, str]) -> str:
    """Import the definitions in a form. Return the text that tells an operator what was done. Raises FormRefused,
    BadQuery, BrokerRefused.
    """
    try:
        document = parsed((form.get("definitions") or "null").encode())
    except BadQuery as error:
        raise FormRefused(f"nothing was done: this is no file of definitions: {error}") from error
    if not isinstance(document, dict):
        raise FormRefused("nothing was done: a file of definitions is a JSON object")
    counts = await bring_in(visit.ask, document, form.get("vhost") or None, visit.operator.user)
    parts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
    return f"The definitions were imported: {parts}." if parts else "The file has no definitions."
