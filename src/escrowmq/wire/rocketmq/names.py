"""Names of topics and consumer groups: which ones are valid, and which ones are RocketMQ's own."""

from __future__ import annotations

import re
from typing import Final

AUTO_CREATE: Final = "TBW102"
"""The topic whose route a producer asks for before it sends to a topic that does not exist yet."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATION_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARKING_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
RETRY: Final = "%RETRY%"
DEAD_LETTER: Final = "%DLQ%"
LONGEST_TOPIC: Final = 127
LONGEST_TAG: Final = 127
"""Characters. In UTF-8, a tag has at most 255 octets, because AMQP 0-9-1 delivers it as a routing key."""
_MOST_OCTETS: Final = 255
LONGEST_GROUP: Final = 120
"""Less than what clients allow, so that the names of a group's retry and dead-letter topics are valid."""

_FORBIDDEN: Final = frozenset(
    {
        "SCHEDULE_TOPIC_" + 4 * "X",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        HALF_TOPIC,
        OPERATION_TOPIC,
        PARKING_TOPIC,
        "TRANS_CHECK_MAXTIME_TOPIC",
        "rmq_sys_wheel_timer",
        AUTO_CREATE,
    }
)
_VALID: Final = re.compile(r"[%|A-Za-z0-9_-]+")


def topic_fault(name: str) -> str:
    """Return the reason why `name` cannot be that of a topic to send to or to create; empty if it can."""
    if not name:
        return "the topic is empty"
    if len(name) > LONGEST_TOPIC:
        return f"the topic has {len(name)} characters; at most {LONGEST_TOPIC} are allowed"
    if _VALID.fullmatch(name) is None:
        return f"the topic {name!r} has characters other than letters, digits, %, |, - and _"
    return f"the topic {name} is RocketMQ's own" if is_reserved(name) else ""


def tag_fault(tag: str) -> str:
    """Return the reason why `tag`, which may be empty, cannot be that of a message; empty if it can."""
    if len(tag) > LONGEST_TAG:
        return f"the tag has {len(tag)} characters; at most {LONGEST_TAG} are allowed"
    if tag.isascii():
        return ""
    try:
        size = len(tag.encode())
    except UnicodeEncodeError:
        return "the tag is not valid UTF-8"
    return f"the tag has {size} octets; at most {_MOST_OCTETS} are allowed" if size > _MOST_OCTETS else ""


def is_reserved(topic: str) -> bool:
    """Whether a name is that of a topic of RocketMQ's own, which clients can neither create, send to, nor delete."""
    return topic in _FORBIDDEN


def group_fault(name: str) -> str:
    """Return the reason why `name` cannot be that of a consumer group or producer group; empty if it can."""
    if not name:
        return "the group is empty"
    if len(name) > LONGEST_GROUP:
        return f"the group has {len(name)} characters; at most {LONGEST_GROUP} are allowed"
    if _VALID.fullmatch(name) is None:
        return f"the group {name!r} has characters other than letters, digits, %, |, - and _"
    return ""


def retry_topic(group: str) -> str:
    """Return the topic for messages that consumers of `group` failed to process."""
    return RETRY + group


def dead_letter_topic(group: str) -> str:
    """Return the topic for messages that `group` has given up."""
    return DEAD_LETTER + group


def group_of(topic: str) -> str | None:
    """Return the group to which a retry topic or a dead-letter topic belongs; None for any other topic."""
    for prefix in (RETRY, DEAD_LETTER):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None
