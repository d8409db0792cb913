"""Requests of operators' tools."""

from __future__ import annotations

import json

from escrowmq.wire.rocketmq.remoting.codes import Code
from tests.interop.rocketmq.differential.script import Script, ident


def topics(s: Script) -> None:
    topic = {"topic": s.topic}
    s.step("settings of none", Code.TOPIC_CONFIG, topic)
    s.step("offsets of none", Code.TOPIC_STATS, topic)
    s.step("create", Code.UPDATE_TOPIC, s.create(attributes="+message.type=FIFO"))
    s.step("settings", Code.TOPIC_CONFIG, topic)
    s.step("offsets", Code.TOPIC_STATS, topic)
    s.step("an illegal name", Code.UPDATE_TOPIC, s.create(topic="a b"))
    s.step("RocketMQ's own name", Code.UPDATE_TOPIC, s.create(topic="TBW102"))
    s.step("groups", Code.GROUPS_OF_TOPIC, topic)
    names = json.loads(s.call(Code.ALL_TOPIC_CONFIGS).body)["topicConfigTable"]
    s.say("listed", s.topic in names)
    s.say("half topic listed", "RMQ_SYS_TRANS_HALF_TOPIC" in names)
    s.step("delete", Code.DELETE_TOPIC, topic)
    s.step("delete again", Code.DELETE_TOPIC, topic)
    s.step("delete RocketMQ's own", Code.DELETE_TOPIC, {"topic": "TBW102"})
    s.step("settings after that", Code.TOPIC_CONFIG, topic)


def groups(s: Script) -> None:
    body = json.dumps({"groupName": s.group, "retryMaxTimes": 3, "consumeEnable": True}).encode()
    s.step("create", Code.UPDATE_GROUP, body=body)
    settings = json.loads(s.call(Code.GROUP_CONFIG, {"group": s.group}).body)
    s.say("retries", settings["retryMaxTimes"])
    s.say("names of settings", sorted(settings))
    s.step("delete", Code.DELETE_GROUP, {"groupName": s.group})


def progress(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    s.call(Code.HEARTBEAT, body=s.heartbeat())
    for number in range(3):
        s.call(Code.SEND_V2, s.send(UNIQ_KEY=ident(number)), b"x")
    s.wait(lambda: len(s.pulled()) == 3)
    place = {"consumerGroup": s.group, "topic": s.topic, "queueId": 0}
    s.call(Code.UPDATE_OFFSET, {**place, "commitOffset": 3})
    s.step(
        "reset to the begin",
        Code.RESET_PROGRESS,
        {"topic": s.topic, "group": s.group, "timestamp": 0, "isForce": "true"},
    )
    s.step("offset", Code.QUERY_OFFSET, place)
    s.step("the member's next pull", Code.PULL, s.pulls(offset=3))
    s.step("the pull after that", Code.PULL, s.pulls(offset=0, maxMsgNums=1))
    one = {"topic": s.topic, "group": s.group, "timestamp": -1, "queueId": 0, "offset": 2, "isForce": "true"}
    s.step("reset one queue to an offset", Code.RESET_PROGRESS, one)
    s.step("offset in the one queue", Code.QUERY_OFFSET, place)
    s.step("reset in no topic", Code.RESET_PROGRESS, {"topic": "none", "group": s.group, "timestamp": 0})
    copied = {"srcGroup": s.group, "destGroup": f"h-{s.topic}", "topic": s.topic, "offline": "true"}
    s.step("copy", Code.COPY_PROGRESS, copied)
    s.step("offset of the copy", Code.QUERY_OFFSET, {**place, "consumerGroup": f"h-{s.topic}"})


def queries(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    sent = s.call(Code.SEND_V2, s.send(UNIQ_KEY=ident(1), KEYS="k1 k2"), b"one")
    s.call(Code.SEND_V2, s.send(UNIQ_KEY=ident(2), KEYS="k1"), b"two")
    s.say("answer", sorted(sent.fields.keys()))
    ask: dict[str, object] = {"topic": s.topic, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    s.wait(lambda: s.call(Code.QUERY_MESSAGE, {**ask, "key": "k1"}).code == 0)
    for key in ("k1", "k2", "none", ident(1)):
        answer = s.call(Code.QUERY_MESSAGE, {**ask, "key": key})
        s.say(f"key {key}", (answer.code, answer.remark, s.body(answer.body) if answer.body else ""))
    unique = s.call(Code.QUERY_MESSAGE, {**ask, "key": ident(2), "_UNIQUE_KEY_QUERY": "true"})
    s.say("unique key", s.body(unique.body))
    s.step("no message there", Code.VIEW_MESSAGE, {"offset": 123456})
    s.step("rate of nothing", Code.RATES, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "none"})


def recalls(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    sent = s.call(Code.SEND_V2, s.send(UNIQ_KEY=ident(1), TIMER_DELAY_SEC="30"), b"x")
    s.say("answer", sorted(sent.fields.keys()))
    asked = {"producerGroup": "pg", "topic": s.topic}
    s.step("malformed", Code.RECALL, {**asked, "recallHandle": "bad"})
    answer = s.call(Code.RECALL, {**asked, "recallHandle": sent.fields["recallHandle"]})
    s.say("recall", (answer.code, answer.fields["msgId"]))


SCENARIOS = (topics, groups, progress, queries, recalls)
