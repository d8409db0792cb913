"""The intended differences between the answers of EscrowMQ and RocketMQ. docs/guides/rocketmq.md lists them for users.

The texts of refusals are EscrowMQ's own, and are not compared. Properties that RocketMQ adds when it stores a message,
and fields that clients do not need, are left out by the script.
"""

from __future__ import annotations

import re
from typing import Final

_TWO: Final = (
    "[\"TOPIC/0@0 'a' flag=0 sysFlag=0 failures=0 {KEYS=k0 TAGS=a "
    'UNIQ_KEY=FD0000000000000000000000000000021E4C1DBD16A6731900000000}", '
    "\"TOPIC/0@1 'b' flag=0 sysFlag=0 failures=0 {KEYS=k1 TAGS=b "
    'UNIQ_KEY=FD0000000000000000000000000000021E4C1DBD16A6731900000001}"]'
)

# For each scenario: RocketMQ's answers, and EscrowMQ's answers in their place.
DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "sending.refused": {
        # The tag is a routing key, and has at most 127 characters.
        "a long tag: SUCCESS MSG_REGION=DefaultRegion TRACE_ON=true msgId=* queueId=0 queueOffset=0 "
        "transactionId=FD0000000000000000000000000000021E4C1DBD16A6731900000001": "a long tag: MESSAGE_ILLEGAL",
    },
    "consuming.filters": {
        # RocketMQ takes the subscription of the heartbeat, which was another one; a malformed filter is refused here.
        f"malformed SQL: SUCCESS maxOffset=2 minOffset=0 nextBeginOffset=2 suggestWhichBrokerId=0 {_TWO}": (
            "malformed SQL: SUBSCRIPTION_PARSE_FAILED"
        ),
    },
    "consuming.members": {
        # The topics of a group are those that its members subscribe to, also before they have progress.
        'topics: SUCCESS {"brokerAddr":*, "topicList":[]}': 'topics: SUCCESS {"brokerAddr":*, "topicList":["TOPIC"]}',
    },
    "consuming.offsets": {
        # Stronger: progress never goes back (GRP-5).
        "query after going back: SUCCESS offset=1": "query after going back: SUCCESS offset=2",
        # A queue that the topic does not have is refused.
        "max of a queue that is not there: SUCCESS offset=0": "max of a queue that is not there: INVALID_PARAMETER",
        "min of a queue that is not there: SUCCESS offset=0": "min of a queue that is not there: INVALID_PARAMETER",
        "earliest of a queue that is not there: SUCCESS timestamp=*": (
            "earliest of a queue that is not there: INVALID_PARAMETER"
        ),
    },
    "transactions.repeated": {
        # Stronger: decisions are idempotent, and a late one is refused (HALF-3); a half message that is sent again is
        # the same one (HALF-11).
        "commit after the rollback: SUCCESS": "commit after the rollback: ILLEGAL_OPERATION",
        "sent twice is one: False": "sent twice is one: True",
        "delivered: ['1', '1', '2', '3', '3']": "delivered: ['1', '3']",
    },
}

_KEPT: Final = (
    # Properties by which RocketMQ's brokers find a delayed or transactional message again.
    (re.compile(r" (REAL_QID=\d+ REAL_TOPIC=\S+|DELAY=0|WAIT=false)(?=[ }])"), ""),
    (re.compile(r"{DELAY=0 "), "{"),
    # Messages of a batch that have no key of their own get the batch's.
    (re.compile(r"{TAGS=b UNIQ_KEY=FD0000000000000000000000000000021E4C1DBD16A6731900000004}"), "{TAGS=b}"),
)
_REFUSAL: Final = re.compile(
    r"""^(?P<head>[^:]+: (?!SUCCESS)[A-Z_]+)(?: (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))?(?P<rest>.*)$"""
)


def expected(scenario: str, line: str) -> str:
    """Return the line that EscrowMQ must produce where RocketMQ produced `line`, as `comparable` returns it."""
    for pattern, instead in _KEPT:
        line = pattern.sub(instead, line)
    return comparable(DIFFERENCES.get(scenario, {}).get(line, line))


def comparable(line: str) -> str:
    """Return a line without the text of a refusal, and without the fields that RocketMQ has in its refusals."""
    found = _REFUSAL.match(line)
    if found is None:
        return line
    return found["head"] + found["rest"].replace(" MSG_REGION=DefaultRegion", "").replace(" TRACE_ON=true", "")
