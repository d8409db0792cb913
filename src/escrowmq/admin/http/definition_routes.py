"""Definitions over HTTP, in RabbitMQ's form. They contain hashes of passwords, so they are for administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from escrowmq import definitions
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.management import ADMINISTRATORS, Reading, ReadRoute
from escrowmq.admin.http.writing import DONE, ChangeAnswer, WriteRoute, Writing

Ask = Callable[..., Awaitable[Any]]
"""Asks the broker for an operation by name, with its arguments."""
LONGEST: Final = 64 << 20
"""Bytes of a file of definitions."""


async def exported(ask: Ask, vhost: str | None = None) -> dict[str, Any]:
    """Return the definitions of the broker, or those in a virtual host. Raises BrokerRefused for an unknown one."""
    rows = await ask("definitions.export", vhost=vhost)
    status = await ask("status")
    return definitions.document(rows, status["version"], vhost)


async def bring_in(ask: Ask, document: Mapping[str, Any], vhost: str | None, by: str) -> dict[str, int]:
    """Import a document in the name of user `by`. Return the number of objects by section. Raises BadQuery before the
    first object for a malformed document, and BrokerRefused at an object that is refused; those before it are made.
    """
    try:
        found = list(definitions.parts(document, vhost))
    except definitions.DefinitionsError as error:
        raise BadQuery(str(error)) from error
    counts: dict[str, int] = {}
    for part in found:
        await ask("definitions.import", section=part.section, objects=part.objects, by=by)
        counts[part.section] = counts.get(part.section, 0) + len(part.objects)
    return counts


async def _export(reading: Reading) -> Any:
    await reading.check_vhost(None) if reading.vhost is not None else None
    return await exported(reading.ask, reading.vhost)


async def _import(writing: Writing) -> ChangeAnswer:
    if writing.vhost is not None:
        await writing.check_vhost(None)
    await bring_in(writing.ask, writing.body, writing.vhost, writing.operator.user)
    return DONE


DEFINITION_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "definitions": ReadRoute(_export, ADMINISTRATORS),
    "definitions/{vhost}": ReadRoute(_export, ADMINISTRATORS),
}
DEFINITION_CHANGES: Final[Mapping[str, Mapping[str, WriteRoute]]] = {
    path: {"POST": WriteRoute(_import, ADMINISTRATORS, LONGEST)} for path in DEFINITION_ROUTES
}
"""The paths below `/api/`."""
