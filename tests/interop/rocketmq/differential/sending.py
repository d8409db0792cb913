"""Sends, and routes of the topics that they create."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import Code
from tests.interop.rocketmq.differential.script import Script, batched, ident


def routes(s: Script) -> None:
    s.step("unknown topic", Code.ROUTE, {"topic": s.topic}, to="names")
    s.step("topic for automatic creation", Code.KEY_VALUE, {"namespace": "a", "key": "b"}, to="names")
    s.step("create", Code.UPDATE_TOPIC, s.create())
    s.wait(lambda: s.call(Code.ROUTE, {"topic": s.topic}, to="names").code == 0)
    s.step("route", Code.ROUTE, {"topic": s.topic}, to="names")
    s.step("cluster", Code.CLUSTER, to="names")
    s.step("unknown request", 9999)


def sends(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    s.step("first", Code.SEND_V2, s.send(UNIQ_KEY=ident(1), KEYS="k1", TAGS="a"), b"one")
    s.step("second", Code.SEND_V2, s.send(UNIQ_KEY=ident(2)), b"two")
    long = {"producerGroup": "pg", "topic": s.topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0}
    more = {
        "sysFlag": 0,
        "bornTimestamp": 5,
        "flag": 7,
        "properties": f"WAIT\x01true\x02UNIQ_KEY\x01{ident(3)}\x02",
        "reconsumeTimes": 0,
    }
    s.step("first version", Code.SEND, {**long, **more, "unitMode": "false", "batch": "false"}, b"three")
    batch = batched(b"four", f"UNIQ_KEY\x01{ident(4)}\x02") + batched(b"five", "TAGS\x01b\x02")
    s.step("batch", Code.SEND_BATCH, {**s.send(UNIQ_KEY=ident(4)), "m": "true"}, batch)
    s.wait(lambda: len(s.pulled()) == 5)
    s.step("pull", Code.PULL, s.pulls())


def refused(s: Script) -> None:
    s.call(Code.UPDATE_TOPIC, s.create())
    s.step("a queue that is not there", Code.SEND_V2, s.send(99, UNIQ_KEY=ident(1)), b"x")
    s.step("a name with a space", Code.SEND_V2, s.send(topic="a b"), b"x")
    s.step("RocketMQ's own topic", Code.SEND_V2, s.send(topic="SCHEDULE_TOPIC_" + 4 * "X"), b"x")
    s.step("a long name", Code.SEND_V2, s.send(topic="x" * 128), b"x")
    s.step("a long tag", Code.SEND_V2, s.send(UNIQ_KEY=ident(1), TAGS="x" * 128), b"x")


def created(s: Script) -> None:
    s.step("send", Code.SEND_V2, s.send(UNIQ_KEY=ident(1)), b"x")
    s.wait(lambda: s.call(Code.ROUTE, {"topic": s.topic}, to="names").code == 0)
    s.step("pull", Code.PULL, s.pulls())


SCENARIOS = (routes, sends, refused, created)
