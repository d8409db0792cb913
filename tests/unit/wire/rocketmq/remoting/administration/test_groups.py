"""Consumer groups, as operators see them."""

from __future__ import annotations

import json

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, found, server


def test_a_group_is_created_changed_and_deleted() -> None:
    client, config = Client(server()), None
    for retries in (3, 5):
        client.ok(Code.UPDATE_GROUP, body=json.dumps({"groupName": "g", "retryMaxTimes": retries}).encode())
        config = found(client, Code.GROUP_CONFIG, group="g")
        assert (config["groupName"], config["retryMaxTimes"]) == ("g", retries)
    assert found(client, Code.ALL_GROUP_CONFIGS)["subscriptionGroupTable"] == {"g": config}
    client.ok(Code.DELETE_GROUP, {"groupName": "g"})
    assert client.call(Code.GROUP_CONFIG, {"group": "g"}).code == ResultCode.QUERY_NOT_FOUND
