"""The name server."""

from __future__ import annotations

import json

import pytest

from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, server

OPTIONS = RocketmqOptions(cluster="c", broker_name="b", advertised_host="10.0.0.9", broker_port=7, partitions=3)


def client(options: RocketmqOptions = OPTIONS) -> Client:
    return Client(server(options=Options(limits=EndpointLimits(rocketmq=options))))


def test_the_route_of_a_topic_has_its_queues_and_this_broker() -> None:
    connected = client()
    connected.publish("t")
    assert json.loads(connected.ok(Code.ROUTE, {"topic": "t"}).body) == {
        "brokerDatas": [
            {"brokerAddrs": {"0": "10.0.0.9:7"}, "brokerName": "b", "cluster": "c", "enableActingMaster": False}
        ],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 3}],
    }


@pytest.mark.parametrize("topic", ["TBW102", "c", "b"])
def test_topics_of_the_system_have_a_route(topic: str) -> None:
    assert client().call(Code.ROUTE, {"topic": topic}).code == ResultCode.SUCCESS


def test_without_automatic_creation_there_is_no_route_for_new_topics() -> None:
    assert client(RocketmqOptions(auto_create=False)).call(Code.ROUTE, {"topic": "TBW102"}).code == 17


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_topics_of_a_group_have_a_route_before_it_exists(topic: str) -> None:
    found = json.loads(client().ok(Code.ROUTE, {"topic": topic}).body)
    assert found["queueDatas"][0]["readQueueNums"] == 1


@pytest.mark.parametrize("topic", ["t", "%RETRY%"])
def test_a_missing_topic_has_no_route(topic: str) -> None:
    found = client().call(Code.ROUTE, {"topic": topic})
    assert (found.code, found.remark) == (17, f"No topic route info in name server for the topic: {topic}")


def test_the_cluster_has_one_broker() -> None:
    found = json.loads(client().ok(Code.CLUSTER).body)
    assert found["clusterAddrTable"] == {"c": ["b"]}
    assert found["brokerAddrTable"]["b"]["brokerAddrs"] == {"0": "10.0.0.9:7"}


def test_the_name_server_has_no_configuration() -> None:
    assert client().call(Code.KEY_VALUE, {"namespace": "n", "key": "k"}).code == ResultCode.QUERY_NOT_FOUND


def test_deleting_an_entry_that_does_not_exist_succeeds() -> None:
    client().ok(Code.DELETE_KEY_VALUE, {"namespace": "ORDER_TOPIC_CONFIG", "key": "%RETRY%g"})
