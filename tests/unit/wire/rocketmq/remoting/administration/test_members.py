"""Connected clients, as operators see them, and requests that go on to one of them."""

from __future__ import annotations

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import BINARY, RESPONSE, Command, encode
from tests.unit.wire.rocketmq.remoting.clients import Client, found, messages, server


def test_the_members_of_a_group_are_shown() -> None:
    client = Client(server())
    assert client.call(Code.CONSUMER_CONNECTIONS, {"consumerGroup": "g"}).code == ResultCode.CONSUMER_NOT_ONLINE
    client.heartbeat("g", "me", t="a")
    shown = found(client, Code.CONSUMER_CONNECTIONS, consumerGroup="g")
    assert [each["clientId"] for each in shown["connectionSet"]] == ["me"]
    assert shown["subscriptionTable"]["t"]["subString"] == "a"


def test_the_subscriptions_of_a_group_are_shown() -> None:
    client = Client(server())
    client.heartbeat("g", "me", t="a")
    assert found(client, Code.TOPICS_OF_GROUP, group="g")["topicList"] == ["t"]
    shown = found(client, Code.SUBSCRIPTION_OF_GROUP, group="g", topic="t")
    assert shown["subscriptionData"]["subString"] == "a"
    assert found(client, Code.SUBSCRIPTION_OF_GROUP, group="g", topic="u")["subscriptionData"] is None


def test_producers_are_shown_to_their_user() -> None:
    client = Client(server())
    assert client.call(Code.PRODUCER_CONNECTIONS, {"producerGroup": "p"}).code == ResultCode.SYSTEM_ERROR
    client.heartbeat(client_id="me", producer="p")
    (shown,) = found(client, Code.PRODUCER_CONNECTIONS, producerGroup="p")["connectionSet"]
    assert (shown["clientId"], shown["language"], shown["version"]) == ("me", "JAVA", 479)
    (shown,) = found(client, Code.ALL_PRODUCERS)["data"]["p"]
    assert (shown["clientId"], shown["lastUpdateTimestamp"]) == ("me", client.server.now)
    client.lose()
    assert found(Client(client.server, "other"), Code.ALL_PRODUCERS) == {"data": {}}


def asked(client: Client, code: Code) -> Command:
    """Return the broker's request of a code."""
    (request,) = client.requests(code)
    assert not request.is_one_way
    return request


def test_the_state_of_a_member_is_asked_for_and_passed_on() -> None:
    member, tool = Client(server()), None
    member.heartbeat("g", "me", t="*")
    tool = Client(member.server, "tool")
    fields = {"consumerGroup": "g", "clientId": "me", "jstackEnable": "false"}
    number = tool.send(Code.RUNNING_INFO, fields)
    request = asked(member, Code.RUNNING_INFO)
    assert request.fields == fields
    member.server.receive(member.port, encode(Command(0, {}, b"state", request.opaque, RESPONSE)))
    member.server.end_turn()
    response = tool.response(number)
    assert response is not None
    assert (response.code, response.body) == (0, b"state")


def test_a_member_that_does_not_answer_or_is_not_there_is_reported() -> None:
    client = Client(server())
    fields = {"consumerGroup": "g", "clientId": "me"}
    assert client.call(Code.RUNNING_INFO, fields).code == ResultCode.SYSTEM_ERROR
    client.heartbeat("g", "me", t="*")
    number = client.send(Code.RUNNING_INFO, fields)
    client.server.now += 10_000
    client.server.end_turn()
    response = client.response(number)
    assert response is not None
    assert response.code == ResultCode.CONSUME_TIMEOUT


def test_a_member_consumes_a_message_directly() -> None:
    client = Client(server())
    sent = client.publish("t", b"body")
    client.heartbeat("g", "me", t="*")
    client.send(Code.CONSUME_DIRECTLY, {"consumerGroup": "g", "clientId": "me", "msgId": sent.fields["msgId"]})
    (message,) = messages(asked(client, Code.CONSUME_DIRECTLY).body)
    assert message.content.body == b"body"
    bad = {"consumerGroup": "g", "clientId": "me", "msgId": "x"}
    assert client.call(Code.CONSUME_DIRECTLY, bad).code == ResultCode.SYSTEM_ERROR


def test_a_result_that_no_binary_header_can_have_is_a_fault_of_the_member() -> None:
    member = Client(server())
    member.heartbeat("g", t="*")
    operator = Client(member.server, "operator", form=BINARY)
    number = operator.send(Code.RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"})
    (asked,) = member.requests(Code.RUNNING_INFO)
    member.server.receive(member.port, encode(Command(70_000, opaque=asked.opaque, flag=RESPONSE)))
    member.server.end_turn()
    found = operator.response(number)
    assert found is not None
    assert found.code == ResultCode.SYSTEM_ERROR


def test_a_member_that_does_not_read_is_not_asked() -> None:
    member = Client(server())
    member.heartbeat("g", t="*")
    member.port.endpoint.congested(1 << 30)
    fields = {"consumerGroup": "g", "clientId": "c"}
    assert Client(member.server, "tool").call(Code.RUNNING_INFO, fields).code == ResultCode.CONSUME_TIMEOUT
