"""The intended differences between the answers of EscrowMQ and RabbitMQ. docs/clients.md explains them to users."""

from __future__ import annotations

from typing import Final

# For each scenario: RabbitMQ's answers, and EscrowMQ's answers in their place.
DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "access.permissions": {
        # Topic permissions apply to every routing key of a message.
        "topic, a copy refused: None": (
            "topic, a copy refused: channel closed, 403 ACCESS_REFUSED - access to topic 'refused.k' in exchange "
            "'amq.topic' in vhost '/' refused for user 'limited'"
        ),
    },
    "errors.not_found": {
        # In a passive declaration, as in other methods, an empty name means the queue that the channel declared last.
        "declare passively, no name: channel closed, 404 NOT_FOUND - no queue '' in vhost '/'": (
            "declare passively, no name: channel closed, 404 NOT_FOUND - no previously declared queue"
        ),
    },
    "errors.locked": {
        # No other connection can use an exclusive queue in any way (rule EXC-2).
        "unbind: UnbindOk{}": (
            "unbind: channel closed, 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
            "'errors.locked.q' in vhost '/'. It could be originally declared on another connection or the exclusive "
            "property value does not match that of the original declaration."
        ),
    },
    "errors.modes": {
        # Keys that are not strings are refused, not ignored.
        "BCC of numbers: None": (
            "BCC of numbers: channel closed, 406 PRECONDITION_FAILED - unexpected item in header 'BCC': "
            "strings are needed"
        ),
        "delete: DeleteOk{message_count=4}": "delete: DeleteOk{message_count=3}",
    },
    "arguments.quorum": {
        "quorum, x-delivery-limit='5': DeclareOk{consumer_count=0, message_count=0, queue='arguments.quorum.q'}": (
            "quorum, x-delivery-limit='5': channel closed, 406 PRECONDITION_FAILED - invalid arg 'x-delivery-limit' "
            "for queue 'arguments.quorum.q' in vhost '/': \"expected integer, got longstr\""
        ),
    },
    "arguments.streams": {
        # RabbitMQ closes the connection, EscrowMQ only the channel.
        "no ack: connection closed, 540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues "
        "queue 'arguments.streams.q' in vhost '/'": (
            "no ack: channel closed, 406 PRECONDITION_FAILED - no_ack is not supported for stream queue "
            "'arguments.streams.q' in vhost '/'"
        ),
    },
}

# Refusals with the same code but another text, because RabbitMQ's text is an Erlang term, or says less.
OWN_WORDS: Final = (
    "expiration no number",
    "expiration negative",
    "expiration empty",
    "expiration huge",
    "expiration 315360000001",
    "CC is no list",
    "get",
    "purge",
    "no prefetch",
    "exchange type ''",
)


def expected(scenario: str, line: str, here: str) -> str:
    """Return the line that EscrowMQ must produce where RabbitMQ produced `line`.

    `here` is the line that EscrowMQ has produced. It is accepted if only its code is determined.
    """
    step, _, answer = line.partition(": ")
    if "541 INTERNAL_ERROR" in answer:  # RabbitMQ crashed on a bad value, which EscrowMQ refuses
        prefix = f"{step}: channel closed, 406 PRECONDITION_FAILED - "
        return here if here.startswith(prefix) else prefix
    if step in OWN_WORDS and " closed, " in answer:
        prefix = line.partition(" - ")[0]
        return here if here.startswith(prefix) else prefix
    return DIFFERENCES.get(scenario, {}).get(line, line)
