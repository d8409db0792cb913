"""A classic client in memory, for tests of the endpoint."""

from __future__ import annotations

import json
import random
import struct
from typing import Any, NamedTuple

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.rocketmq.content import MessageContent
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
from escrowmq.wire.rocketmq.remoting.frames import HEAD, JSON, Command, decode, encode, frame_size
from tests.harness.server import Options, SimServer


def server(storage: MemoryStorage | None = None, options: Options | None = None) -> SimServer:
    """Start a server."""
    return SimServer(storage or MemoryStorage(random.Random(1)), options)


class Received(NamedTuple):
    """A message as a client reads it."""

    topic: str
    queue: int
    offset: int
    address: int
    failures: int
    content: MessageContent


class Client:
    """A connection, with what arrives on it."""

    def __init__(self, server: SimServer, name: str = "client", form: int = JSON) -> None:
        self.server = server
        self.port = server.open(RemotingConnection, name)
        self.form = form
        self._number = 0
        self._arrived: list[Command] = []

    def send(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", *, one_way: bool = False) -> int:
        """Send a request and return its number. Nothing is written to disk."""
        self._number += 1
        command = Command(code, fields or {}, body, self._number, 2 if one_way else 0, form=self.form)
        self.server.receive(self.port, encode(command))
        self.server.end_turn()
        return self._number

    def arrived(self) -> list[Command]:
        """Remove and return everything that has arrived."""
        data, at = bytes(self.port.sent), 0
        self.port.sent.clear()
        while at < len(data):
            size = frame_size(data[at : at + HEAD])
            self._arrived.append(decode(data[at : at + size]))
            at += size
        arrived, self._arrived = self._arrived, []
        return arrived

    def response(self, number: int) -> Command | None:
        """Remove and return the response to a request, if it has arrived."""
        found = None
        for command in self.arrived():
            if command.is_response and command.opaque == number:
                found = command
            else:
                self._arrived.append(command)
        return found

    def call(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """Send a request, write everything to disk, and return the response."""
        number = self.send(code, fields, body)
        self.server.run_disk()
        found = self.response(number)
        assert found is not None, "no response"
        return found

    def ok(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """Return the response to a request that succeeds."""
        found = self.call(code, fields, body)
        assert found.code == ResultCode.SUCCESS, found.remark
        return found

    def requests(self, code: Code) -> list[Command]:
        """Remove and return the broker's own requests of one code."""
        arrived = self.arrived()
        self._arrived = [command for command in arrived if command.is_response or command.code != code]
        return [command for command in arrived if not command.is_response and command.code == code]

    def publish(self, topic: str, body: bytes = b"body", queue: int = 0, **properties: str) -> Command:
        """Send a message in the second version of a send."""
        return self.call(Code.SEND_V2, send_fields(topic, queue, **properties), body)

    def pull(self, topic: str, queue: int = 0, offset: int = 0, group: str = "g", **fields: str) -> Command:
        """Pull messages, with the subscription in the request."""
        return self.call(Code.LITE_PULL, pull_fields(topic, queue, offset, group, **fields))

    def heartbeat(self, group: str = "g", client_id: str = "c", producer: str = "", **subscriptions: str) -> Command:
        """Send a heartbeat of a consumer of `subscriptions`, and of a producer."""
        consumers = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": text, "expressionType": "TAG"}
                    for topic, text in subscriptions.items()
                ],
            }
        ]
        found: dict[str, Any] = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": producer}] if producer else [],
            "consumerDataSet": consumers if subscriptions else [],
        }
        return self.call(Code.HEARTBEAT, body=json.dumps(found).encode())

    def lose(self) -> None:
        """Lose the connection."""
        self.server.lose(self.port)
        self.server.end_turn()


def found(client: Client, code: Code, **fields: str) -> Any:
    """Return the JSON in the response to a request that succeeds."""
    return json.loads(client.ok(code, fields).body)


def create(client: Client, topic: str = "t", queues: int = 2, attributes: str = "") -> int:
    """Create a topic as mqadmin does. Return the result."""
    fields = {"topic": topic, "readQueueNums": str(queues), "writeQueueNums": str(queues), "attributes": attributes}
    return client.call(Code.UPDATE_TOPIC, fields).code


def send_fields(topic: str, queue: int = 0, **properties: str) -> dict[str, str]:
    """Return the fields of a send in its second version."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return {"a": "pg", "b": topic, "e": str(queue), "f": "0", "g": "5", "h": "0", "i": text, "j": "0", "m": "false"}


def pull_fields(topic: str, queue: int = 0, offset: int = 0, group: str = "g", **fields: str) -> dict[str, str]:
    """Return the fields of a pull."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        **fields,
    }


def messages(body: bytes) -> list[Received]:
    """Read the messages in the body of a response."""
    found, at = [], 0
    while at < len(body):
        size, _, _, queue, flag, offset, address, system_flag, born = struct.unpack_from(">iiIiiqqiq", body, at)
        place = at + 48
        host = body[place : place + (16 if system_flag & 0x10 else 4)]
        place += len(host)
        (port,) = struct.unpack_from(">i", body, place)
        place += 4 + 8 + (16 if system_flag & 0x20 else 4) + 4
        failures, _, length = struct.unpack_from(">iqi", body, place)
        place += 16
        text, place = body[place : place + length], place + length
        topic, place = body[place + 1 : place + 1 + body[place]].decode(), place + 1 + body[place]
        properties = body[place + 2 : at + size]
        content = MessageContent(properties, text, flag, system_flag, born, queue, failures, host, port)
        found.append(Received(topic, queue, offset, address, failures, content))
        at += size
    return found
