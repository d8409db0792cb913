"""Everything that the services of one connection share: its user, its virtual host, and the clients behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.groups.options import GroupOptions
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, named
from escrowmq.wire.rocketmq.grpc.clients import GrpcClient
from escrowmq.wire.rocketmq.grpc.gathering import GatheredCalls
from escrowmq.wire.rocketmq.grpc.settings import Retries
from escrowmq.wire.rocketmq.names import group_fault, topic_fault
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code
from escrowmq.wire.rocketmq.topics import Catalogue

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.endpoint import Host, Peer
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
    from escrowmq.wire.rocketmq.login import RocketmqLogin
    from escrowmq.wire.rocketmq.options import RocketmqOptions
    from escrowmq.wire.rocketmq.proto.definition_pb2 import Resource, Settings

MOST_CLIENTS: Final = 100
"""The number of clients that may share a connection."""


class GrpcSession:
    """A connection after its login. `blocked` is the reason why the server accepts no publishes, or empty."""

    def __init__(self, host: Host, endpoint: GrpcEndpoint, peer: Peer, login: RocketmqLogin) -> None:
        self._host = host
        self._endpoint = endpoint
        self._flow = endpoint.flow
        self.broker: Broker = host.broker
        self.options: RocketmqOptions = host.limits.rocketmq
        self.peer = peer
        self.user = login.user
        self.vhost: VirtualHost[Queue] = login.vhost
        self.door = login.door
        self.traffic = login.traffic
        self.refusals = login.refusals
        self.catalogue = Catalogue(self.broker, self.vhost, self.door)
        self.clients: dict[str, GrpcClient] = {}
        self.blocked = ""
        self.gathered = GatheredCalls(self)
        self._publishes = False
        self._turn = 0

    @property
    def writable(self) -> bool:
        """Whether the connection takes more output that no client has asked for."""
        return self._flow.writable

    def is_blocked(self) -> bool:
        """Return whether messages are refused now. The server learns that the connection publishes."""
        if not self._publishes:
            self._publishes = True
            self._host.publishing(self._endpoint)  # this call may block the endpoint at once
        return bool(self.blocked)

    def client(self, call: Call) -> GrpcClient:
        """Return the client that made a call. Raises RocketmqRefusal if the call does not name it."""
        ident = call.text(b"x-mq-client-id")
        if not ident or len(ident) > 255:
            raise RocketmqRefusal(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing or too long")
        found = self.clients.get(ident)
        if found is None:
            if len(self.clients) >= MOST_CLIENTS:
                raise RocketmqRefusal(Code.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} clients already share this connection")
            found = self.clients[ident] = GrpcClient(self, ident, call.text(b"x-mq-language"))
        return found

    def topic(self, resource: Resource) -> Topic:
        """Return a topic that the user may see. Raises RocketmqRefusal and ACCESS_REFUSED. None is created: clients ask
        for the queues of a topic before they send, and consumers ask, too.
        """
        name = named(resource)
        fault = topic_fault(name)
        if fault:
            raise RocketmqRefusal(Code.ILLEGAL_TOPIC, fault)
        found = self.catalogue.seen(name)
        if found is None:
            self.refusals.missing(name, self.vhost.name)
            raise unknown_topic(name)
        return found

    def group(self, resource: Resource) -> str:
        """Return the name of a consumer group. Raises RocketmqRefusal if it is none."""
        name = named(resource)
        fault = group_fault(name)
        if fault:
            raise RocketmqRefusal(Code.ILLEGAL_CONSUMER_GROUP, fault)
        return name

    def retries(self, settings: Settings) -> Retries | None:
        """Return how the group of a consumer retries; None for a producer."""
        if settings.WhichOneof("pub_sub") != "subscription":
            return None
        options = self._group_options(named(settings.subscription.group))
        return Retries(options.fifo, options.max_attempts, options.back_off_ms)

    def is_fifo(self, group: str) -> bool:
        """Return whether a group consumes the messages of each message group in order."""
        return self._group_options(group).fifo

    def _group_options(self, name: str) -> GroupOptions:
        group = self.catalogue.group(name)
        return GroupOptions() if group is None else group.options

    def forget(self, client: GrpcClient) -> None:
        """Forget a client that has ended."""
        self.clients.pop(client.ident, None)
        client.end()

    def end(self) -> None:
        """The connection is lost."""
        del self.gathered  # it refers to the session
        for client in list(self.clients.values()):
            self.forget(client)

    def next_partition(self, topic: Topic) -> int:
        """Return the partition for a message that may be in any: all in turn."""
        self._turn += 1
        return self._turn % len(topic.streams)


def unknown_topic(name: str) -> RocketmqRefusal:
    """Return the refusal of an unknown topic. Clients compare the text with that of RocketMQ's proxy."""
    return RocketmqRefusal(
        Code.TOPIC_NOT_FOUND, f"CODE: 17  DESC: No topic route info in name server for the topic: {name}"
    )
