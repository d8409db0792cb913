"""Half messages, decisions and checks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.wire.rocketmq.ids import offset_of
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.frames import Command
from tests.interop.rocketmq.differential.script import Script, ident
from tests.unit.wire.rocketmq.remoting.clients import messages

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def _half(s: Script, number: int, properties: Mapping[str, str] = _NONE) -> Command:
    more = {"TRAN_MSG": "true", "PGROUP": f"p-{s.topic}", "UNIQ_KEY": ident(number), **properties}
    fields = s.send(0, "", **more)
    return s.call(Code.SEND_V2, fields, str(number).encode())


def _begin(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create(attributes="+message.type=TRANSACTION"))
    s.call(Code.HEARTBEAT, body=s.heartbeat("client", f"p-{s.topic}"))


def _end(s: Script, half: Command, outcome: int, **fields: object) -> dict[str, object]:
    return {
        "producerGroup": f"p-{s.topic}",
        "topic": s.topic,
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": offset_of(half.fields["msgId"]),
        "commitOrRollback": outcome,
        "fromTransactionCheck": "false",
        "msgId": half.fields["transactionId"],
        "transactionId": half.fields["transactionId"],
        **fields,
    }


def _behind(s: Script) -> list[str]:
    """Send a normal message behind everything else, and return the bodies of all messages once it is there."""
    other = f"{s.topic}-n"
    s.call(Code.UPDATE_TOPIC, s.create(topic=other))
    s.call(Code.SEND_V2, s.send(topic=other), b"last")
    s.wait(lambda: s.pulled(other))
    return [each.content.body.decode() for each in s.pulled()]


def decisions(s: Script) -> None:
    _begin(s)
    sent = _half(s, 1, {"TAGS": "a", "KEYS": "k"})
    s.say("half message", sorted(sent.fields.keys()))
    s.say("invisible", _behind(s))
    s.step("commit", Code.END_TRANSACTION, _end(s, sent, COMMIT))
    s.wait(s.pulled)
    s.step("pull", Code.PULL, s.pulls())
    s.step("roll back", Code.END_TRANSACTION, _end(s, _half(s, 2), ROLL_BACK))
    s.tell(Code.END_TRANSACTION, _end(s, _half(s, 3), UNKNOWN))
    s.say("delivered", _behind(s))


def repeated(s: Script) -> None:
    _begin(s)
    sent = _half(s, 1)
    s.step("commit", Code.END_TRANSACTION, _end(s, sent, COMMIT))
    s.step("commit again", Code.END_TRANSACTION, _end(s, sent, COMMIT))
    sent = _half(s, 2)
    s.step("roll back", Code.END_TRANSACTION, _end(s, sent, ROLL_BACK))
    s.step("commit after the rollback", Code.END_TRANSACTION, _end(s, sent, COMMIT))
    first, again = _half(s, 3), _half(s, 3)
    s.say("sent twice is one", first.fields["queueOffset"] == again.fields["queueOffset"])
    s.step("commit the first", Code.END_TRANSACTION, _end(s, first, COMMIT))
    s.step("commit the second", Code.END_TRANSACTION, _end(s, again, COMMIT))
    s.say("delivered", _behind(s))


def wrong(s: Script) -> None:
    _begin(s)
    sent = _half(s, 1)
    s.step("another table offset", Code.END_TRANSACTION, _end(s, sent, COMMIT, tranStateTableOffset=99))
    s.step("another group", Code.END_TRANSACTION, _end(s, sent, COMMIT, producerGroup="other"))
    s.say("delivered", _behind(s))


def checks(s: Script) -> None:
    _begin(s)
    _half(s, 1, {"TAGS": "a"})
    asked = s.wait(lambda: s.arrived(Code.CHECK_TRANSACTION))
    s.say("fields", sorted(asked.fields.keys()))
    s.say("one way", asked.is_one_way)
    (message,) = messages(asked.body)
    s.say("topic and body", (message.topic, message.queue, message.content.body))
    s.say("transaction", (asked.fields["transactionId"], asked.fields["msgId"]))
    fields = {"msgId": asked.fields["offsetMsgId"], "queueOffset": asked.fields["tranStateTableOffset"]}
    answer = Command(0, {**fields, "transactionId": asked.fields["transactionId"]})
    s.step("commit", Code.END_TRANSACTION, _end(s, answer, COMMIT, fromTransactionCheck="true"))
    s.wait(s.pulled)
    s.say("delivered", _behind(s))


SCENARIOS = (decisions, repeated, wrong, checks)
