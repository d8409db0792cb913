"""A simulated client. It knows the messages that it has sent and received, and executes steps if it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from escrowmq.wire.amqp091 import frames, spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import login_frames
from tests.harness.frames import FrameReader, Message, publish_frames
from tests.harness.server import AnyPort
from tests.simulation.steps import Step
from tests.simulation.topology import ARGUMENTS, DELETED, EXCHANGE, NOWHERE, PURGED, declarations

MODES: Final = ("", "confirm", "tx")
_TX: Final = 1 + MODES.index("tx")
_PREFETCH: Final = (0, 1, 2, 5, 20)
_SIZES: Final = (8, 8, 8, 40, 600, 5000)


@dataclass(eq=False)
class _Channel:
    number: int
    mode: str
    waiting: int = 0  # the number of answers due
    unsettled: list[int] = field(default_factory=list)
    in_transaction: list[int] = field(default_factory=list)
    """Tags settled since the last commit; a rollback makes them unsettled again (TX-4)."""
    consumers: list[str] = field(default_factory=list)


class Actor:
    """One client process. `up` and `down` are the bytes in the network on their way to the server and to the client."""

    def __init__(self, number: int, favourites: Sequence[str] = ()) -> None:
        self.number = number
        self._names = (*favourites, *favourites, *favourites, *ARGUMENTS)
        self.port: AnyPort | None = None
        self.up = bytearray()
        self.down = bytearray()
        self.channels: dict[int, _Channel] = {}
        self._reader = FrameReader()
        self._serials = 0
        self._tags = 0
        self._closing = False
        self.left = False  # whether the server has answered connection.close

    # -- connections

    def connect(self, port: AnyPort) -> None:
        """Log in and open a channel of each mode, without waiting for answers."""
        self.port = port
        self.up, self.down = bytearray(login_frames()), bytearray()
        self.channels.clear()
        self._reader = FrameReader()
        self._closing = False
        self.left = False
        for number in range(1, len(MODES) + 1):
            self._open(number)

    def lost(self) -> None:
        """Note that the connection is lost."""
        self.port = None
        self.up.clear()
        self.down.clear()
        self.channels.clear()

    def _open(self, number: int) -> None:
        mode = MODES[(number - 1) % len(MODES)]
        self.channels[number] = channel = _Channel(number, mode)
        self._ask(channel, spec.ChannelOpen())
        if mode == "tx":
            self._ask(channel, spec.TxSelect())
        elif mode == "confirm":
            self._ask(channel, spec.ConfirmSelect())

    def set_up(self) -> None:
        """Declare the exchange and the queues."""
        for method in declarations():
            self._say(1, method)

    def _say(self, channel: int, *methods: Method) -> None:
        for method in methods:
            self.up += frames.method_frame(channel, method)

    def _ask(self, channel: _Channel, *methods: Method) -> None:
        """Send methods, after which this channel sends nothing until they are answered."""
        self._say(channel.number, *methods)
        channel.waiting += len(methods)

    # -- from the server

    def read(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._read(message)

    def _read(self, message: Message) -> None:
        method = message.method
        if isinstance(method, spec.ConnectionCloseOk):
            self.left = True
        channel = self.channels.get(message.channel)
        if channel is None:
            return
        if isinstance(method, (spec.BasicDeliver, spec.BasicGetOk)):
            if isinstance(method, spec.BasicGetOk):
                channel.waiting -= 1
            if not (isinstance(method, spec.BasicDeliver) and method.consumer_tag.startswith("careless")):
                channel.unsettled.append(method.delivery_tag)
        elif isinstance(method, spec.ChannelClose):
            self._say(channel.number, spec.ChannelCloseOk())
            self._open(channel.number)
        elif isinstance(method, spec.ChannelCloseOk):
            self._open(channel.number)
        elif isinstance(method, spec.BasicCancel):
            if method.consumer_tag in channel.consumers:
                channel.consumers.remove(method.consumer_tag)
        elif isinstance(method, (spec.BasicAck, spec.BasicNack, spec.BasicReturn)):
            return
        else:
            if isinstance(method, spec.BasicRecoverOk):
                channel.unsettled.clear()
            elif isinstance(method, spec.TxCommitOk):
                channel.in_transaction.clear()
            elif isinstance(method, spec.TxRollbackOk):
                channel.unsettled = sorted([*channel.unsettled, *channel.in_transaction])
                channel.in_transaction.clear()
            channel.waiting -= 1

    # -- steps

    def act(self, step: Step) -> None:
        """Execute a step, or do nothing if it makes no sense at the moment."""
        if self.port is None or self._closing:
            return
        channels = [self.channels[number + 1] for number in range(len(MODES))]
        if step.kind == "settle":
            channels = [channel for channel in channels if channel.unsettled] or channels
        channel = channels[step.what % len(channels)]
        if step.kind == "close connection":
            if any(other.waiting for other in self.channels.values()):
                return
            self._say(0, spec.ConnectionClose(200, "bye", 0, 0))
            self._closing = True
        elif not channel.waiting:
            getattr(self, "_" + step.kind.replace(" ", "_"))(channel, step)

    def _publish(self, channel: _Channel, step: Step) -> None:
        what, how = step.what // len(MODES), step.how
        for i in range(1 + how % 4):
            name = self._names[(what + i * (how // 64)) % len(self._names)]
            to_all = how % 11 == 0
            nowhere = how % 23 == 0
            self._serials += 1
            serial = self.number * 1_000_000 + self._serials
            size = _SIZES[(what + how) % len(_SIZES)]
            properties = Properties(
                delivery_mode=1 if how % 7 == 0 else 2,
                priority=(how + i) % 5 if name == "priority" else None,
                expiration=str(how * 20) if name == "letters" and how % 2 and not to_all else None,
            )
            key = NOWHERE if nowhere and not to_all else name
            method = spec.BasicPublish(EXCHANGE if to_all else "", key, mandatory=how % 3 == 0)
            body = b"%d.%s" % (serial, bytes((serial + k) % 251 for k in range(size)))
            self.up += publish_frames(channel.number, method, properties.encode(), body, 4096)

    def _settle(self, channel: _Channel, step: Step) -> None:
        if not channel.unsettled:
            return
        multiple = step.how % 4 == 0
        at = (step.what // len(MODES)) % min(len(channel.unsettled), 8)
        tag = channel.unsettled[at]
        taken = channel.unsettled[: at + 1] if multiple else [tag]
        channel.unsettled = [other for other in channel.unsettled if other not in taken]
        if channel.mode == "tx":
            channel.in_transaction += taken
        match step.how // 4 % 8:
            case 0:
                self._say(channel.number, spec.BasicNack(tag, multiple, True))
            case 1:
                self._say(channel.number, spec.BasicNack(tag, multiple, False))
            case 2 if not multiple:
                self._say(channel.number, spec.BasicReject(tag, step.how % 2 == 1))
            case _:
                self._say(channel.number, spec.BasicAck(tag, multiple))

    def _commit(self, channel: _Channel, step: Step) -> None:
        if not self.channels[_TX].waiting:
            self._ask(self.channels[_TX], spec.TxCommit())

    def _rollback(self, channel: _Channel, step: Step) -> None:
        if not self.channels[_TX].waiting:
            self._ask(self.channels[_TX], spec.TxRollback())

    def _consume(self, channel: _Channel, step: Step) -> None:
        name = self._names[step.how % len(self._names)]
        if len(channel.consumers) < 4:
            self._tags += 1
            tag = f"{name}-{self.number}-{self._tags}"
            channel.consumers.append(tag)
            qos = spec.BasicQos(0, _PREFETCH[(step.what // 3) % len(_PREFETCH)])
            self._ask(channel, qos, spec.BasicConsume(name, tag, no_ack=name == "careless"))

    def _cancel(self, channel: _Channel, step: Step) -> None:
        if channel.consumers:
            self._ask(channel, spec.BasicCancel(channel.consumers.pop(step.how % len(channel.consumers))))

    def _get(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.BasicGet(self._names[step.how % len(self._names)]))

    def _recover(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.BasicRecover(True))

    def _purge(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.QueuePurge(PURGED[step.how % len(PURGED)]))

    def _delete(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.QueueDelete(DELETED[step.how % len(DELETED)]))

    def _declare(self, channel: _Channel, step: Step) -> None:
        name = DELETED[step.how % len(DELETED)]
        self._ask(channel, spec.QueueDeclare(name, durable=name != "transient", arguments=dict(ARGUMENTS[name])))

    def _count(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.QueueDeclare(self._names[step.how % len(self._names)], passive=True))

    def _exclusive(self, channel: _Channel, step: Step) -> None:
        owner = self.number if step.how % 4 else step.how // 4 % 3
        name = f"own-{owner}"
        if owner == self.number:
            self._ask(channel, spec.QueueDeclare(name, durable=True, exclusive=True))
        else:
            self._ask(channel, spec.QueuePurge(name))

    def _close_channel(self, channel: _Channel, step: Step) -> None:
        self._ask(channel, spec.ChannelClose(200, "done", 0, 0))
