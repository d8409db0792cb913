"""Pulls, offsets, members of groups, locks, and messages that are sent back."""

from __future__ import annotations

import json

from escrowmq.wire.rocketmq.remoting.codes import Code
from tests.interop.rocketmq.differential.script import Script, ident


def _place(s: Script, **fields: object) -> dict[str, object]:
    return {"consumerGroup": s.group, "topic": s.topic, "queueId": 0, **fields}


def _filled(s: Script, *tags: str) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    s.call(Code.HEARTBEAT, body=s.heartbeat())
    for number, tag in enumerate(tags):
        s.call(Code.SEND_V2, s.send(UNIQ_KEY=ident(number), TAGS=tag, KEYS=f"k{number}"), tag.encode())
    s.wait(lambda: len(s.pulled()) == len(tags))


def pulls(s: Script) -> None:
    _filled(s, "a", "b", "a")
    s.step("all", Code.PULL, s.pulls())
    s.step("from the second", Code.PULL, s.pulls(offset=1, maxMsgNums=1))
    s.step("at the end", Code.PULL, s.pulls(offset=3))
    s.step("beyond the end", Code.PULL, s.pulls(offset=9))
    s.step("before the begin", Code.PULL, s.pulls(offset=-1))
    s.step("an empty queue", Code.PULL, s.pulls(queue=1))
    s.step("by tag", Code.PULL, s.pulls(subscription="b"))
    s.step("by two tags", Code.PULL, s.pulls(subscription="a || b"))
    s.step("no message passes", Code.PULL, s.pulls(subscription="c"))
    s.step("a queue that is not there", Code.PULL, s.pulls(queue=99))
    s.step("a topic that is not there", Code.PULL, s.pulls(topic="none"))
    s.step("held back", Code.PULL, s.pulls(offset=3, sysFlag=6, suspendTimeoutMillis=200))
    s.step("with the subscription of the heartbeat", Code.PULL, s.pulls(sysFlag=0))


def filters(s: Script) -> None:
    _filled(s, "a", "b")
    s.step("SQL", Code.LITE_PULL, s.pulls(subscription="TAGS = 'b'", expressionType="SQL92", sysFlag=20))
    s.step("malformed SQL", Code.PULL, s.pulls(subscription="a >", expressionType="SQL92"))


def offsets(s: Script) -> None:
    _filled(s, "a", "b")
    s.step("begin", Code.QUERY_OFFSET, _place(s))
    s.step("set", Code.UPDATE_OFFSET, _place(s, commitOffset=2))
    s.step("query", Code.QUERY_OFFSET, _place(s))
    s.step("back", Code.UPDATE_OFFSET, _place(s, commitOffset=1))
    s.step("query after going back", Code.QUERY_OFFSET, _place(s))
    for what, code in (("max", Code.MAX_OFFSET), ("min", Code.MIN_OFFSET), ("earliest", Code.EARLIEST_TIME)):
        s.step(what, code, _place(s))
        s.step(f"{what} of a queue that is not there", code, _place(s, queueId=99))
    s.step("search from the begin", Code.SEARCH_OFFSET, _place(s, timestamp=0))
    s.step("search in the future", Code.SEARCH_OFFSET, _place(s, timestamp=1 << 60))


def members(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    group = {"consumerGroup": s.group}
    s.step("nobody", Code.CONSUMERS_OF_GROUP, group)
    s.step("nobody's connections", Code.CONSUMER_CONNECTIONS, group)
    s.call(Code.HEARTBEAT, body=s.heartbeat("client", f"p-{s.topic}"))
    told = s.wait(lambda: s.arrived(Code.CONSUMERS_CHANGED))
    s.say("told of the change", sorted(told.fields.items()))
    s.step("one", Code.CONSUMERS_OF_GROUP, group)
    s.step("connections", Code.CONSUMER_CONNECTIONS, group)
    s.step("producers", Code.PRODUCER_CONNECTIONS, {"producerGroup": f"p-{s.topic}"})
    s.step("no producers", Code.PRODUCER_CONNECTIONS, {"producerGroup": "none"})
    s.step("topics", Code.TOPICS_OF_GROUP, {"group": s.group})
    s.step("subscription", Code.SUBSCRIPTION_OF_GROUP, {"group": s.group, "topic": s.topic})
    s.step("a member that is not there", Code.RUNNING_INFO, {**group, "clientId": "none", "jstackEnable": "false"})
    s.step("leave", Code.UNREGISTER, {**group, "clientID": "client"})
    s.step("left", Code.CONSUMERS_OF_GROUP, group)


def locks(s: Script) -> None:
    _filled(s)

    def body(client: str) -> bytes:
        queue = {"topic": s.topic, "brokerName": "BROKER", "queueId": 0}
        return json.dumps({"consumerGroup": s.group, "clientId": client, "mqSet": [queue]}).encode()

    def locked(client: str) -> bool:
        return bool(json.loads(s.call(Code.LOCK_QUEUES, body=body(client)).body)["lockOKMQSet"])

    s.say("first", locked("one"))
    s.say("another", locked("two"))
    s.say("first again", locked("one"))
    s.step("unlock", Code.UNLOCK_QUEUES, body=body("one"))
    s.say("another after the unlock", locked("two"))


def returned(s: Script) -> None:
    _filled(s, "a")
    (message,) = s.pulled()
    back: dict[str, object] = {
        "offset": message.address,
        "group": s.group,
        "delayLevel": 1,
        "originMsgId": ident(0),
        "originTopic": s.topic,
        "unitMode": "false",
        "maxReconsumeTimes": 16,
    }
    s.step("unknown", Code.SEND_BACK, {**back, "offset": 987654})
    s.step("later", Code.SEND_BACK, back)
    retry = f"%RETRY%{s.group}"
    (again,) = s.wait(lambda: s.pulled(retry))
    s.step("retry topic", Code.PULL, s.pulls(retry))
    s.step("given up", Code.SEND_BACK, {**back, "offset": again.address, "delayLevel": -1})
    dead = f"%DLQ%{s.group}"
    s.wait(lambda: s.call(Code.MAX_OFFSET, {"topic": dead, "queueId": 0}).fields.get("offset") == "1")
    s.step("dead-letter topic", Code.PULL, s.pulls(dead))


SCENARIOS = (pulls, filters, offsets, members, locks, returned)
