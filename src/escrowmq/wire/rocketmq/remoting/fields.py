"""The fields of a request, read with their types and limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from escrowmq.wire.rocketmq.properties import whole
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.frames import encodable

LARGEST_DOCUMENT: Final = 1 << 20
"""The most octets of JSON in the body of a request."""
LONGEST_CLIENT_ID: Final = 255
_I64: Final = 1 << 63


def text(fields: Mapping[str, str], name: str) -> str:
    """Return a field that must be there. Raises RequestFault."""
    found = fields.get(name)
    if found is None:
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"the request has no field {name}")
    return found


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a field that is a number of 64 bits. Raises RequestFault if it is none, or missing without a default."""
    found = fields.get(name)
    if found is None and default is not None:
        return default
    value = whole(text(fields, name))
    if value is None or not -_I64 <= value < _I64:
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"the field {name} is not a number")
    return value


def flag(fields: Mapping[str, str], name: str) -> bool:
    """Return a field that is a truth value; False if it is missing."""
    return fields.get(name, "").lower() == "true"


def document(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises RequestFault."""
    if len(body) > LARGEST_DOCUMENT:
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"the body has more than {LARGEST_DOCUMENT} octets")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestFault(ResultCode.INVALID_PARAMETER, "the body is not a JSON object")
    return found


def client_named(found: Mapping[str, Any], name: str) -> str:
    """Return a client's id in a JSON object; empty if it is missing. Raises RequestFault if it is too long."""
    client_id = member(found, name)
    if len(client_id) > LONGEST_CLIENT_ID:
        raise RequestFault(
            ResultCode.INVALID_PARAMETER,
            f"{name} has {len(client_id)} characters; at most {LONGEST_CLIENT_ID} are allowed",
        )
    return client_id


def objects(found: object, most: int) -> list[dict[str, Any]]:
    """Return the objects of a JSON list, at most `most`. Raises RequestFault for more. Other values are left out."""
    if not isinstance(found, list):
        return []
    if len(found) > most:
        raise RequestFault(ResultCode.INVALID_PARAMETER, f"a list has {len(found)} members; at most {most} are allowed")
    return [each for each in found if isinstance(each, dict)]


def member(found: Mapping[str, Any], name: str) -> str:
    """Return a text of a JSON object; empty if it is missing or no text."""
    value = found.get(name)
    return encodable(value) if isinstance(value, str) else ""
