"""The queues of the simulated clients, and their properties for the oracle."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.simulation.ledger import DEAD, Operation, Queue

EXCHANGE: Final = "all"
NOWHERE: Final = "nowhere"

_TO_DEAD: Final[dict[str, Any]] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}

ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    DEAD: {},
    "a": {},
    "b": {},
    "c": {},  # deleted and declared again
    "priority": {"x-max-priority": 3},
    "transient": {},
    "letters": _TO_DEAD,
    "short": {**_TO_DEAD, "x-max-length": 5},
    "small": {"x-max-length": 4, "x-overflow": "reject-publish"},
    "retries": {**_TO_DEAD, "x-queue-type": "quorum", "x-delivery-limit": 2},
    "careless": {},  # consumed without acknowledgements
}
BOUND: Final = ("a", "short", "b", DEAD, "transient", "c")
"""Queues bound to the fanout exchange. `short` precedes the queue that receives its dead letters."""
DELETED: Final = ("c", "transient")
PURGED: Final = ("a", "b", "transient", "priority")


def declarations() -> list[Method]:
    """Return the methods that declare the exchange, the queues and the bindings."""
    methods: list[Method] = [spec.ExchangeDeclare(EXCHANGE, "fanout", durable=True)]
    for name, arguments in ARGUMENTS.items():
        methods.append(spec.QueueDeclare(name, durable=name != "transient", arguments=dict(arguments)))
    methods += [spec.QueueBind(name, EXCHANGE) for name in BOUND]
    return methods


def new_queue(method: spec.QueueDeclare, operation: Operation, owner: object | None) -> Queue:
    """Return the oracle's view of a newly declared queue."""
    arguments = method.arguments
    length = arguments.get("x-max-length")
    refuses = arguments.get("x-overflow") == "reject-publish"
    dropping = length is not None and not refuses
    limited = "x-delivery-limit" in arguments
    letters = "x-dead-letter-routing-key" in arguments
    highest = arguments.get("x-max-priority")
    return Queue(
        method.queue,
        method.durable and owner is None,  # EXC-3
        operation,
        lossy=dropping or limited or letters or method.queue == "careless",
        dead_letters=letters,
        refuses=refuses,
        priorities=highest if isinstance(highest, int) else 0,
        quorum=arguments.get("x-queue-type") == "quorum",
        limit=length if dropping and isinstance(length, int) else None,
        owner=owner,
    )
