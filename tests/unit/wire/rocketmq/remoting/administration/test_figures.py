"""Figures and settings of the broker."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, found, server


def test_the_broker_gives_its_figures() -> None:
    assert found(Client(server()), Code.BROKER_RUNTIME)["table"]["brokerActive"] == "true"


def test_the_rate_of_a_topic_is_that_of_the_messages_that_it_has() -> None:
    client = Client(server())
    client.publish("t")
    client.server.now += 120_000
    client.publish("t")
    rates = found(client, Code.RATES, statsName="TOPIC_PUT_NUMS", statsKey="t")
    assert [rates[each]["sum"] for each in ("statsMinute", "statsHour", "statsDay")] == [1, 2, 2]
    for name, key in (("TOPIC_PUT_NUMS", "none"), ("GROUP_GET_NUMS", "t@g")):
        refused = client.call(Code.RATES, {"statsName": name, "statsKey": key})
        assert (refused.code, refused.remark) == (ResultCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


def test_settings_have_rocketmqs_names() -> None:
    client = Client(server())
    settings = client.ok(Code.BROKER_SETTINGS).body.decode().splitlines()
    assert {"brokerName=escrowmq", "transactionCheckMax=15", "autoCreateTopicEnable=true"} <= set(settings)
    assert b"brokerName=escrowmq\n" in client.ok(Code.NAME_SERVER_SETTINGS).body
