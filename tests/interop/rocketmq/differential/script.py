"""A session of classic remoting that records a broker's answers as lines of text, to compare two brokers."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from escrowmq.wire.rocketmq.properties import ORIGIN_ID, parse
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import HEAD, ONE_WAY, Command, decode, encode, frame_size
from tests.unit.wire.rocketmq.remoting.clients import Received, messages

PATIENCE: Final = 20.0
_ADDED: Final = {"MSG_REGION", "TRACE_ON", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET"}
"""Properties that RocketMQ adds to each message. EscrowMQ delivers what the producer has sent."""
_LEFT_OUT: Final = {"groupSysFlag", "topicSysFlag", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}
"""Fields that clients do not need. The two of heartbeats offer a shorter form, which is not supported."""
_VARYING: Final = {"msgId", "offsetMsgId", "commitLogOffset", "timestamp", "indexLastUpdateTimestamp"}
_VARYING_KEYS: Final = re.compile(
    r'"(timestamp|lastUpdateTimestamp|lastTimestamp|clientAddr|remoteIP|brokerAddr|counter|stateVersion)":'
    r'("[^"]*"|[^,{}\[\]]*)'
)
_IDENT: Final = "FD0000000000000000000000000000021E4C1DBD16A67319"


class Script:
    """Executes steps, and records the answers in `lines`. Names, ids and times that differ by nature become `*`."""

    def __init__(self, name: str, name_server: int, broker: int) -> None:
        self.topic = f"{name.replace('.', '-')}-{uuid.uuid4().hex[:8]}"
        self.group = f"g-{self.topic}"
        self.lines: list[str] = []
        self._servers = {"names": _Connection(name_server), "broker": _Connection(broker)}

    def call(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", to: str = "broker"
    ) -> Command:
        """Send a request, and return the response."""
        return self._servers[to].call(code, {name: str(value) for name, value in (fields or {}).items()}, body)

    def tell(self, code: int, fields: Mapping[str, object]) -> None:
        """Send a request to which there is no response."""
        self._servers["broker"].send(code, {name: str(value) for name, value in fields.items()}, b"", ONE_WAY)

    def step(
        self, what: str, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", to: str = "broker"
    ) -> Command:
        """Send a request, and record the response."""
        answer = self.call(code, fields, body, to)
        self.lines.append(f"{what}: {self.shown(answer)}")
        return answer

    def say(self, what: str, value: object) -> None:
        """Record a line that is not the answer to a step."""
        self.lines.append(f"{what}: {self.scrub(str(value))}")

    def wait(self, look: Callable[[], Any]) -> Any:
        """Return the first true result of `look`. Raises AssertionError without one."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = look()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError("nothing happened in time")

    def send(self, queue: int = 0, topic: str = "", **properties: str) -> dict[str, object]:
        """Return the fields of a send in its second version."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        topic = topic or self.topic
        fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "h": 0, "i": text, "j": 0}
        return {**fields, "g": time.time_ns() // 1_000_000, "k": "false", "m": "false"}

    def pulls(self, topic: str = "", queue: int = 0, offset: int = 0, **fields: object) -> dict[str, object]:
        """Return the fields of a pull."""
        return {
            "consumerGroup": self.group,
            "topic": topic or self.topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
            **fields,
        }

    def pulled(self, topic: str = "", queue: int = 0, offset: int = 0) -> list[Received]:
        """Return the messages of a queue from an offset on."""
        return messages(self.call(Code.PULL, self.pulls(topic, queue, offset)).body)

    def create(self, **fields: object) -> dict[str, object]:
        """Return the fields that create the topic of the script."""
        return {
            "topic": self.topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
            **fields,
        }

    def heartbeat(self, client: str = "client", producer: str = "", topic: str = "") -> bytes:
        """Return the body of a heartbeat of a member of the script's group."""
        subscription = {"topic": topic or self.topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
        consumer = {
            "groupName": self.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{**subscription, "tagsSet": [], "codeSet": [], "classFilterMode": False}],
            "unitMode": False,
        }
        found = {
            "clientID": client,
            "producerDataSet": [{"groupName": producer}] if producer else [],
            "consumerDataSet": [consumer],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
        return json.dumps(found).encode()

    def arrived(self, code: int) -> Command | None:
        """Return the next request of the broker's own with this code, if there is one."""
        return self._servers["broker"].request(code)

    def shown(self, answer: Command) -> str:
        """Return an answer as text."""
        parts = [ResultCode(answer.code).name if answer.code in set(ResultCode) else str(answer.code)]
        if answer.code != ResultCode.SUCCESS and answer.remark:
            parts.append(repr(answer.remark))
        for name, value in sorted(answer.fields.items()):
            if name in _LEFT_OUT:
                continue
            parts.append(f"{name}={'*' if name in _VARYING else value}")
        if answer.body:
            parts.append(self.body(answer.body))
        return self.scrub(" ".join(parts))

    def body(self, body: bytes) -> str:
        """Return a body as text: messages, or JSON."""
        if body[:1] != b"{":
            return str([_message(each) for each in messages(body)])
        return json.dumps(_plain(_with_text_keys(body.decode())), sort_keys=True)

    def scrub(self, text: str) -> str:
        """Replace names and addresses."""
        text = text.replace(self.topic, "TOPIC").replace('"bench"', '"BROKER"').replace('"escrowmq"', '"BROKER"')
        text = re.sub(r"127\.0\.0\.1:\d+", "*", text)
        return re.sub(_VARYING_KEYS, r'"\1":*', text.replace('": ', '":'))

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


def ident(number: int) -> str:
    """Return a unique key as Java clients make them."""
    return f"{_IDENT}{number:08X}"


def batched(body: bytes, properties: str) -> bytes:
    """Return one message of a batch."""
    text = properties.encode()
    head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(text)) + text


def _message(found: Received) -> str:
    properties = {name: value for name, value in parse(found.content.properties).items() if name not in _ADDED}
    if ORIGIN_ID in properties:
        properties[ORIGIN_ID] = "*"
    shown = " ".join(f"{name}={value}" for name, value in sorted(properties.items()))
    content = found.content
    return (
        f"{found.topic}/{found.queue}@{found.offset} {content.body.decode()!r} flag={content.flag} "
        f"sysFlag={content.system_flag} failures={found.failures} {{{shown}}}"
    )


def _with_text_keys(text: str) -> Any:
    """Read the JSON of RocketMQ's library, in which keys may be objects and numbers."""
    text = re.sub(r"([{,])\s*(\d+):", r'\1"\2":', text)
    return json.loads(re.sub(r'(\{"brokerName":[^{}]*\}):', lambda key: json.dumps(_key(key[1])) + ":", text))


def _key(text: str) -> str:
    found = json.loads(text)
    return f"{found['topic']}/{found['queueId']}"


def _plain(found: Any) -> Any:
    """Lists of texts in order: RocketMQ's are sets."""
    if isinstance(found, dict):
        return {name: _plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return sorted((_plain(each) for each in found), key=str)
    return found


class _Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._buffer = b""
        self._number = 0
        self._requests: list[Command] = []

    def send(self, code: int, fields: dict[str, str], body: bytes, flag: int = 0) -> None:
        self._number += 1
        self._socket.sendall(encode(Command(code, fields, body, self._number, flag)))

    def call(self, code: int, fields: dict[str, str], body: bytes) -> Command:
        self.send(code, fields, body)
        while True:
            found = self._read()
            if found.is_response and found.opaque == self._number:
                return found
            self._requests.append(found)

    def request(self, code: int) -> Command | None:
        self._socket.settimeout(0.05)
        try:
            while True:
                self._requests.append(self._read())
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(PATIENCE)
        found = next((each for each in self._requests if each.code == code and not each.is_response), None)
        if found is not None:
            self._requests.remove(found)
        return found

    def _read(self) -> Command:
        while True:
            if len(self._buffer) >= HEAD:
                size = frame_size(self._buffer[:HEAD])
                if len(self._buffer) >= size:
                    frame, self._buffer = self._buffer[:size], self._buffer[size:]
                    return decode(frame)
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._socket.close()
