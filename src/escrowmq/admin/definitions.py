"""Operations that export and import definitions: users, virtual hosts, exchanges, queues and so on.

A file is assembled and divided by `escrowmq.definitions`. Both directions are done in pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from escrowmq.admin.authority import checked_arguments, checked_name
from escrowmq.admin.bindings import EXCHANGE
from escrowmq.admin.operation import Listing, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.policies import policy_row
from escrowmq.admin.ports import BrokerProcess
from escrowmq.admin.values import NESTED, is_nested
from escrowmq.core.access.imported import DEFAULT_ALGORITHM, exported, imported
from escrowmq.core.access.permissions import User
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.policies.policy import Policy
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.vhost import RESERVED_PREFIX, VirtualHost

_log = logging.getLogger("escrowmq.admin")

VHOST_LIMITS: Final = "vhost-limits"
"""The component of the parameters that are limits of virtual hosts."""


_NAMES: Final = ("name", "user", "vhost", "source", "destination")
"""The fields by which a refusal says which object of a file it is about."""
_LONGEST_NAMES: Final = 600


class DefinitionAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._access = process.broker.access
        self._directory = process.broker.directory
        self._pieces = pieces
        self._session = Session("operator")
        self.operations: Mapping[str, Operation] = {
            "definitions.export": self.export,
            "definitions.import": self.import_,
        }

    async def export(self, vhost: str | None = None) -> Listing:
        """Return every definition, with hashes of passwords, or those of one virtual host, each as `section` and
        `object`. Raises BrokerError for an unknown virtual host.
        """
        if vhost is not None:
            self._directory.vhost(vhost)
        return Listing(self._pieces, self._rows(vhost))

    async def import_(self, section: str, objects: list[dict[str, Any]]) -> int:
        """Make objects of one section that do not exist, and set users, permissions and limits. Return the number of
        objects. Exchanges and queues that exist stay as they are. Bindings of exchanges or queues that do not exist are
        passed over, with a warning in the log. If an object is refused, those before it have been made.
        Raises OperationRefused, BrokerError.
        """
        if is_nested(objects):
            raise OperationRefused(NESTED)
        make = getattr(self, f"_import_{section}", None)
        if make is None:
            raise OperationRefused(f"unknown section {section!r}")
        try:
            await self._pieces.result(self._importing(make, section, objects))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OperationRefused(f"a definition in {section!r} is malformed: {error!r}") from error
        finally:
            await self._process.durably(lambda: None)
        return len(objects)

    def _importing(self, make: Any, section: str, objects: list[dict[str, Any]]) -> Generator[None, None, None]:
        for each in objects:
            self._process.begin()
            try:
                make(each)
            except BrokerError as error:
                names = ", ".join(f"{name} {each[name]!r}" for name in _NAMES if name in each)
                raise BrokerError(error.condition, f"{error.text} (in {section}: {names[:_LONGEST_NAMES]})") from error
            yield

    # -- import, by section

    def _import_vhosts(self, given: Mapping[str, Any]) -> None:
        self._directory.add_vhost(checked_name(given["name"], "name of a virtual host"))

    def _import_users(self, given: Mapping[str, Any]) -> None:
        name, tags = checked_name(given["name"], "name of a user"), given.get("tags", [])
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()] if isinstance(tags, str) else tags
        if not all(isinstance(text, str) for text in (*tags, *given.get("scram_hashes", ()))):
            raise ValueError("tags and hashes are texts")
        password_hash = imported(given.get("password_hash") or "", given.get("hashing_algorithm") or DEFAULT_ALGORITHM)
        scram_hashes = tuple(given.get("scram_hashes", ()))
        if name not in self._access.users:
            self._access.add_user(name, password_hash, tuple(tags), scram_hashes)
        else:
            self._access.set_password(name, password_hash, scram_hashes)
            self._access.set_tags(name, tuple(tags))
        limits = given.get("limits") or {}
        self._directory.record_access(
            self._access.set_user_limits(name, _limit(limits, "max-connections"), _limit(limits, "max-channels"))
        )

    def _import_permissions(self, given: Mapping[str, Any]) -> None:
        names = [given[key] for key in ("user", "vhost", "configure", "write", "read")]
        self._directory.record_access(self._access.set_permission(*names))

    def _import_topic_permissions(self, given: Mapping[str, Any]) -> None:
        names = [given[key] for key in ("user", "vhost", "exchange", "write", "read")]
        self._directory.record_access(self._access.set_topic_permission(*names))

    def _import_parameters(self, given: Mapping[str, Any]) -> None:
        if given["component"] == VHOST_LIMITS:
            limits = given["value"]
            self._directory.record_access(
                self._access.set_vhost_limits(
                    given["vhost"], _limit(limits, "max-connections"), _limit(limits, "max-queues")
                )
            )

    def _import_policies(self, given: Mapping[str, Any]) -> None:
        self._import_policy(given, "all", operator=False)

    def _import_operator_policies(self, given: Mapping[str, Any]) -> None:
        self._import_policy(given, "queues", operator=True)

    def _import_policy(self, given: Mapping[str, Any], apply_to: str, *, operator: bool) -> None:
        name, definition = checked_name(given["name"], "name of a policy"), given.get("definition")
        if not isinstance(definition, dict):
            raise TypeError(f"policy {name!r} has no definition")
        priority, apply_to = given.get("priority") or 0, given.get("apply-to") or apply_to
        policy = Policy(given["vhost"], name, given["pattern"], definition, priority, apply_to, operator)
        self._directory.policies.put(policy)

    def _import_global_parameters(self, given: Mapping[str, Any]) -> None:
        self._directory.policies.parameters.put(checked_name(given["name"], "name of a parameter"), given["value"])

    def _import_exchanges(self, given: Mapping[str, Any]) -> None:
        vhost = self._directory.vhost(given["vhost"])
        if checked_name(given["name"], "name of an exchange") not in vhost.exchanges:
            flags: dict[str, Any] = {
                key: bool(given.get(key, key == "durable")) for key in ("durable", "auto_delete", "internal")
            }
            arguments = self._arguments(given)
            self._directory.declare_exchange(vhost, given["name"], given["type"], arguments=arguments, **flags)

    def _import_queues(self, given: Mapping[str, Any]) -> None:
        vhost = self._directory.vhost(given["vhost"])
        if checked_name(given["name"], "name of a queue") not in vhost.queues:
            durable, auto_delete = bool(given.get("durable", True)), bool(given.get("auto_delete", False))
            declaration = Declaration(durable, False, auto_delete, self._arguments(given))
            self._directory.declare_queue(vhost, given["name"], declaration, self._session)

    def _import_bindings(self, given: Mapping[str, Any]) -> None:
        vhost = self._directory.vhost(given["vhost"])
        to_exchange = given["destination_type"] == EXCHANGE
        bind = self._directory.bind_exchange if to_exchange else self._directory.bind_queue
        key, arguments = checked_name(given["routing_key"], "routing key"), self._arguments(given)
        try:
            bind(vhost, given["source"], given["destination"], key, arguments)
        except BrokerError as error:
            if error.condition is not Condition.NOT_FOUND:
                raise
            # RabbitMQ exports the bindings of internal exchanges and of exclusive queues, but not these exchanges and
            # queues, and passes over such bindings in imports.
            _log.warning(
                "the binding of %s '%s' to exchange '%s' in vhost '%s' is not imported: %s",
                *("exchange" if to_exchange else "queue", given["destination"], given["source"]),
                *(vhost.name, error.text),
            )

    def _arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return checked_arguments(given.get("arguments"), self._process.arguments_size)

    # -- export

    def _rows(self, only: str | None) -> Iterator[Row | None]:
        vhosts = list(self._directory.vhosts.values()) if only is None else [self._directory.vhost(only)]
        if only is None:
            yield from (_row("vhosts", {"name": vhost.name}) for vhost in vhosts)
            yield from (_row("users", _user(user)) for user in list(self._access.users.values()))
            for permission in list(self._access.permissions.values()):
                yield _row("permissions", _fields(permission, "user", "vhost", "configure", "write", "read"))
            for topic in list(self._access.topic_permissions.values()):
                yield _row("topic_permissions", _fields(topic, "user", "vhost", "exchange", "write", "read"))
            for name, value in list(self._directory.policies.parameters.values.items()):
                yield _row("global_parameters", {"name": name, "value": value})
        for vhost in vhosts:
            limits = self._access.vhosts[vhost.name]
            value = _set_limits({"max-connections": limits.max_connections, "max-queues": limits.max_queues})
            if value:
                found = {"vhost": vhost.name, "component": VHOST_LIMITS, "name": "limits", "value": value}
                yield _row("parameters", found)
            for policy in list(self._directory.policies.of(vhost.name)):
                fields = policy_row(policy)
                fields["apply-to"] = fields.pop("apply_to")
                yield _row("operator_policies" if policy.operator else "policies", fields)
            yield from _objects(vhost)


def _objects(vhost: VirtualHost[Queue]) -> Iterator[Row | None]:
    """Yield exchanges, queues and bindings, without those that exist by themselves: the system's exchanges, and the
    streams of topics. Exclusive queues belong to connections.
    """
    streams: set[str] = set()
    for exchange in list(vhost.exchanges.values()):
        if exchange.owns_destinations:
            streams.update(binding.destination.name for binding in exchange.bindings.values())
        if not exchange.name or exchange.name.startswith(RESERVED_PREFIX):
            yield None
            continue
        flags = _fields(exchange, "durable", "auto_delete", "internal")
        names = {"vhost": vhost.name, "name": exchange.name, "type": exchange.kind}
        yield _row("exchanges", names | flags | {"arguments": dict(exchange.arguments)})
    for queue in list(vhost.queues.values()):
        if queue.exclusive or queue.deleted or queue.name in streams:
            yield None
            continue
        arguments = dict(queue.arguments)
        yield _row("queues", _fields(queue, "vhost", "name", "durable", "auto_delete") | {"arguments": arguments})
    for binding in list(vhost.bindings()):
        destination = binding.destination
        if binding.source.owns_destinations or (isinstance(destination, Queue) and destination.exclusive):
            yield None
            continue
        yield _row(
            "bindings",
            {
                "vhost": vhost.name,
                "source": binding.source.name,
                "destination": destination.name,
                "destination_type": "exchange" if binding.to_exchange else "queue",
                "routing_key": binding.routing_key,
                "arguments": dict(binding.arguments),
            },
        )


def _user(user: User) -> dict[str, Any]:
    password_hash, algorithm = exported(user.password_hash)
    limits = _set_limits({"max-connections": user.max_connections, "max-channels": user.max_channels})
    found = {
        "name": user.name,
        "password_hash": password_hash,
        "hashing_algorithm": algorithm,
        "tags": list(user.tags),
        "limits": limits,
    }
    return found | ({"scram_hashes": list(user.scram_hashes)} if user.scram_hashes else {})


def _fields(given: object, *names: str) -> dict[str, Any]:
    return {name: getattr(given, name) for name in names}


def _set_limits(limits: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in limits.items() if value is not None}


def _limit(limits: Mapping[str, Any], name: str) -> int | None:
    """Return a limit; a negative one is none."""
    value = limits.get(name)
    return None if value is None or int(value) < 0 else int(value)


def _row(section: str, given: dict[str, Any]) -> Row:
    return {"section": section, "object": given}
