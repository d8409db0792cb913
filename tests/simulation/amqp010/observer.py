"""The observer of AMQP 0-10: it reads both directions, and tells the oracle what they mean in AMQP 0-9-1.

Every command of a client is a method, and its completion the answer to it: a message.transfer is a publish with a
confirm, or one within a transaction. Deliveries have the tags that their order gives them. What AMQP 0-10 does not
tell, such as the number of messages that a purge removed, is not checked.

A session with a timeout outlives its connection (`kept.py`): for the oracle, its channel goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties, scan
from tests.harness.frames import Message
from tests.simulation.amqp010 import wire
from tests.simulation.amqp010.actor import TX
from tests.simulation.amqp010.kept import Conversation, KeptSessions, Session
from tests.simulation.amqp010.wire import Operation
from tests.simulation.amqp091.channels import Channel, Connection
from tests.simulation.ledger import Violation

_UNKNOWN: Final = -1
"""A number of messages that the protocol does not tell."""


class Observer(KeptSessions):
    """Observes connections of AMQP 0-10."""

    # -- from clients

    def inward(self, connection: Connection, data: bytes) -> None:
        assert isinstance(connection, Conversation)
        for each in connection.client.feed(data):
            if connection.lost:
                return
            if each.channel == 0:
                if each.name == "connection.close":
                    self.keep_all(connection)
                    self._inward(connection, Message(0, spec.ConnectionClose(200, "", 0, 0)))
            elif each.is_control:
                self._control(connection, each)
            elif (session := connection.sessions.get(each.channel)) is not None:
                self._command(connection, session, each)

    def _control(self, connection: Conversation, each: Operation) -> None:
        if each.name == "session.attach":
            self._attach(connection, each)
            return
        session = connection.sessions.get(each.channel)
        if session is None:
            return
        if each.name == "session.request-timeout":
            session.timeout = each.values.get("timeout", 0)
        elif each.name == "session.command-point":
            session.received = each.values.get("id", 0)
        elif each.name == "session.detach":
            if not self.keep(connection, each.channel):
                self._inward(connection, Message(each.channel, spec.ChannelClose(200, "", 0, 0)))
        elif each.name == "session.detached":
            self._inward(connection, Message(each.channel, spec.ChannelCloseOk()))
            del connection.sessions[each.channel]

    def _attach(self, connection: Conversation, each: Operation) -> None:
        name = each.values["name"]
        if self.awaits(connection, each.channel, name):
            return
        session = connection.sessions[each.channel] = Session(name, each.channel == TX)
        self._inward(connection, Message(each.channel, spec.ChannelOpen()))
        if not session.is_tx:
            self._inward(connection, Message(each.channel, spec.ConfirmSelect()))

    def _command(self, connection: Conversation, session: Session, each: Operation) -> None:
        number = session.received
        session.received += 1
        if number < session.known:
            self.ledger.count("commands repeated")
            return
        session.known = session.received
        if not each.name.startswith("queue."):
            self._last_work = self.ledger.turn  # credit, for example, lets messages leave before they are counted
        channel, values = each.channel, each.values
        if each.name == "message.transfer":
            delivery = each.header
            method = spec.BasicPublish(values["destination"], delivery.get("key", ""))
            header = Properties(delivery_mode=delivery.get("mode"), priority=delivery.get("priority")).encode()
            self._inward(connection, Message(channel, method, header, each.body))
            if not session.is_tx:
                session.published += 1
                if not values.get("accept_mode", 0):
                    session.unaccepted.add(number)
                tag = session.published
                session.answers[number] = lambda: spec.BasicAck(tag, False)
        elif each.name in ("message.accept", "message.release", "message.reject"):
            for first, last in values["transfers"]:
                for one in range(first, last + 1):
                    self._inward(connection, Message(channel, _settlement(each.name, session.tags.get(one, _UNKNOWN))))
        elif each.name in _METHODS:
            make, answer = _METHODS[each.name]
            session.answers[number] = lambda: answer(values, session.counts.get(number, _UNKNOWN))
            self._inward(connection, Message(channel, make(values)))

    def _publish(self, channel: Channel, message: Message) -> None:
        """Compare the priority of deliveries only: some queues make all messages persistent."""
        super()._publish(channel, message)
        serial, priority = int(message.body.split(b".")[0]), scan(message.header).priority
        sent = self.ledger.sent[serial]
        self.ledger.sent[serial] = replace(sent, header=Properties(priority=priority).encode())

    def _settle(self, channel: Channel, tag: int, multiple: bool, how: str) -> None:
        """Only acceptances are part of a transaction."""
        mode = channel.mode
        if how != "ack":
            channel.mode = ""
        super()._settle(channel, tag, multiple, how)
        channel.mode = mode

    def _delete(self, connection: Connection, channel: Channel, method: spec.QueueDelete) -> None:
        """A queue that is deleted must exist."""
        if method.queue in self.ledger.queues:
            super()._delete(connection, channel, method)
        else:
            self._refuse(channel, 404)

    def _counted(self, name: str, what: str, known: int | None) -> Callable[[Message], None]:
        check = super()._counted(name, what, known)

        def counted(message: Message) -> None:
            method: Any = message.method
            if method.message_count != _UNKNOWN:
                check(message)

        return counted

    # -- from the server

    def outward(self, connection: Connection, data: bytes) -> None:
        assert isinstance(connection, Conversation)
        for each in connection.server.feed(data):
            if each.name == "connection.close":
                raise Violation(f"{connection.name} is closed: {each.values.get('text')}")
            if each.name == "session.attached":
                self._attached(connection, each.channel)
            elif each.channel in connection.awaited:
                self.decide(connection, each)
            elif (place := self.place_of(connection, each)) is not None:
                self._from_server(place, place.sessions[each.channel], each)

    def _attached(self, connection: Conversation, channel: int) -> None:
        if channel in connection.sessions:  # else it is attached again, or detached already
            self._say(connection, channel, spec.ChannelOpenOk())
            if not connection.sessions[channel].is_tx:
                self._say(connection, channel, spec.ConfirmSelectOk())

    def _from_server(self, connection: Conversation, session: Session, each: Operation) -> None:
        number = session.sent
        if not each.is_control:
            session.sent += 1
            if number < session.most_sent:
                self.repeated(connection.channels[each.channel], session, number, each)
                return
            session.most_sent = session.sent
            if session.timeout:
                session.log[number] = each
        match each.name:
            case "message.transfer":
                self._transferred(connection, session, number, each)
            case "message.accept":
                self._accepted(session, each)
            case "execution.result":
                found = wire.query_result(each.values["value"])
                session.counts[each.values.get("id", 0)] = found.get("messages", 0)
            case "execution.exception":
                text = each.values.get("description", "")
                self._say(connection, each.channel, spec.ChannelClose(each.values["code"], text, 0, 0))
            case "session.completed":
                for first, last in each.values.get("commands", ()):
                    for one in range(first, last + 1):
                        self._complete(connection, session, each.channel, one)
            case "session.command-point" if session.resumed:
                session.sent = each.values.get("id", 0)
            case "session.gap":
                self.skipped(connection.channels[each.channel], session, each)
            case "session.timeout" if each.values.get("timeout", 0) != session.timeout:
                raise Violation(f"a timeout of {session.timeout} s is answered with {each.values}")
            case "session.detached":
                self._say(connection, each.channel, spec.ChannelCloseOk())
                del connection.sessions[each.channel]

    def _transferred(self, connection: Conversation, session: Session, number: int, each: Operation) -> None:
        session.delivered += 1
        session.tags[number] = session.delivered
        delivery = each.header
        method = spec.BasicDeliver(
            each.values["destination"],
            session.delivered,
            delivery.get("redelivered", False),
            delivery.get("exchange", ""),
            delivery.get("key", ""),
        )
        self._say(connection, each.channel, method, _properties(delivery), each.body)
        if session.replaying:
            self.seen_late()

    def _accepted(self, session: Session, each: Operation) -> None:
        """A publish is accepted once."""
        for first, last in each.values["transfers"]:
            for one in range(first, last + 1):
                if one not in session.unaccepted:
                    raise Violation(f"publish {one} is accepted, but awaits no acceptance")
                session.unaccepted.remove(one)
        self.ledger.count("accepted")

    def _complete(self, connection: Conversation, session: Session, channel: int, number: int) -> None:
        if number in session.completed and number < session.again:
            return
        if number >= session.known or number in session.completed:
            raise Violation(f"command {number} on channel {channel} is complete, but was not received, or is so again")
        session.completed.add(number)
        answer = session.answers.pop(number, None)
        if answer is not None:
            self._say(connection, channel, answer())

    def _say(
        self, connection: Conversation, number: int, method: Method, header: bytes = b"", body: bytes = b""
    ) -> None:
        message = Message(number, method, header, body)
        self._tell(connection, "<", message)
        channel = connection.channels.get(number)
        if channel is not None:
            self._outward(connection, channel, message)


def _properties(delivery: dict[str, Any]) -> bytes:
    """Return priority and history of a message as a list of properties."""
    deaths = delivery.get("headers", {}).get("x-death")
    found = Properties(priority=delivery.get("priority", 4))
    if deaths:
        found.headers = {"x-death": [{"queue": deaths[0]["queue"]}]}
    return found.encode()


def _settlement(name: str, tag: int) -> Method:
    if name == "message.accept":
        return spec.BasicAck(tag, False)
    return spec.BasicNack(tag, False, True) if name == "message.release" else spec.BasicReject(tag, False)


_Make = Callable[[dict[str, Any]], Method]
_Answer = Callable[[dict[str, Any], int], Method]
_METHODS: Final[dict[str, tuple[_Make, _Answer]]] = {
    "tx.select": (lambda _: spec.TxSelect(), lambda *_: spec.TxSelectOk()),
    "tx.commit": (lambda _: spec.TxCommit(), lambda *_: spec.TxCommitOk()),
    "tx.rollback": (lambda _: spec.TxRollback(), lambda *_: spec.TxRollbackOk()),
    "exchange.declare": (
        lambda values: spec.ExchangeDeclare(values["exchange"], values["type"], durable=True),
        lambda *_: spec.ExchangeDeclareOk(),
    ),
    "exchange.bind": (
        lambda values: spec.QueueBind(values["queue"], values["exchange"]),
        lambda *_: spec.QueueBindOk(),
    ),
    "queue.declare": (
        lambda values: spec.QueueDeclare(
            values["queue"],
            durable=values.get("durable", False),
            exclusive=values.get("exclusive", False),
            arguments=values.get("arguments", {}),
        ),
        lambda values, count: spec.QueueDeclareOk(values["queue"], count, 0),
    ),
    "queue.query": (
        lambda values: spec.QueueDeclare(values["queue"], passive=True),
        lambda values, count: spec.QueueDeclareOk(values["queue"], count, 0),
    ),
    "queue.delete": (lambda values: spec.QueueDelete(values["queue"]), lambda _, count: spec.QueueDeleteOk(count)),
    "queue.purge": (lambda values: spec.QueuePurge(values["queue"]), lambda _, count: spec.QueuePurgeOk(count)),
    "message.subscribe": (
        lambda values: spec.BasicConsume(
            values["queue"], values["destination"], no_ack=values.get("accept_mode", 0) == 1
        ),
        lambda values, _: spec.BasicConsumeOk(values["destination"]),
    ),
    "message.cancel": (
        lambda values: spec.BasicCancel(values["destination"]),
        lambda values, _: spec.BasicCancelOk(values["destination"]),
    ),
}
"""For each command, the method that the oracle gets for it, and the answer that its completion is."""
