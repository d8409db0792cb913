"""The exceptions that `test_style.py` allows, each with its reason.

An entry that is no longer needed fails the test.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LONG_FUNCTIONS: Final[dict[str, str]] = {}
"""Functions of more than 70 lines: `path:name`, where the name of a method has its class in front."""


class Shared(NamedTuple):
    """The packages (or modules) below `escrowmq` that each define a class of one name, one word for each class."""

    packages: str
    reason: str


_BOTH_SIDES: Final = "the same thing seen from the client and from the broker; a program imports only one of them"
_FACES: Final = "AMQP's own word, and each package is one side of the protocol"
_SPECIFIED: Final = "the specification's word for a part of a frame, and an unrelated thing elsewhere"
_TYPES: Final = "a type of two protocols, which never import each other"
_LOCAL: Final = "an ordinary word for two unrelated things in packages that do not import each other"

SHARED_CLASS_NAMES: Final[dict[str, Shared]] = {
    "Address": Shared("core units wire", _LOCAL),
    "Answer": Shared("client xa", _LOCAL),
    "Answers": Shared("wire xa", _LOCAL),
    "Array": Shared("wire wire", _TYPES),
    "Batch": Shared("client core journal", _LOCAL),
    "BatchReader": Shared("core spark", "PySpark's word in one, the bulk reader's batches in the other"),
    "Block": Shared("client core pipeline", "messages in columns for a reader; the journal's block, read in two ways"),
    "Broken": Shared("demo demo", "private to two processes of the demo"),
    "Broker": Shared("core demo", "the broker itself, and the process that the demo starts and kills"),
    "BrokerFailed": Shared("client demo", "reply code 541, and a broker process of the demo that failed"),
    "Byte": Shared("wire wire", _TYPES),
    "Channel": Shared("client wire", _FACES),
    "Char": Shared("wire wire", _TYPES),
    "CodecError": Shared("wire wire", "octets that are malformed in one of two protocols"),
    "Command": Shared("wire wire", _SPECIFIED),
    "Confirms": Shared("client wire", _FACES),
    "Connection": Shared("amqp10 client perf wire wire wire", _FACES),
    "ConnectionState": Shared("amqp10 wire wire", _FACES),
    "Consumer": Shared("client core demo perf", _FACES),
    "Content": Shared("client wire wire", _FACES),
    "Coordinator": Shared("core wire", _SPECIFIED),
    "Decided": Shared("core demo", _LOCAL),
    "Decision": Shared("core pipeline xa", "a decision of the broker, the audit's view of it, and that of a manager"),
    "Deliveries": Shared("core wire", "the journal's record of deliveries, and their encoding in one protocol"),
    "Demarcation": Shared("core wire", "the core's port and the protocol's translation of it"),
    "Display": Shared("demo pipeline", "the progress line of two programs"),
    "Disposition": Shared("core wire", _SPECIFIED),
    "Endpoint": Shared("amqp10 spark wire", "an address in Spark's options, and one end of a connection"),
    "Error": Shared("client wire", _SPECIFIED),
    "Faults": Shared("journal server", "faults that a test injects, and those that the server reports"),
    "Float": Shared("wire wire wire", _TYPES),
    "Found": Shared("demo journal", _LOCAL),
    "Host": Shared(
        "core core core core core core core core core core core core core core core core core wire",
        "narrow ports, each named after the role that the host has for its user",
    ),
    **dict.fromkeys(("Int8", "Int16", "Int32"), Shared("wire wire", "the type of a protocol, and the neutral one")),
    "Layout": Shared("perf wire", _LOCAL),
    "Limits": Shared("core perf", _LOCAL),
    "Link": Shared("client wire", _LOCAL),
    "LinkEnd": Shared("amqp10 wire", _FACES),
    "LinkState": Shared("amqp10 wire", _FACES),
    "Message": Shared("amqp10 client wire", _BOTH_SIDES),
    "Options": Shared("pipeline spark", "the options of two programs"),
    "Outcome": Shared("core demo perf", _LOCAL),
    "Parameters": Shared("amqp10 client", "the parameters of two clients; a program imports only one of them"),
    "Part": Shared("core core spark wire", _LOCAL),
    "Peer": Shared("perf wire", _LOCAL),
    "Piece": Shared("core pipeline", _LOCAL),
    "Properties": Shared("wire wire", _TYPES),
    "Publisher": Shared("demo perf", "the publishers of two programs"),
    "Queue": Shared("core pipeline", "a queue, and the audit's row about a queue"),
    "QueueState": Shared("client core", "an answer about a queue, and a queue's columns in a snapshot"),
    "Receiver": Shared("amqp10 core", "the receiving end of a link, and the core's port to what takes deliveries"),
    "Reader": Shared("wire wire wire", "each reads the frames of one protocol"),
    "Refused": Shared("core xa", _LOCAL),
    "Released": Shared("core wire", _SPECIFIED),
    "Reply": Shared("wire wire", "a reply code of one protocol, and the completion of a command of another"),
    "Result": Shared("demo xa", _LOCAL),
    "RolledBack": Shared("client xa", "a branch that was rolled back, and a whole transaction"),
    "Run": Shared("client core", _BOTH_SIDES),
    "Scan": Shared("pipeline wire", _LOCAL),
    "Session": Shared("amqp10 core wire wire", _LOCAL),
    "Settle": Shared("client core", "a request, and an effect in the journal"),
    "Short": Shared("wire wire", _TYPES),
    "Source": Shared("core wire", _SPECIFIED),
    "State": Shared("client core pipeline wire", "each is the state of its module's one state machine"),
    "Tally": Shared("core demo", _LOCAL),
    "Target": Shared("core perf wire", _SPECIFIED),
    "Terminus": Shared("amqp10 core", "the client's and the broker's end of a link"),
    "Timestamp": Shared("core wire wire wire", "the journal's form of a time, and those of three protocols"),
    "UsageError": Shared("amqp10 xa", "the incorrect use of two libraries"),
    "Verdict": Shared("pipeline wire", _LOCAL),
    "Watch": Shared("core pipeline", _LOCAL),
    "Window": Shared("core journal", _LOCAL),
    **dict.fromkeys(
        ("UInt8", "UInt16", "UInt32", "UInt64"), Shared("wire wire", "the type of a protocol, and the neutral one")
    ),
    "Uuid": Shared("wire wire", _TYPES),
    "Written": Shared("pipeline spark", _LOCAL),
}
"""Class names that the package uses more than once."""
