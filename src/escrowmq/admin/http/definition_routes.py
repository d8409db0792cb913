"""Definitions over HTTP, in RabbitMQ's form. They contain hashes of passwords, so they are for administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from escrowmq import definitions
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.management import ADMINISTRATORS, Reading, ReadRoute
from escrowmq.admin.http.writing import DONE, ChangeAnswer, WriteRoute, Writing

LONGEST: Final = 64 << 20
"""Bytes of a file of definitions."""


async def _export(reading: Reading) -> Any:
    await reading.check_vhost(None) if reading.vhost is not None else None
    rows = await reading.ask("definitions.export", vhost=reading.vhost)
    status = await reading.ask("status")
    return definitions.document(rows, status["version"], reading.vhost)


async def _import(writing: Writing) -> ChangeAnswer:
    if writing.vhost is not None:
        await writing.check_vhost(None)
    try:
        found = list(definitions.parts(writing.body, writing.vhost))
    except definitions.DefinitionsError as error:
        raise BadQuery(str(error)) from error
    for part in found:
        await writing.do("definitions.import", section=part.section, objects=part.objects)
    return DONE


DEFINITION_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "definitions": ReadRoute(_export, ADMINISTRATORS),
    "definitions/{vhost}": ReadRoute(_export, ADMINISTRATORS),
}
DEFINITION_CHANGES: Final[Mapping[str, Mapping[str, WriteRoute]]] = {
    path: {"POST": WriteRoute(_import, ADMINISTRATORS, LONGEST)} for path in DEFINITION_ROUTES
}
"""The paths below `/api/`."""
