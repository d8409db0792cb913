"""Files of definitions in RabbitMQ's form: their sections in the order of an import, and the file of an export."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("user", "vhost", "configure", "write", "read"),
    "topic_permissions": ("user", "vhost", "exchange", "write", "read"),
    "parameters": ("component", "name", "vhost"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name", "pattern"),
    "operator_policies": ("vhost", "name", "pattern"),
    "exchanges": ("vhost", "name", "type"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key"),
}
"""The sections in the order in which they are imported, with the texts that each object must have."""
OF_VHOST: Final = ("parameters", "policies", "exchanges", "queues", "bindings")
"""The sections of a file for one virtual host, whose objects do not name it."""
_POLICIES: Final = frozenset(("policies", "operator_policies"))
_FOREIGN: Final = frozenset(
    (
        "consumer-timeout",
        "federation-upstream",
        "federation-upstream-pattern",
        "federation-upstream-set",
        "stream-filter-size-bytes",
        "target-group-size",
    )
)
"""Keys of definitions of policies that concern what this broker does not have. An import leaves out such policies."""
_FLAG: Final = ((bool,), "true or false is needed")
_TEXT: Final = ((str,), "a text is needed")
_OBJECT: Final = ((dict,), "an object is needed")
_OPTIONAL: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    **dict.fromkeys(("durable", "auto_delete", "internal"), _FLAG),
    **dict.fromkeys(("arguments", "definition"), _OBJECT),
    **dict.fromkeys(("password_hash", "hashing_algorithm", "apply-to"), _TEXT),
    "priority": ((int,), "a whole number is needed"),
    "tags": ((list, str), "a list of texts is needed, or a text with commas"),
    "scram_hashes": ((list,), "a list of texts is needed"),
}
"""Fields that objects may lack, with their types."""
_ENDS: Final = ("queue", "exchange")
LONGEST_OBJECT: Final = 960 << 10
"""Bytes of one object in JSON."""
PART: Final = 100
"""Objects that are imported together."""
PART_BYTES: Final = 256 << 10


class DefinitionsError(Exception):
    """A file is no file of definitions. The text says why."""


class DefinitionPart(NamedTuple):
    """Some objects of a section."""

    section: str
    objects: list[dict[str, Any]]


def parsed(text: bytes | str) -> dict[str, Any]:
    """Return the object in a file. Raises DefinitionsError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionsError(f"this is no file of definitions: {error}") from error
    if not isinstance(document, dict):
        raise DefinitionsError("this is no file of definitions: it must be a JSON object")
    return document


def parts(document: Mapping[str, Any], vhost: str | None = None) -> Iterator[DefinitionPart]:
    """Yield the objects of a document, in the order in which they can be imported. With `vhost`, the document is for
    that virtual host. Raises DefinitionsError for a malformed one, before the first part.
    """
    found: list[DefinitionPart] = []
    for section in SECTIONS if vhost is None else OF_VHOST:
        objects = document.get(section) or []
        if not isinstance(objects, list):
            raise DefinitionsError(f"{section}: a list is needed")
        checked = [_checked(section, each, vhost) for each in objects if not _is_foreign(section, each)]
        found += [DefinitionPart(section, some) for some in _divided(checked)]
    yield from found


def ignored(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of objects that an import leaves out, by section."""
    found = {name: objects for name in SECTIONS if isinstance(objects := document.get(name), list)}
    counts = {name: sum(_is_foreign(name, each) for each in objects) for name, objects in found.items()}
    return {name: count for name, count in counts.items() if count}


def _is_foreign(section: str, given: object) -> bool:
    definition = given.get("definition") if section in _POLICIES and isinstance(given, dict) else None
    return isinstance(definition, dict) and not _FOREIGN.isdisjoint(definition)


def _checked(section: str, given: object, vhost: str | None) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise DefinitionsError(f"{section}: a list of objects is needed")
    found = dict(given) if vhost is None else given | {"vhost": vhost}
    for name in SECTIONS[section]:
        if not isinstance(found.get(name), str):
            raise DefinitionsError(f"{section}: an object has no text {name!r}: {json.dumps(given)[:200]}")
    if fault := _fault(section, found):
        raise DefinitionsError(f"{section}: an object has a wrong value in {fault}: {json.dumps(given)[:200]}")
    return found


def _fault(section: str, given: Mapping[str, Any]) -> str:
    """Return the name of a field with a wrong value, and what is needed; nothing if there is none."""
    for name, (types, needed) in _OPTIONAL.items():
        value = given.get(name)
        if value is None or (types == (dict,) and value == []):  # some tools cannot tell empty objects from arrays
            continue
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            return f"{name!r} ({needed})"
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            return f"{name!r} ({needed})"
    if section == "users":
        limits = given.get("limits") or {}
        if not isinstance(limits, dict) or not all(type(limit) is int for limit in limits.values()):
            return "'limits' (an object with whole numbers is needed)"
    if section == "bindings" and given["destination_type"] not in _ENDS:
        return "'destination_type' (queue or exchange is needed)"
    return ""


def _divided(objects: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    size = 0
    for each in objects:
        length = len(json.dumps(each, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if length > LONGEST_OBJECT:
            raise DefinitionsError(f"an object has more than {LONGEST_OBJECT:,} bytes: {json.dumps(each)[:200]}")
        if part and (len(part) >= PART or size + length > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part


def document(rows: Iterable[Mapping[str, Any]], version: str, vhost: str | None = None) -> dict[str, Any]:
    """Return the document of an export, from rows with `section` and `object`."""
    found: dict[str, Any] = {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": "EscrowMQ",
        "product_version": version,
    }
    found |= {section: [] for section in (SECTIONS if vhost is None else OF_VHOST)}
    for row in rows:
        given = dict(row["object"])
        if vhost is not None and (given.pop("vhost", None) != vhost or row["section"] not in OF_VHOST):
            continue
        found[row["section"]].append(given)
    return found
