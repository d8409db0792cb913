"""The reading half of RabbitMQ's management API: a table of paths, the tag that each needs, and its answer.

A user sees the objects of the virtual hosts in which it has some permission. With the tag monitoring or administrator,
it sees those of all virtual hosts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from escrowmq.admin.connections import described
from escrowmq.admin.http import shapes
from escrowmq.admin.http.broker import AskedBroker, BrokerRefused
from escrowmq.admin.http.kept_lists import KeptList, KeptLists, KeptRow
from escrowmq.admin.http.listing import chosen, is_chosen
from escrowmq.admin.http.logins import ADMINISTRATOR, MONITORING, NotAuthorised, Operator

MANAGEMENT: Final = frozenset(("management", "policymaker", MONITORING, ADMINISTRATOR))
MONITORS: Final = frozenset((MONITORING, ADMINISTRATOR))
ADMINISTRATORS: Final = frozenset((ADMINISTRATOR,))
_SCHEMES: Final = {"amqp091": "amqp", "amqp010": "amqp", "amqp10": "amqp", "amqp1.0": "amqp", "amqp/ssl": "amqps"}
VHOST_LIMITS: Final = {"max-connections": "max_connections", "max-queues": "max_queues"}
USER_LIMITS: Final = {"max-connections": "max_connections", "max-channels": "max_channels"}
"""The limits by RabbitMQ's name, with their names in the rows of the admin service."""


class NothingThere(Exception):  # noqa: N818 - named for what happened
    """The path names nothing that exists. The text, if there is one, is for the client."""


class HealthFailure(Exception):  # noqa: N818 - named for what happened
    """A health check has failed. The text is for the client, and `more` are further fields of the answer."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(text)
        self.more = more


class Reading:
    """One request: who asks, the names in the path, the query, and the headers. `log_in_again` checks the login once
    more, for an answer that takes long.
    """

    def __init__(
        self,
        broker: AskedBroker,
        lists: KeptLists,
        operator: Operator,
        names: Mapping[str, str],
        query: Mapping[str, str],
        headers: Mapping[str, str],
        log_in_again: Callable[[], Awaitable[Operator]] | None = None,
    ) -> None:
        self.ask = broker.ask
        self.log_in_again = log_in_again
        self.lists = lists
        self.operator = operator
        self.names = names
        self.query = query
        self.headers = headers

    @property
    def vhost(self) -> str | None:
        """The virtual host in the path."""
        return self.names.get("vhost")

    async def visible(self) -> frozenset[str] | None:
        """Return the virtual hosts that the user sees; None if it sees all."""
        if MONITORS & set(self.operator.tags):
            return None
        user, grant = self.operator.user, self.operator.grant
        if grant is not None:
            names = [row["name"] for row in await self.ask("vhost.list")]
            return frozenset(name for name in names if grant.enters(user, name))
        rows = await self.ask("permission.list", user=user)
        return frozenset(row["vhost"] for row in rows)

    async def rows(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return the rows of a list that the user sees: those of the virtual host in the path, or of all. Raises
        NothingThere, NotAuthorised.
        """
        visible, vhost = await self.visible(), self.vhost
        if vhost is None:
            found = await self.ask(operation, **arguments)
            return [row for row in found if visible is None or row["vhost"] in visible]
        await self.check_vhost(visible)
        found = await self.ask(operation, vhost=vhost, **arguments)
        return list(found)

    async def check_vhost(self, visible: frozenset[str] | None) -> None:
        """Raises NotAuthorised unless the user sees the virtual host in the path, NothingThere if it does not exist."""
        if visible is not None and self.vhost not in visible:
            raise NotAuthorised("User not authorised to access virtual host")
        if all(row["name"] != self.vhost for row in await self.ask("vhost.list")):
            raise NothingThere

    async def node(self) -> str:
        """Return the name of the broker."""
        return f"escrowmq@{await self.ask('host')}"

    def one(self, rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
        """Return the row with these values. Raises NothingThere."""
        for row in rows:
            if all(row[key] == value for key, value in wanted.items()):
                return row
        raise NothingThere

    def listed(self, rows: list[dict[str, Any]]) -> Any:
        """Return a list in the order and with the columns that the query asks for."""
        return chosen(rows, self.query)

    async def listed_kept(self, kept: KeptList, rows: list[KeptRow]) -> Any:
        """Return rows of a kept list in the order and with the columns that the query asks for."""
        node = await self.node()
        if is_chosen(self.query):
            return chosen(rows, self.query, lambda row: row.shape(node))
        return Response(await kept.answers.joined(rows, node), media_type="application/json")


def node_name(totals: Mapping[str, Any]) -> str:
    """Return the name of the broker, from the operation `counter.totals`."""
    return f"escrowmq@{totals['process']['host']}"


# -- the broker


async def _overview(reading: Reading) -> Any:
    status, totals = await reading.ask("status"), await reading.ask("counter.totals")
    exchanges = await reading.ask("exchange.list")
    return shapes.overview(status, totals, len(exchanges), node_name(totals))


async def _nodes(reading: Reading) -> Any:
    status, totals = await reading.ask("status"), await reading.ask("counter.totals")
    return [shapes.node(status, totals, node_name(totals))]


async def _node(reading: Reading) -> Any:
    return reading.one(await _nodes(reading), name=reading.names["name"])


async def _whoami(reading: Reading) -> Any:
    return {"name": reading.operator.user, "tags": list(reading.operator.tags)}


async def _cluster_name(reading: Reading) -> Any:
    return {"name": await reading.node()}


async def _alarms(reading: Reading) -> Any:
    status = await reading.ask("status")
    if status["alarms"]:
        raise HealthFailure(f"alarms are in effect: {', '.join(status['alarms'])}")
    return {"status": "ok"}


async def _port_listener(reading: Reading) -> Any:
    text = reading.names["port"]
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise NothingThere
    found = [url.rpartition(":")[2] for url in (await reading.ask("status"))["listeners"]]
    if str(int(text)) not in found:
        raise HealthFailure("No active listener", missing=int(text))
    return {"status": "ok", "port": int(text)}


async def _protocol_listener(reading: Reading) -> Any:
    """Answer for a protocol by RabbitMQ's name. AMQP 0-9-1 and 1.0 share listeners."""
    wanted = reading.names["protocol"].lower()
    scheme = _SCHEMES.get(wanted, wanted)
    found = [url.partition("://")[0] for url in (await reading.ask("status"))["listeners"]]
    if scheme not in found:
        raise HealthFailure("No active listener", missing=wanted)
    return {"status": "ok", "protocol": wanted}


async def _fine(reading: Reading) -> Any:
    """Answer for what a single broker cannot lack."""
    del reading
    return {"status": "ok"}


# -- virtual hosts, users and permissions


async def _vhosts(reading: Reading) -> Any:
    visible, totals = await reading.visible(), await reading.ask("counter.totals")
    found = [
        shapes.vhost(row, totals["vhosts"].get(row["name"], {}), node_name(totals))
        for row in await reading.ask("vhost.list")
        if visible is None or row["name"] in visible
    ]
    return reading.listed(found)


async def _vhost(reading: Reading) -> Any:
    await reading.check_vhost(await reading.visible())
    totals = await reading.ask("counter.totals")
    row = reading.one(await reading.ask("vhost.list"), name=reading.names["vhost"])
    return shapes.vhost(row, totals["vhosts"].get(row["name"], {}), node_name(totals))


async def _users(reading: Reading) -> Any:
    return reading.listed([shapes.user(row) for row in await reading.ask("user.list")])


async def _user(reading: Reading) -> Any:
    return shapes.user(reading.one(await reading.ask("user.list"), name=reading.names["user"]))


def _permissions(operation: str) -> Callable[[Reading], Awaitable[Any]]:
    async def answer(reading: Reading) -> Any:
        wanted = {key: reading.names[key] for key in ("user", "vhost") if key in reading.names}
        rows = [row for row in await reading.ask(operation) if all(row[key] == value for key, value in wanted.items())]
        if "user" in wanted:
            await _user(reading)
        if "vhost" in wanted:
            await reading.check_vhost(None)
        return reading.listed(rows)

    return answer


async def _topic_permissions_of(reading: Reading) -> Any:
    """Answer with the topic permissions of a user in a virtual host. As in RabbitMQ, none are 404."""
    found = await _permissions("topic_permission.list")(reading)
    if not found:
        raise NothingThere
    return found


async def _permission(reading: Reading) -> Any:
    return reading.one(await reading.ask("permission.list"), **reading.names)


# -- exchanges, queues and bindings


async def _exchanges(reading: Reading) -> Any:
    return reading.listed([shapes.exchange(row) for row in await reading.rows("exchange.list")])


async def _exchange(reading: Reading) -> Any:
    name = reading.names["name"]
    return shapes.exchange(reading.one(await reading.rows("exchange.list"), name="" if name == "amq.default" else name))


async def _queues(reading: Reading) -> Any:
    visible, vhost = await reading.visible(), reading.vhost
    if vhost is not None:
        await reading.check_vhost(visible)
        visible = frozenset((vhost,))
    rows = await reading.lists.queues.current()
    if visible is not None:
        rows = [row for row in rows if row.fixed["vhost"] in visible]
    return await reading.listed_kept(reading.lists.queues, rows)


async def _queue(reading: Reading) -> Any:
    await reading.check_vhost(await reading.visible())
    try:
        row = await reading.ask("queue.show", vhost=reading.vhost, name=reading.names["name"])
    except BrokerRefused as refused:
        if refused.missing:
            raise NothingThere from refused
        raise
    return shapes.queue(row, await reading.node())


async def _shaped_bindings(reading: Reading) -> list[dict[str, Any]]:
    return [shapes.binding(row) for row in await reading.rows("binding.list")]


async def _bindings(reading: Reading) -> Any:
    return reading.listed(await _shaped_bindings(reading))


def _bindings_of(end: str, kind: str) -> Callable[[Reading], Awaitable[Any]]:
    """Return the answer with the bindings that have the object in the path as their source or destination."""

    async def answer(reading: Reading) -> Any:
        name = reading.names["name"]
        await (_exchange if kind == "exchange" else _queue)(reading)
        wanted = "" if kind == "exchange" and name == "amq.default" else name
        rows = [row for row in await _shaped_bindings(reading) if row[end] == wanted]
        return reading.listed([row for row in rows if end == "source" or row["destination_type"] == kind])

    return answer


# -- clients


async def _visible_connections(reading: Reading, **wanted: str | None) -> list[KeptRow]:
    """Return the connections that the user sees and that describe themselves with these values."""
    own = {} if MONITORS & set(reading.operator.tags) else {"user": reading.operator.user}
    conditions = [*wanted.items(), *own.items()]
    return [
        row
        for row in await reading.lists.connections.current()
        if all(described(row.variable).get(name, "") == value for name, value in conditions)
    ]


async def _connections(reading: Reading) -> Any:
    return await reading.listed_kept(reading.lists.connections, await _visible_connections(reading))


async def _connection(reading: Reading) -> Any:
    for row in await _visible_connections(reading):
        if row.fixed["peer"] == reading.names["name"]:
            return row.shape(await reading.node())
    raise NothingThere


async def _user_connections(reading: Reading) -> Any:
    rows = await _visible_connections(reading, user=reading.names["user"])
    return await reading.listed_kept(reading.lists.connections, rows)


async def _vhost_connections(reading: Reading) -> Any:
    await reading.check_vhost(await reading.visible())
    rows = await _visible_connections(reading, vhost=reading.vhost)
    return await reading.listed_kept(reading.lists.connections, rows)


async def _consumers(reading: Reading) -> Any:
    rows, node = await reading.rows("consumer.list"), await reading.node()
    return reading.listed([shapes.consumer(row, node) for row in rows])


def _limits(operation: str, owner: str, names: Mapping[str, str]) -> Callable[[Reading], Awaitable[Any]]:
    """Return the answer with the limits that are set, of the virtual host or user in the path, or of all."""

    async def answer(reading: Reading) -> Any:
        rows = await reading.ask(operation)
        if owner in reading.names:
            rows = [reading.one(rows, name=reading.names[owner])]
        found = [
            {owner: row["name"], "value": {name: row[field] for name, field in names.items() if row[field] is not None}}
            for row in rows
        ]
        return reading.listed([row for row in found if row["value"]])

    return answer


async def _users_without_permissions(reading: Reading) -> Any:
    permitted = {row["user"] for row in await reading.ask("permission.list")}
    rows = [row for row in await reading.ask("user.list") if row["name"] not in permitted]
    return reading.listed([shapes.user(row) for row in rows])


def _bindings_between(kind: str) -> Callable[[Reading], Awaitable[Any]]:
    """Return the answer with the bindings between the two ends in the path, or with the one that is named there."""

    async def answer(reading: Reading) -> Any:
        names = reading.names
        ends = {
            "source": "" if names["source"] == "amq.default" else names["source"],
            "destination": names["destination"],
            "destination_type": kind,
        }
        rows = [row for row in await _shaped_bindings(reading) if all(row[key] == end for key, end in ends.items())]
        return reading.one(rows, properties_key=names["properties"]) if "properties" in names else reading.listed(rows)

    return answer


class ReadRoute(NamedTuple):
    """The answer to a path, and the tags of which a user needs one."""

    answer: Callable[[Reading], Awaitable[Any]]
    tags: frozenset[str] = MANAGEMENT


READ_ROUTES: Final[Mapping[str, ReadRoute]] = {
    "overview": ReadRoute(_overview),
    "whoami": ReadRoute(_whoami),
    "cluster-name": ReadRoute(_cluster_name),
    "nodes": ReadRoute(_nodes, MONITORS),
    "nodes/{name}": ReadRoute(_node, MONITORS),
    "health/checks/alarms": ReadRoute(_alarms),
    "health/checks/local-alarms": ReadRoute(_alarms),
    "health/checks/port-listener/{port}": ReadRoute(_port_listener),
    "health/checks/protocol-listener/{protocol}": ReadRoute(_protocol_listener),
    "health/checks/virtual-hosts": ReadRoute(_fine),
    "health/checks/node-is-quorum-critical": ReadRoute(_fine),
    "health/checks/node-is-mirror-sync-critical": ReadRoute(_fine),
    "vhosts": ReadRoute(_vhosts),
    "vhosts/{vhost}": ReadRoute(_vhost),
    "vhosts/{vhost}/permissions": ReadRoute(_permissions("permission.list"), ADMINISTRATORS),
    "vhosts/{vhost}/topic-permissions": ReadRoute(_permissions("topic_permission.list"), ADMINISTRATORS),
    "vhosts/{vhost}/connections": ReadRoute(_vhost_connections),
    "vhost-limits": ReadRoute(_limits("vhost.list", "vhost", VHOST_LIMITS), ADMINISTRATORS),
    "vhost-limits/{vhost}": ReadRoute(_limits("vhost.list", "vhost", VHOST_LIMITS), ADMINISTRATORS),
    "user-limits": ReadRoute(_limits("user.list", "user", USER_LIMITS), ADMINISTRATORS),
    "user-limits/{user}": ReadRoute(_limits("user.list", "user", USER_LIMITS), ADMINISTRATORS),
    "users": ReadRoute(_users, ADMINISTRATORS),
    "users/without-permissions": ReadRoute(_users_without_permissions, ADMINISTRATORS),
    "users/{user}": ReadRoute(_user, ADMINISTRATORS),
    "users/{user}/permissions": ReadRoute(_permissions("permission.list"), ADMINISTRATORS),
    "users/{user}/topic-permissions": ReadRoute(_permissions("topic_permission.list"), ADMINISTRATORS),
    "permissions": ReadRoute(_permissions("permission.list"), ADMINISTRATORS),
    "permissions/{vhost}/{user}": ReadRoute(_permission, ADMINISTRATORS),
    "topic-permissions": ReadRoute(_permissions("topic_permission.list"), ADMINISTRATORS),
    "topic-permissions/{vhost}/{user}": ReadRoute(_topic_permissions_of, ADMINISTRATORS),
    "exchanges": ReadRoute(_exchanges),
    "exchanges/{vhost}": ReadRoute(_exchanges),
    "exchanges/{vhost}/{name}": ReadRoute(_exchange),
    "exchanges/{vhost}/{name}/bindings/source": ReadRoute(_bindings_of("source", "exchange")),
    "exchanges/{vhost}/{name}/bindings/destination": ReadRoute(_bindings_of("destination", "exchange")),
    "queues": ReadRoute(_queues),
    "queues/{vhost}": ReadRoute(_queues),
    "queues/{vhost}/{name}": ReadRoute(_queue),
    "queues/{vhost}/{name}/bindings": ReadRoute(_bindings_of("destination", "queue")),
    "bindings": ReadRoute(_bindings),
    "bindings/{vhost}": ReadRoute(_bindings),
    "bindings/{vhost}/e/{source}/q/{destination}": ReadRoute(_bindings_between("queue")),
    "bindings/{vhost}/e/{source}/e/{destination}": ReadRoute(_bindings_between("exchange")),
    "bindings/{vhost}/e/{source}/q/{destination}/{properties}": ReadRoute(_bindings_between("queue")),
    "bindings/{vhost}/e/{source}/e/{destination}/{properties}": ReadRoute(_bindings_between("exchange")),
    "connections": ReadRoute(_connections),
    "connections/{name}": ReadRoute(_connection),
    "connections/username/{user}": ReadRoute(_user_connections),
    "consumers": ReadRoute(_consumers),
    "consumers/{vhost}": ReadRoute(_consumers),
}
"""By path below `/api/`. A user without one of the tags gets 401, as in RabbitMQ."""
