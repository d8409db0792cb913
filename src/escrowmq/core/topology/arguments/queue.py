"""Arguments of queues: a row for each with its check, its option and the types of queue that use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import type_name
from escrowmq.core.topology.arguments.checks import (
    Check,
    Refused,
    at_most,
    boolean,
    duration,
    integer,
    natural,
    one_of,
    period,
    positive,
    routing_key,
    short_of_a_decade,
    text,
    version,
)

QueueType: TypeAlias = Literal["classic", "quorum", "stream"]
Overflow: TypeAlias = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
DeadLetterStrategy: TypeAlias = Literal["at-most-once", "at-least-once"]

TYPE_ARGUMENT: Final = "x-queue-type"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
MAX_PRIORITY: Final = 255


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The decoded arguments of a queue. None means no limit, or not requested.

    Times are in milliseconds, sizes in bytes. `max_priority` is the highest priority; the lowest is 0. `delivery_limit`
    says how often an entry may be returned before it is dead-lettered.
    """

    queue_type: QueueType = "classic"
    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: DeadLetterStrategy = "at-most-once"
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    max_age: int | None = None
    max_segment_bytes: int | None = None


class Argument(NamedTuple):
    """The check of an argument, and its field of `QueueOptions`. Without a field, the argument is accepted and has no
    effect.

    Arguments without effect here concern how RabbitMQ stores a queue: memory limits, modes, versions, placement of
    replicas.
    """

    check: Check
    option: str | None = None


# In the order in which they are checked.
ARGUMENTS: Final[Mapping[str, Argument]] = MappingProxyType(
    {
        "x-expires": Argument(positive(then=short_of_a_decade), "expires"),
        "x-message-ttl": Argument(duration, "message_ttl"),
        DEAD_LETTER_EXCHANGE: Argument(text, "dead_letter_exchange"),
        "x-dead-letter-routing-key": Argument(routing_key(DEAD_LETTER_EXCHANGE), "dead_letter_routing_key"),
        "x-dead-letter-strategy": Argument(
            one_of("at-most-once", "at-least-once", otherwise="invalid_dlx_strategy"), "dead_letter_strategy"
        ),
        "x-max-length": Argument(natural, "max_length"),
        "x-max-length-bytes": Argument(natural, "max_length_bytes"),
        "x-max-in-memory-length": Argument(natural),
        "x-max-in-memory-bytes": Argument(natural),
        "x-max-priority": Argument(at_most(MAX_PRIORITY), "max_priority"),
        "x-overflow": Argument(
            one_of("drop-head", "reject-publish", "reject-publish-dlx", otherwise="invalid_overflow"), "overflow"
        ),
        "x-queue-mode": Argument(one_of("default", "lazy", otherwise="\"unsupported queue mode '{}'\"")),
        "x-queue-version": Argument(version),
        "x-single-active-consumer": Argument(boolean, "single_active_consumer"),
        TYPE_ARGUMENT: Argument(
            one_of("classic", "quorum", "stream", otherwise="\"unsupported queue type '{}'\""), "queue_type"
        ),
        "x-queue-master-locator": Argument(
            one_of("client-local", "min-masters", "random", otherwise="invalid_queue_locator_arg")
        ),
        "x-quorum-initial-group-size": Argument(positive()),
        "x-delivery-limit": Argument(integer, "delivery_limit"),
        "x-max-age": Argument(period("invalid_max_age"), "max_age"),
        "x-stream-max-segment-size-bytes": Argument(natural, "max_segment_bytes"),
        "x-initial-cluster-size": Argument(positive()),
        "x-queue-leader-locator": Argument(
            one_of("client-local", "balanced", "random", "least-leaders", otherwise="invalid_queue_locator_arg")
        ),
    }
)

# In the order in which they are compared when a queue is declared again.
USED_BY: Final[Mapping[QueueType, tuple[str, ...]]] = MappingProxyType(
    {
        "classic": (
            "x-expires",
            "x-message-ttl",
            DEAD_LETTER_EXCHANGE,
            "x-dead-letter-routing-key",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-priority",
            "x-overflow",
            "x-queue-mode",
            "x-queue-version",
            "x-single-active-consumer",
            TYPE_ARGUMENT,
            "x-queue-master-locator",
        ),
        "quorum": (
            DEAD_LETTER_EXCHANGE,
            "x-dead-letter-routing-key",
            "x-dead-letter-strategy",
            "x-expires",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-overflow",
            "x-single-active-consumer",
            TYPE_ARGUMENT,
            "x-quorum-initial-group-size",
            "x-delivery-limit",
            "x-message-ttl",
            "x-queue-leader-locator",
        ),
        "stream": (
            "x-max-length-bytes",
            TYPE_ARGUMENT,
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size",
            "x-queue-leader-locator",
        ),
    }
)


def type_of(arguments: Mapping[str, object]) -> QueueType:
    """Return the type of queue that the checked arguments request."""
    return cast("QueueType", arguments.get(TYPE_ARGUMENT, "classic"))


def queue_options(
    vhost: str,
    name: str,
    arguments: Mapping[str, object],
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> QueueOptions:
    """Check and decode the arguments of a new queue. Unknown arguments are accepted.

    Raises PRECONDITION_FAILED with the text of RabbitMQ 3.10. Invalid values that RabbitMQ accepts or crashes on
    (x-delivery-limit, x-max-age, x-queue-master-locator) are refused in the same form.
    """
    what = f"queue '{name}' in vhost '{vhost}'"
    dead_letter_exchange = arguments.get(DEAD_LETTER_EXCHANGE, "")
    if not isinstance(dead_letter_exchange, str):
        wrong = type_name(dead_letter_exchange)
        raise BrokerError(
            Condition.PRECONDITION_FAILED, f"invalid type '{wrong}' for arg '{DEAD_LETTER_EXCHANGE}' in {what}"
        )
    check_argument(TYPE_ARGUMENT, ARGUMENTS[TYPE_ARGUMENT].check, arguments, what)
    kind = type_of(arguments)
    used = USED_BY[kind]
    decoded: dict[str, Any] = {}
    for argument, (check, option) in ARGUMENTS.items():
        if argument in arguments and argument in used:
            value = check_argument(argument, check, arguments, what)
            if option is not None:
                decoded[option] = value
    refuse_unused(arguments, ARGUMENTS, used, kind, what)
    if kind != "classic":
        _refuse_passing(what, durable=durable, exclusive=exclusive, auto_delete=auto_delete)
    options = QueueOptions(**decoded)
    if options.delivery_limit is not None and options.delivery_limit < 0:
        options = replace(options, delivery_limit=None)
    return options


def check_argument(argument: str, check: Check, arguments: Mapping[str, object], what: str) -> object:
    """Return the decoded value of an argument, or None if it is absent. `what` names the declared object in error
    texts.
    """
    if argument not in arguments:
        return None
    try:
        return check(arguments[argument], arguments)
    except Refused as refused:
        raise BrokerError(
            Condition.PRECONDITION_FAILED, f"invalid arg '{argument}' for {what}: {refused.reason}"
        ) from None


def refuse_unused(
    arguments: Mapping[str, object], known: Mapping[str, Any], used: tuple[str, ...], kind: QueueType, what: str
) -> None:
    """Raises PRECONDITION_FAILED for a known argument that queues of this type do not use."""
    for argument in arguments:
        if argument in known and argument not in used:
            raise BrokerError(
                Condition.PRECONDITION_FAILED, f"invalid arg '{argument}' for {what} of queue type rabbit_{kind}_queue"
            )


def _refuse_passing(what: str, *, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    wrong = "auto-delete" if auto_delete else "exclusive-owner" if exclusive else "non-durable" if not durable else None
    if wrong is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, f"invalid property '{wrong}' for {what}")
