"""The rights that each operation needs, as data (SEC-1). `access.door` enforces the table.

A row names an operation, and for each object that it concerns the right that the user must have on it. Configure, write
and read are patterns in the user's permissions. See and decide belong to the owner of an object, to users whose
permissions cover everything that the object concerns, and to tags (`access.door`). An operation without needs is open
to every user of the virtual host, because it acts only on the client's own channel or reveals nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Object(StrEnum):
    """The part that an object plays in an operation."""

    QUEUE = "queue"
    EXCHANGE = "exchange"
    DESTINATION = "destination"
    """The exchange to which another one is bound."""
    ALTERNATE = "alternate"
    """The exchange that receives messages which another one cannot route."""
    DEAD_LETTER = "dead_letter"
    """The exchange that receives the dead letters of a queue."""
    KEY = "key"
    """The routing key. It is compared with the topic permissions of `EXCHANGE` if that is a topic exchange."""
    DEAD_LETTER_KEY = "dead_letter_key"
    """The routing key of dead letters, likewise for `DEAD_LETTER`. None stands for any key."""
    BRANCH = "branch"
    PROGRESS = "progress"
    """An application's progress."""
    RESERVATION = "reservation"
    HALF = "half"
    """A half message."""


class Right(StrEnum):
    """The right that a user needs on an object."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"
    ANY = "configure, write or read"
    """Any of the three. Whoever may use an object may know of it."""
    WRITE_EVERY_KEY = "write with every routing key"
    """No topic permission restricts the keys, because those of the messages are not known when a way is set up."""
    SEE = "see"
    DECIDE = "decide"


class Operation(StrEnum):
    """An operation that a client can ask for, in the words of no particular protocol."""

    OPEN_VHOST = "open and close a connection to a virtual host"
    USE_CHANNEL = "open, close and configure a channel"
    PUBLISH = "publish"
    CONSUME = "consume"
    GET = "get a message"
    CANCEL = "cancel a consumer"
    SETTLE = "settle or recover deliveries"
    TRANSACT = "begin, commit and roll back a local transaction"
    DECLARE_EXCHANGE = "declare an exchange"
    SET_ALTERNATE = "set an alternate exchange"
    LOOK_UP_EXCHANGE = "check that an exchange exists"
    DELETE_EXCHANGE = "delete an exchange"
    BIND_EXCHANGE = "bind an exchange"
    UNBIND_EXCHANGE = "unbind an exchange"
    LIST_BINDINGS = "list the bindings from an exchange to one destination"
    DECLARE_QUEUE = "declare a queue"
    SET_DEAD_LETTER = "set a dead-letter exchange"
    LOOK_UP_QUEUE = "check that a queue exists"
    DELETE_QUEUE = "delete a queue"
    BIND_QUEUE = "bind a queue"
    UNBIND_QUEUE = "unbind a queue"
    PURGE_QUEUE = "purge a queue"
    START_BRANCH = "start a branch"
    JOIN_BRANCH = "join a branch"
    LEAVE_BRANCH = "end, suspend or resume the own association with a branch"
    PREPARE_BRANCH = "prepare a branch"
    COMMIT_BRANCH = "commit a branch"
    ROLL_BACK_BRANCH = "roll back a branch"
    FORGET_BRANCH = "forget a branch"
    LIST_BRANCH = "list a branch that is in doubt"
    GET_TIMEOUT = "read a branch's timeout"
    SET_TIMEOUT = "set a branch's timeout"
    DECIDE_BRANCH = "decide a branch of a global transaction"
    SET_PROGRESS = "set an application's progress"
    GET_PROGRESS = "read an application's progress"
    RESERVE = "reserve messages"
    READ_RESERVED = "read reserved messages"
    SETTLE_RESERVED = "settle reserved messages"
    RELEASE_RESERVED = "release reserved messages"
    STORE_HALF = "store a half message"
    DECIDE_HALF = "commit or roll back a half message"
    JOIN_PRODUCERS = "join a group of producers, which are asked about half messages"
    DESCRIBE_QUEUE = "describe a queue"
    LIST_QUEUE = "list a queue"
    DECLARE_TOPIC = "declare a topic, or add partitions to it"
    DELETE_TOPIC = "delete a topic"
    DESCRIBE_TOPIC = "describe a topic"
    DECLARE_GROUP = "declare a consumer group"
    DELETE_GROUP = "delete a consumer group"
    DESCRIBE_GROUP = "describe a consumer group"
    CONSUME_GROUP = "consume a topic for a consumer group"
    SETTLE_GROUP = "settle, or record progress, for a consumer group"
    RESET_GROUP = "reset the progress of a consumer group"


class Need(NamedTuple):
    object: Object
    right: Right


_QUEUE_CONFIGURE: Final = Need(Object.QUEUE, Right.CONFIGURE)
_QUEUE_WRITE: Final = Need(Object.QUEUE, Right.WRITE)
_QUEUE_READ: Final = Need(Object.QUEUE, Right.READ)
_EXCHANGE_CONFIGURE: Final = Need(Object.EXCHANGE, Right.CONFIGURE)
_EXCHANGE_WRITE: Final = Need(Object.EXCHANGE, Right.WRITE)
_EXCHANGE_READ: Final = Need(Object.EXCHANGE, Right.READ)
_DESTINATION_WRITE: Final = Need(Object.DESTINATION, Right.WRITE)
_KEY_READ: Final = Need(Object.KEY, Right.READ)
_BRANCH_DECIDE: Final = (Need(Object.BRANCH, Right.DECIDE),)
_BRANCH_SEE: Final = (Need(Object.BRANCH, Right.SEE),)
_RESERVATION: Final = (_QUEUE_READ, Need(Object.RESERVATION, Right.DECIDE))

TABLE: Final[Mapping[Operation, tuple[Need, ...]]] = {
    Operation.OPEN_VHOST: (),  # `Access.check_vhost`: any permission in the virtual host
    Operation.USE_CHANNEL: (),
    Operation.PUBLISH: (_EXCHANGE_WRITE, Need(Object.KEY, Right.WRITE)),
    Operation.CONSUME: (_QUEUE_READ,),
    Operation.GET: (_QUEUE_READ,),
    Operation.CANCEL: (),
    Operation.SETTLE: (),
    Operation.TRANSACT: (),
    Operation.DECLARE_EXCHANGE: (_EXCHANGE_CONFIGURE,),
    Operation.SET_ALTERNATE: (
        _EXCHANGE_READ,
        Need(Object.ALTERNATE, Right.WRITE),
        Need(Object.ALTERNATE, Right.WRITE_EVERY_KEY),
    ),
    Operation.LOOK_UP_EXCHANGE: (),
    Operation.DELETE_EXCHANGE: (_EXCHANGE_CONFIGURE,),
    Operation.BIND_EXCHANGE: (
        _DESTINATION_WRITE,
        _EXCHANGE_READ,
        _KEY_READ,
        Need(Object.DESTINATION, Right.WRITE_EVERY_KEY),
    ),
    Operation.UNBIND_EXCHANGE: (_DESTINATION_WRITE, _EXCHANGE_READ),
    Operation.LIST_BINDINGS: (_EXCHANGE_READ,),
    Operation.DECLARE_QUEUE: (_QUEUE_CONFIGURE,),
    Operation.SET_DEAD_LETTER: (
        _QUEUE_READ,
        Need(Object.DEAD_LETTER, Right.WRITE),
        Need(Object.DEAD_LETTER_KEY, Right.WRITE),
    ),
    Operation.LOOK_UP_QUEUE: (),
    Operation.DELETE_QUEUE: (_QUEUE_CONFIGURE,),
    Operation.BIND_QUEUE: (_QUEUE_WRITE, _EXCHANGE_READ, _KEY_READ),
    Operation.UNBIND_QUEUE: (_QUEUE_WRITE, _EXCHANGE_READ),
    Operation.PURGE_QUEUE: (_QUEUE_READ,),
    Operation.START_BRANCH: (),
    Operation.JOIN_BRANCH: _BRANCH_DECIDE,
    Operation.LEAVE_BRANCH: (),
    Operation.PREPARE_BRANCH: _BRANCH_DECIDE,
    Operation.COMMIT_BRANCH: _BRANCH_DECIDE,
    Operation.ROLL_BACK_BRANCH: _BRANCH_DECIDE,
    Operation.FORGET_BRANCH: _BRANCH_DECIDE,
    Operation.LIST_BRANCH: _BRANCH_SEE,
    Operation.GET_TIMEOUT: _BRANCH_SEE,
    Operation.SET_TIMEOUT: _BRANCH_DECIDE,
    Operation.DECIDE_BRANCH: _BRANCH_DECIDE,
    Operation.SET_PROGRESS: (Need(Object.PROGRESS, Right.DECIDE),),
    Operation.GET_PROGRESS: (Need(Object.PROGRESS, Right.SEE),),
    Operation.RESERVE: _RESERVATION,
    Operation.READ_RESERVED: (_QUEUE_READ, Need(Object.RESERVATION, Right.SEE)),
    Operation.SETTLE_RESERVED: _RESERVATION,
    Operation.RELEASE_RESERVED: _RESERVATION,
    Operation.STORE_HALF: (_EXCHANGE_WRITE, Need(Object.KEY, Right.WRITE)),
    Operation.DECIDE_HALF: (Need(Object.HALF, Right.DECIDE),),
    Operation.JOIN_PRODUCERS: (),  # `half.checks`: only producers that may decide a half message are asked about it
    Operation.DESCRIBE_QUEUE: (_QUEUE_READ,),
    Operation.LIST_QUEUE: (_QUEUE_READ,),
    # A topic is an exchange. The name of a consumer group is compared with the patterns for queues.
    Operation.DECLARE_TOPIC: (_EXCHANGE_CONFIGURE,),
    Operation.DELETE_TOPIC: (_EXCHANGE_CONFIGURE,),
    Operation.DESCRIBE_TOPIC: (Need(Object.EXCHANGE, Right.ANY),),
    Operation.DECLARE_GROUP: (_QUEUE_CONFIGURE,),
    Operation.DELETE_GROUP: (_QUEUE_CONFIGURE,),
    Operation.DESCRIBE_GROUP: (_QUEUE_READ,),
    Operation.CONSUME_GROUP: (_EXCHANGE_READ, _QUEUE_READ),
    Operation.SETTLE_GROUP: (_QUEUE_READ,),
    Operation.RESET_GROUP: (_QUEUE_CONFIGURE,),
}
"""Every operation; one that is missing is refused."""

READS: Final[Mapping[Operation, tuple[Need, ...]]] = {
    operation: TABLE[operation]
    for operation in (
        Operation.OPEN_VHOST,
        Operation.USE_CHANNEL,
        Operation.READ_RESERVED,
        Operation.DESCRIBE_QUEUE,
        Operation.LIST_QUEUE,
        Operation.DESCRIBE_TOPIC,
    )
}
"""The operations of a broker whose changes would be lost, because it serves a copy of a journal. None of them changes
anything.
"""
