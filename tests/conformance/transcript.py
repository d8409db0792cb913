"""Play golden transcripts, text files of frames sent and received, against the server core.

    # rules: TX-7
    # limits: operations=100
    > 1 channel.open
    < 1 channel.open-ok
    > 1 basic.publish routing_key=q body="hello" delivery_mode=2
    B< 1 basic.deliver delivery_tag=1 body="hello"
    ! crash

A `>` line is sent by a client; each line is one turn of the server. `<` lines are the methods that the client must
receive, in this order, without any others in between. A preceding letter names the client; the default is "A". A new
client connects and logs in first.

Arguments are `name=value`, with the value in JSON or as a bare word; `name` alone means true, and `name~"text"` that
the argument must contain the text. Arguments that a `<` line does not name are not compared. Properties are written
like arguments. `> raw 01 00 …` sends octets in hexadecimal. An xid is `FORMAT:GTRID:BQUAL`, with the last two in
hexadecimal, or `hex:…` for its octets; `xids` is a list of these.

`< nothing` means that the client has received nothing, `< closed` that its connection is closed. A `!` line changes the
server; see `Player.do`.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Final

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.xid import Xid
from escrowmq.journal.errors import JournalFailed
from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.wire.amqp091 import frames
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import METHODS, DtxCoordinationRecoverOk
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.endpoint import EndpointLimits
from tests.harness.client import SimClient
from tests.harness.frames import Message, publish_frames
from tests.harness.server import Options, SimServer

FOLDER: Final = Path(__file__).parent / "transcripts"

_BY_NAME: Final[dict[str, type[Method]]] = {method.NAME: method for method in METHODS.values()}
_LINE: Final = re.compile(r"(?P<who>[A-Z]?)(?P<way>[<>!]) (?P<rest>.+)")
_ARGUMENT: Final = re.compile(r'(?P<name>[\w-]+)(?:(?P<how>[=~])(?P<value>"(?:[^"\\]|\\.)*"|\S+))?')
_BRANCH: Final = ("operations", "bytes", "age")


def header(path: Path) -> dict[str, str]:
    """Return the fields at the beginning of a transcript, written as comments: `# key: value`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)


def play(path: Path, *, piece: int = 0) -> None:
    """Play a transcript.

    Args:
        path: the file.
        piece: the size in bytes of the pieces in which clients send; 0 for whole lines.

    Raises:
        AssertionError: the server differs from the transcript; the text has the line.
    """
    player = Player(header(path).get("limits", ""), piece)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            try:
                player.line(line)
            except AssertionError as error:
                raise AssertionError(f"{path.name}:{number}: {line}\n{error}") from error
    player.nothing_left(path.name)


def _octets(text: str) -> bytes:
    """Return the encoded xid. `hex:` allows octets that are not a valid xid."""
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else Xid.parse(text).encode()


def _xids(table: FieldTable) -> list[str]:
    """Return the xids in an answer to recover, in alphabetical order."""
    found = table["xids"]
    assert isinstance(found, list)
    return sorted(str(Xid.decode(each.encode() if isinstance(each, str) else bytes(each))) for each in found)  # type: ignore[arg-type]


def _value(text: str | None) -> Any:
    if text is None:
        return True
    try:
        return json.loads(text)
    except ValueError:
        return text


class Player:
    """The server and the clients of one transcript."""

    def __init__(self, limits: str, piece: int = 0) -> None:
        self._piece = piece
        given: dict[str, Any] = {name: int(value) for name, value in (item.split("=") for item in limits.split())}
        branch = Limits(**{name: given.pop(name) for name in _BRANCH if name in given})
        self.storage = MemoryStorage(random.Random(1))
        self._options = Options(limits=EndpointLimits(transaction=branch, **given), users=("guest", "limited"))
        self._clients: dict[str, SimClient] = {}
        self._lives = 0
        self._disk = True
        self._writes = 0
        self.server = self._start()

    def _start(self) -> SimServer:
        self._lives += 1
        return SimServer(self.storage, self._options, seed=self._lives)

    def line(self, line: str) -> None:
        """Play one line of the transcript."""
        match = _LINE.fullmatch(line)
        assert match is not None, "this is not a line of a transcript"
        who, way, rest = match.groups()
        if way == "!":
            self.do(*rest.split())
            return
        name = who or "A"
        if name not in self._clients:
            self._clients[name] = SimClient(self.server, name, piece=self._piece)
        client = self._clients[name]
        if way == ">":
            client.collect()
            assert not client.inbox, f"received earlier: {client.inbox[0]}"
            client.send_bytes(self._sent(rest), disk=self._disk)
        else:
            self._told(client, rest)

    # -- frames

    @staticmethod
    def _sent(rest: str) -> bytes:
        if rest.startswith("raw "):
            return bytes.fromhex(rest[4:])
        channel, name, *_ = rest.split(" ", 2)
        kind = _BY_NAME[name]
        fields = {field for field, _ in kind.FIELDS}
        arguments: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        body = b""
        for match in _ARGUMENT.finditer(rest, len(channel) + len(name) + 2):
            value = _value(match["value"])
            if match["name"] == "body":
                body = str(value).encode()
            elif match["name"] == "xid":
                arguments["xid"] = _octets(match["value"])
            elif match["name"] in fields:
                arguments[match["name"]] = value
            else:
                properties[match["name"]] = value
        method = kind(**arguments)
        if kind.HAS_CONTENT:
            return publish_frames(int(channel), method, Properties(**properties).encode(), body)
        assert not properties, f"{name} has no {', '.join(properties)}"
        return frames.method_frame(int(channel), method)

    @staticmethod
    def _told(client: SimClient, rest: str) -> None:
        client.collect()
        if rest == "nothing":
            assert not client.inbox, f"received: {client.inbox[0]}"
            return
        if rest == "closed":
            assert client.closed, "the connection is open"
            return
        channel, name, *_ = rest.split(" ", 2)
        assert client.inbox, "nothing was received"
        message = client.inbox.popleft()
        assert (str(message.channel), message.method.NAME) == (channel, name), f"received: {message}"
        for match in _ARGUMENT.finditer(rest, len(channel) + len(name) + 2):
            _compare(message, match["name"], match["how"], _value(match["value"]))

    def nothing_left(self, name: str) -> None:
        """Check at the end that no client has received more than the transcript says."""
        for who, client in self._clients.items():
            client.collect()
            assert not client.inbox, f"{name}: {who} also received: {client.inbox[0]}"

    # -- the server

    def do(self, what: str, *words: str) -> None:
        """Execute a `!` line.

        crash, kill, restart: restart the server after a power failure, the death of the process, or a clean stop.
        break NAME: break that client's connection.
        disk off, disk on: suspend and resume writing to disk.
        sync fails: let the next sync fail, after which the broker must stop.
        pass MS: advance the clock.
        tidy: take a snapshot, compact, delete files.
        writes count, writes none: check with the latter that nothing has been written since the former.
        permit USER CONFIGURE WRITE READ: set permissions; "-" for none.
        connect NAME USER: connect a client that logs in as that user.
        force XID commit, force XID rollback: decide as an operator.
        """
        match what:
            case "crash" | "kill" | "restart":
                self._restart(what)
            case "break":
                self._clients.pop(words[0]).lose()
            case "disk":
                self._disk = words[0] == "on"
                if self._disk:
                    self.server.run_disk()
            case "sync":
                self._fail_sync()
            case "pass":
                self.server.now += int(words[0])
                self.server.end_turn()
                self.server.run_disk()
            case "tidy":
                self.server.tidy()
            case "writes":
                if words[0] == "none":
                    assert self.storage.writes == self._writes, "the server wrote to disk"
                self._writes = self.storage.writes
            case "permit":
                rights = ["" if word == "-" else word for word in words[1:]]
                self.server.broker.directory.record_access(
                    self.server.broker.access.set_permission(words[0], "/", *rights)
                )
            case "connect":
                self._clients[words[0]] = SimClient(self.server, words[0], user=words[1], piece=self._piece)
            case "force":
                self.server.broker.engine.now = self.server.now
                self.server.broker.coordinator.force(Xid.parse(words[0]), commit=words[1] == "commit")
                self.server.end_turn()
                self.server.run_disk()
            case _:
                raise AssertionError(f"unknown command {what!r}")

    def _restart(self, how: str) -> None:
        self.nothing_left("before the restart")
        if how == "restart":
            self.server.close()
        self._clients.clear()
        if how == "crash":
            self.storage.crash()
        self.storage.faults = Faults()
        self._disk = True
        self.server = self._start()

    def _fail_sync(self) -> None:
        self.storage.faults = Faults(fail_sync_in=1)
        try:
            self.server.run_disk()
        except JournalFailed:
            try:
                self.server.journal.take_batch(0)
            except JournalFailed:
                return
        raise AssertionError("the broker continued after a failed sync")


def _compare(message: Message, name: str, how: str | None, value: Any) -> None:
    """Compare one argument of a received message."""
    found: Any
    if name == "body":
        found = message.body.decode()
    elif name == "xids" and isinstance(message.method, DtxCoordinationRecoverOk):
        found = _xids(message.method.xids)
    elif name in {field for field, _ in message.method.FIELDS}:
        found = getattr(message.method, name)
    else:
        found = getattr(Properties.decode(message.header), name)
    if how == "~":
        assert str(value) in str(found), f"{name} is {found!r}"
    else:
        assert found == value, f"{name} is {found!r}"
