"""The name server: where topics are, which is always here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from escrowmq.wire.rocketmq.names import AUTO_CREATE, group_fault, group_of
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RequestFault
from escrowmq.wire.rocketmq.remoting.fields import text
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply, success
from escrowmq.wire.rocketmq.remoting.views import STATES

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.frames import Command

READ_WRITE: Final = 6
READ: Final = 4
MASTER: Final = "0"


def route(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the queues of a topic. A topic that does not exist has none; its producer then asks for those of TBW102,
    if topics may be created automatically. The topics of a group have a route before the group exists: its first member
    asks for it before its first heartbeat, and would ask again only after 20 seconds.
    """
    name = text(request.fields, "topic")
    options, catalogue = connection.options, connection.catalogue
    own = name == AUTO_CREATE or name in STATES or name in (options.cluster, options.broker_name)
    topic, permissions = (catalogue.find if own else catalogue.seen)(name), READ_WRITE
    if topic is not None:
        count = len(topic.streams)
    elif name in STATES:
        count, permissions = 1, READ
    elif (name == AUTO_CREATE and options.auto_create) or name in (options.cluster, options.broker_name):
        count = options.partitions
    elif (group := group_of(name)) is not None and not group_fault(group):
        count = 1
    else:
        if name != AUTO_CREATE:
            connection.login.refusals.missing(name, catalogue.vhost.name, automatic=options.auto_create)
        raise RequestFault(
            ResultCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {name}",
        )
    queues = {
        "brokerName": options.broker_name,
        "perm": permissions,
        "readQueueNums": count,
        "topicSysFlag": 0,
        "writeQueueNums": count,
    }
    return _json({"brokerDatas": [broker(connection)], "filterServerTable": {}, "queueDatas": [queues]})


def cluster(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return the one cluster with its one broker."""
    del request
    options = connection.options
    return _json(
        {
            "brokerAddrTable": {options.broker_name: broker(connection)},
            "clusterAddrTable": {options.cluster: [options.broker_name]},
        }
    )


def broker(connection: RemotingConnection) -> dict[str, Any]:
    """Return the broker's name and address, as routes contain them."""
    options = connection.options
    host = options.advertised_host or connection.peer.local_host or "127.0.0.1"
    return {
        "brokerAddrs": {MASTER: f"{host}:{options.broker_port}"},
        "brokerName": options.broker_name,
        "cluster": options.cluster,
        "enableActingMaster": False,
    }


def key_value(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Return an entry of the name server's configuration, which has none."""
    del connection
    raise RequestFault(
        ResultCode.QUERY_NOT_FOUND,
        f"No config item, Namespace: {request.fields.get('namespace')} Key: {request.fields.get('key')}",
    )


def delete_key_value(connection: RemotingConnection, request: Command) -> HandlerReply:
    """Do nothing: there are no entries. `mqadmin deleteSubGroup -c` deletes one that says how a topic is ordered."""
    del connection, request
    return success()


def _json(found: dict[str, Any]) -> HandlerReply:
    return success(body=json.dumps(found, separators=(",", ":")).encode())
