"""Policies, operator policies and parameters of RabbitMQ's management API.

The only parameters of virtual hosts here are their limits; those of RabbitMQ's plugins are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR
from escrowmq.admin.http.management import ADMINISTRATORS, VHOST_LIMITS, Reading, ReadRoute
from escrowmq.admin.http.writing import DONE, ChangeAnswer, WriteRoute, Writing, made

POLICYMAKERS: Final = frozenset(("policymaker", ADMINISTRATOR))
LIMITS: Final = "vhost-limits"
"""The component whose parameters are the limits of virtual hosts. Each has one, of the same name."""
_NAME: Final = "limits"
_Row = Mapping[str, Any]


def _policy(row: _Row) -> dict[str, Any]:
    return {
        "vhost": row["vhost"],
        "name": row["name"],
        "pattern": row["pattern"],
        "apply-to": row["apply_to"],
        "definition": row["definition"],
        "priority": row["priority"],
    }


def _policies(operation: str) -> Callable[[Reading], Awaitable[Any]]:
    async def answer(reading: Reading) -> Any:
        found = [_policy(row) for row in await reading.rows(operation)]
        if "name" in reading.names:
            return reading.one(found, name=reading.names["name"])
        return reading.listed(found)

    return answer


def _put_policy(operation: str, apply_to: str) -> Callable[[Writing], Awaitable[ChangeAnswer]]:
    async def change(writing: Writing) -> ChangeAnswer:
        await writing.check_vhost(await writing.visible())
        given = {key: value for key, value in writing.body.items() if value is not None}
        definition = given.get("definition")
        if not isinstance(definition, dict):
            raise BadQuery("key_missing: definition" if definition is None else "definition: an object is needed")
        made_new = await writing.do(
            operation,
            vhost=writing.names["vhost"],
            name=writing.names["name"],
            pattern=writing.text("pattern"),
            definition=definition,
            priority=writing.number("priority") if "priority" in given else 0,
            apply_to=writing.text("apply-to") if "apply-to" in given else apply_to,
        )
        return made(made_new)

    return change


def _delete_policy(operation: str) -> Callable[[Writing], Awaitable[ChangeAnswer]]:
    async def change(writing: Writing) -> ChangeAnswer:
        await writing.check_vhost(await writing.visible())
        await writing.do(operation, **writing.names)
        return DONE

    return change


# -- parameters of virtual hosts


async def _shaped_parameters(reading: Reading) -> list[dict[str, Any]]:
    visible = await reading.visible()
    if reading.vhost is not None:
        await reading.check_vhost(visible)
    found = []
    for row in await reading.ask("vhost.list"):
        value = {name: row[field] for name, field in VHOST_LIMITS.items() if row[field] is not None}
        if value and reading.vhost in {None, row["name"]} and (visible is None or row["name"] in visible):
            found.append({"vhost": row["name"], "component": LIMITS, "name": _NAME, "value": value})
    return [row for row in found if reading.names.get("component", LIMITS) == LIMITS]


async def _parameters(reading: Reading) -> Any:
    found = await _shaped_parameters(reading)
    return reading.one(found, name=reading.names["name"]) if "name" in reading.names else reading.listed(found)


async def _put_parameter(writing: Writing) -> ChangeAnswer:
    await writing.check_vhost(await writing.visible())
    component, name = writing.names["component"], writing.names["name"]
    if component != LIMITS:
        raise BadQuery(f"component {component} not found; the only one here is {LIMITS}")
    if name != _NAME:
        raise BadQuery(f"name: the limits of a virtual host have the name {_NAME}")
    value = writing.table("value")
    unknown = sorted(value.keys() - VHOST_LIMITS.keys())
    if unknown:
        raise BadQuery(f"value: {unknown[0]} is no limit; known ones: {', '.join(VHOST_LIMITS)}")
    limits = {}
    for limit, field in VHOST_LIMITS.items():
        most = value.get(limit)
        if most is not None and (not isinstance(most, int) or isinstance(most, bool)):
            raise BadQuery(f"value: {limit} must be a whole number")
        limits[field] = None if most is None or most < 0 else most
    new = not await _shaped_parameters(writing)
    await writing.do("vhost.limits", name=writing.names["vhost"], **limits)
    return made(new)


async def _delete_parameter(writing: Writing) -> ChangeAnswer:
    writing.one(await _shaped_parameters(writing), name=writing.names["name"])
    await writing.do("vhost.limits", name=writing.names["vhost"])
    return DONE


# -- global parameters


async def _global_parameters(reading: Reading) -> Any:
    found = await reading.ask("parameter.list")
    return reading.one(found, name=reading.names["name"]) if "name" in reading.names else reading.listed(found)


async def _put_global_parameter(writing: Writing) -> ChangeAnswer:
    if "value" not in writing.body:
        raise BadQuery("key_missing: value")
    return made(await writing.do("parameter.set", name=writing.names["name"], value=writing.body["value"]))


async def _delete_global_parameter(writing: Writing) -> ChangeAnswer:
    await writing.do("parameter.clear", name=writing.names["name"])
    return DONE


POLICY_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "policies": ReadRoute(_policies("policy.list"), POLICYMAKERS),
    "policies/{vhost}": ReadRoute(_policies("policy.list"), POLICYMAKERS),
    "policies/{vhost}/{name}": ReadRoute(_policies("policy.list"), POLICYMAKERS),
    "operator-policies": ReadRoute(_policies("operator_policy.list"), ADMINISTRATORS),
    "operator-policies/{vhost}": ReadRoute(_policies("operator_policy.list"), ADMINISTRATORS),
    "operator-policies/{vhost}/{name}": ReadRoute(_policies("operator_policy.list"), ADMINISTRATORS),
    "parameters": ReadRoute(_parameters, POLICYMAKERS),
    "parameters/{component}": ReadRoute(_parameters, POLICYMAKERS),
    "parameters/{component}/{vhost}": ReadRoute(_parameters, POLICYMAKERS),
    "parameters/{component}/{vhost}/{name}": ReadRoute(_parameters, POLICYMAKERS),
    "global-parameters": ReadRoute(_global_parameters, POLICYMAKERS),
    "global-parameters/{name}": ReadRoute(_global_parameters, POLICYMAKERS),
}
POLICY_CHANGES: Final[Mapping[str, Mapping[str, WriteRoute]]] = {
    "policies/{vhost}/{name}": {
        "PUT": WriteRoute(_put_policy("policy.set", "all"), POLICYMAKERS),
        "DELETE": WriteRoute(_delete_policy("policy.clear"), POLICYMAKERS),
    },
    "operator-policies/{vhost}/{name}": {
        "PUT": WriteRoute(_put_policy("operator_policy.set", "queues"), ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_policy("operator_policy.clear"), ADMINISTRATORS),
    },
    "parameters/{component}/{vhost}/{name}": {
        "PUT": WriteRoute(_put_parameter, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_parameter, ADMINISTRATORS),
    },
    "global-parameters/{name}": {
        "PUT": WriteRoute(_put_global_parameter, ADMINISTRATORS),
        "DELETE": WriteRoute(_delete_global_parameter, ADMINISTRATORS),
    },
}
"""The paths below `/api/`. As in RabbitMQ, a policymaker needs a permission in the virtual host, whose policies say
where messages of all its users go.
"""
